#!/bin/bash
# Trains models/tiny, its EAGLE-3 head, a block head and its draft on one GPU, judges them, and leaves the
# files in $OUT.
#
# usage: OUT=DIR job.sh smoke|full|heads     (smoke: every phase with tiny sizes, under two minutes;
#        heads: an EAGLE-3 and a block head from nothing, side by side for HEAD_MINUTES, for the target as it is)
#
# MODELS: the folder with tiny, tiny-eagle3, tiny-block and tiny-draft to start from. CORPUS: corpus.py's
# output. ITEMS: the held-out items. WORK: scratch space. TARGET_SECONDS: time for the target (480). LR: its
# rate. HEAD_MINUTES: for the heads and the draft, side by side (3.5). TARGET_FLAGS: more of train_chat.py's.
set -euo pipefail
mode=${1:?smoke, full or heads}
train=$(cd "$(dirname "$0")" && pwd)
models=${MODELS:-$PWD/models}
corpus=${CORPUS:-$train/corpus}
items=${ITEMS:-$train/tasks.jsonl}
out=${OUT:?where the results go}
work=${WORK:-/tmp/talon-train}
start=$(date +%s)
export PYTHONUNBUFFERED=1 PYTHONPATH=$train TOKENIZERS_PARALLELISM=true
rm -rf "$work" && mkdir -p "$work" "$out"

if [ "$mode" = smoke ]; then
  stream_flags=(--tokens 12e6 --scale 0.25 --workers 14); steps=(--steps 30)
  scale=0.02; recall=(2000); held_out=16; HEAD_MINUTES=0.1
  t_target=120; t_answers=1; long_steps=(--steps 10)
else
  stream_flags=(--workers 14); steps=()
  scale=1; recall=(2000 8000 16000); held_out=48
  t_target=${TARGET_SECONDS:-480}; t_answers=$((t_target + 55)); long_steps=()
fi
minutes=${HEAD_MINUTES:-3.5}
[ "$mode" != heads ] || t_target=${STREAM_SECONDS:-40}
# As many rows as one H200 trains; a worker finishes its shard, so the last ones begin before the end.
[ "$mode" = smoke ] || stream_flags+=(--tokens $((t_target * 1450000)))
t_stream=$((t_target > 60 ? t_target - 10 : t_target))
say() { echo "== $(( $(date +%s) - start )) s: $*"; }

