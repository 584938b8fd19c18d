#!/usr/bin/env bash
# Everything that one run on a GPU machine should tell: builds with the CUDA backend, runs the op
# tests, the other tests on the CPU and on the GPU, the pass fuzzer, soaks of the server where it is
# built (models/tiny, and random weights in layers of the 8B shape, 14 GB on disk for a while, where
# PyTorch and safetensors are found), and the benchmarks (passes of a large shape, where a step of
# models/tiny with EAGLE-3 spends its time), and prints a table. Goes on after a failure; exits with 1
# if there was any.
#   scripts/gpu_check.sh [--sanitize] [--skip-bench] [--arch ARCH] [--json FILE]
#     --sanitize   also runs the op tests of the CUDA backend under compute-sanitizer
#     --skip-bench leaves the benchmarks out
#     --arch       what to compile for (90a-real: Hopper only, which is quick)
#     --json       where the figures of the large shape go (build-cuda/gpu_check/bench.json)
# Logs are in build-cuda/gpu_check/. The machine needs a C++ compiler, CUDA, CMake, Ninja, Python,
# nlohmann-json, yaml-cpp, CLI11, spdlog with fmt, and GoogleTest; nothing is installed
# (scripts/gpu_packages.sh brings what else the full product needs).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build-cuda
logs=$build/gpu_check
arch=90a-real
json=$logs/bench.json
sanitize=0
bench=1
step_limit=480  # seconds
shards=16       # of the op tests under the sanitizer

usage() {
  echo "usage: scripts/gpu_check.sh [--sanitize] [--skip-bench] [--arch ARCH] [--json FILE]" >&2
  exit 2
}

while (($#)); do
  case "$1" in
    --sanitize) sanitize=1 ;;
    --skip-bench) bench=0 ;;
    --arch | --json)
      (($# > 1)) || usage
      [[ $1 == --arch ]] && arch=$2 || json=$2
      shift
      ;;
    *) usage ;;
  esac
  shift
done

mkdir -p "$logs"
table=()
failed=0

# step NAME COMMAND...: runs it with its output in a log, of which a failure shows the end.
step() {
  local name=$1 start=$SECONDS result=ok
  shift
  echo "== $name"
  timeout --kill-after=10 "$step_limit" "$@" >"$logs/$name.log" 2>&1
  local code=$?
  if ((code)); then
    result="FAILED ($code)"
    ((code == 124)) && result="FAILED (over $step_limit s)"
    failed=1
    tail -n 40 "$logs/$name.log"
  fi
  table+=("$(printf '%-12s  %-20s  %7d' "$name" "$result" $((SECONDS - start)))")
}

# The op tests of the CUDA backend, by their names, under compute-sanitizer: in shards that run at
# once, because it makes kernels up to a hundred times slower.
sanitizer() {
  local tool=$1 test=$build/src/compute/compute_test filter='--gtest_filter=*cuda*'
  local program shard log pids=() bad=0
  "$test" "$filter" --gtest_list_tests | grep -q . || { echo "no op tests of CUDA" && return 1; }
  program=$(PATH="$PATH:/usr/local/cuda/bin" command -v compute-sanitizer) ||
    { echo "compute-sanitizer was not found" && return 1; }
  for ((shard = 0; shard < shards; ++shard)); do
    # A test asks for more memory than there is; that error of the API is not a finding.
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard "$program" --tool "$tool" \
      --report-api-errors no --error-exitcode 9 "$test" "$filter" >"$logs/$tool.$shard.log" 2>&1 &
    pids+=($!)
  done
  for shard in "${!pids[@]}"; do
    log=$logs/$tool.$shard.log
    wait "${pids[shard]}" ||
      { bad=1 && echo "-- shard $shard" && grep -A4 'Error\|Race reported' "$log" | tail -n 20; }
  done
  grep -h 'SUMMARY\|PASSED\|Race reported' "$logs/$tool".*.log
  return "$bad"
}
export -f sanitizer
export build logs shards

if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
fi
step configure cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTALON_WITH_CUDA=ON \
  -DCMAKE_CUDA_ARCHITECTURES="$arch"
grep 'Built without' "$logs/configure.log"
step build cmake --build "$build" --parallel "$(nproc)" -- -k 0
step ops "$build/src/compute/compute_test" --gtest_brief=1
step tests ctest --test-dir "$build" --output-on-failure --parallel "$(nproc)" \
  --label-exclude slow --exclude-regex '^(compute|pass_fuzz)_test$' --no-tests=error
step fuzz env TALON_FUZZ_CASES=500 "$build/tests/pass_fuzz_test" --gtest_brief=1
if "$build/talon" serve --help | grep -- --port >/dev/null; then
  soak=(python3 scripts/soak.py "$build/talon" --clients 1,32,64,128 --seconds 10)
  step soak "${soak[@]}" -- --device cuda --max-sequences 64
  if python3 -c 'import safetensors, torch' 2>/dev/null; then
    model=$build/llama-8b
    step checkpoint python3 scripts/random_llama.py "$model" "$model-eagle3" --tokenizer models/tiny
    step soak_8b "${soak[@]}" --most-compared 16 -- --model "$model" --device cuda \
      --max-sequences 64 --kv-tokens 300000 --speculative-algorithm EAGLE3,SUFFIX \
      --speculative-draft-model-path "$model-eagle3"
    rm -r "$model" "$model-eagle3"
  else
    echo "no soak of 8B size: PyTorch or safetensors is missing"
  fi
fi
if ((sanitize)); then
  step memcheck bash -c 'sanitizer memcheck'
  step racecheck bash -c 'sanitizer racecheck'
  step fuzz_memcheck env TALON_FUZZ_CASES=3 compute-sanitizer --tool memcheck --error-exitcode 9 \
    "$build/tests/pass_fuzz_test" --gtest_brief=1
fi
if ((bench)); then
  eagle3=(--device cuda --model models/tiny --prompts models/tiny/prompts_tokens.jsonl
    --speculative-draft-model-path models/tiny-eagle3 --speculative-adaptive=false
    --modes plain,eagle3 --max-tokens 128)
  step bench "$build/talon" bench gpu --device cuda --nodes 1,8,16,64,128 --json "$json"
  step steps "$build/talon" bench decode "${eagle3[@]}" --repeats 3
  for name in bench steps; do
    echo
    echo "-- $name"
    cat "$logs/$name.log"
  done
fi

echo
printf '%-12s  %-20s  %7s\n' step result seconds
printf '%s\n' "${table[@]}"
echo "all: $SECONDS s"
exit "$failed"