# Whatever is there when the time is up has been copied already: each phase ends with its own copy.
keep_model() {
  cp "$work/target/model.safetensors" "$work/model.safetensors"
  split -b 15M -d "$work/model.safetensors" "$out/model.safetensors.part"
}
keep_small() {
  tar -C "$work" -cf "$out/small.tar" $(cd "$work" && ls -d judge eagle3/config.json eagle3/model.safetensors \
    block/config.json block/model.safetensors \
    draft/config.json draft/generation_config.json draft/tokenizer_config.json draft/model.safetensors \
    target/*.json target/*.jinja ./*.log 2>/dev/null | grep -v tokenizer.json)
}
mix=(chat-256-t0=3 chat-256-t0.7=2 chat-256-t1=1 chat-512-t0=4 chat-512-t0.7=3 chat-512-t1=1 \
  chat-1024-t0=2 chat-1024-t0.7=1 chat-1024-t1=0.5 books-t0=1.2 books-t0.7=1.2 books-t1=0.5 \
  docs-t0=1.8 docs-t0.7=1.8 docs-t1=0.6)
# Both: target, minutes, more flags.
train_eagle3() {
  python3 "$train/train_eagle.py" --target "$1" --minutes "$2" --rows "$work/answers" --out "$work/eagle3" \
    --held-out $held_out --draft-vocab 4096 --ffn 352 --lr 2e-3 --hard 0.4 --unreached 0.1 --prompt-weight 0.1 \
    --mix "${mix[@]}" "${@:3}" 2>&1 | tee "$work/eagle3.log"
}
train_block() {
  python3 "$train/train_block.py" --target "$1" --minutes "$2" --rows "$work/answers" --out "$work/block" \
    --held-out $held_out --lr 2e-3 --mix "${mix[@]}" "${@:3}" 2>&1 | tee "$work/block.log"
}
trap 'kill $(jobs -p) 2>/dev/null || true; keep_small || true' EXIT

say "rows and target"
python3 "$train/stream.py" --tokenizer "$models/tiny/tokenizer.json" --corpus "$corpus" \
  --held-out "$items" --out "$work/rows" --until $((start + t_stream)) "${stream_flags[@]}" \
  > "$work/stream.log" 2>&1 &
stream=$!
rm -rf "$work/start" && cp -r "$models/tiny" "$work/start"
if [ "$mode" = heads ]; then
  wait $stream || { cat "$work/stream.log"; exit 1; }
  python3 "$train/answers.py" --target "$models/tiny" --corpus-tokens "$work/rows" --out "$work/answers" \
    --until $(($(date +%s) + 55)) --scale $scale 2>&1 | tee "$work/answers.log"
  say "heads"
  train_eagle3 "$models/tiny" "$minutes" > /dev/null &
  train_block "$models/tiny" "$minutes" ${BLOCK_FLAGS:-}
  wait $!
  tail -40 "$work/eagle3.log"
  say "done"
  exit 0
fi
[ ! -d "$train/model" ] || cp "$train"/model/* "$work/start/"  # a newer chat template
train_target() {
  python3 "$train/train_chat.py" --init "$work/start" --rows "$work/rows" --out "$work/target" --lr "${LR:-1.5e-3}" \
    --until $((start + t_target)) "${steps[@]}" ${TARGET_FLAGS:-} "$@" 2>&1 | tee -a "$work/target.log"
}
if ! train_target; then
  tail -5 "$work/stream.log"
  left=$((start + t_target - $(date +%s)))
  if [ $left -gt 60 ]; then
    say "training failed; once more with AdamW alone, $left s"
    rm -rf "$work/target"
    train_target --plain || say "training failed again"
  fi
  [ -s "$work/target/model.safetensors" ] || { cat "$work/stream.log"; exit 1; }
fi
wait $stream || { cat "$work/stream.log"; exit 1; }
tail -3 "$work/stream.log"
keep_model
say "target saved; answers, judge beside"
python3 "$train/judge.py" --target "$work/target" --items "$items" --recall "${recall[@]}" \
  --books "$corpus/books.txt.xz" --out "$work/judge" > "$work/judge.log" 2>&1 &
judge=$!
python3 "$train/answers.py" --target "$work/target" --corpus-tokens "$work/rows" --out "$work/answers" \
  --until $((start + t_answers)) --scale $scale 2>&1 | tee "$work/answers.log"
say "heads"
draft_end=$(python3 -c "import time; print(time.time() + 60 * $minutes)")
python3 "$train/train_draft.py" --init "$models/tiny-draft" --target "$work/target" --rows "$work/answers" \
  --out "$work/draft" --until "$draft_end" "${long_steps[@]}" > "$work/draft.log" 2>&1 &
draft=$!
train_block "$work/target" "$minutes" --init "$models/tiny-block" --anchors 96 --hard 0.5 > /dev/null &
block=$!
failed=0
train_eagle3 "$work/target" "$minutes" --init "$models/tiny-eagle3" --no-before || failed=1
for process in $block $judge $draft; do
  wait "$process" || failed=1
done
tail -12 "$work/draft.log"
tail -40 "$work/block.log"
tail -60 "$work/judge.log"
keep_small
for file in judge/judge.json judge/golden.safetensors eagle3/model.safetensors block/model.safetensors \
  draft/model.safetensors; do
  [ -s "$work/$file" ] || { echo "missing: $file"; failed=1; }
done
ls -l "$out"
say "done, failed=$failed"
exit $failed
