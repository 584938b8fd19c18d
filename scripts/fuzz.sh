#!/usr/bin/env bash
# Runs every libFuzzer target that was built, SECONDS_EACH seconds each, and stops at a finding.
#   scripts/fuzz.sh SECONDS_EACH [TARGET ...]
# Seeds come from fuzz/seeds/TARGET, new inputs go to build-fuzz/corpus/TARGET, findings to
# build-fuzz/findings.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:?usage: scripts/fuzz.sh SECONDS_EACH [TARGET ...]}
shift
targets=("$@")
if ((${#targets[@]} == 0)); then
  mapfile -t targets < <(find build-fuzz/fuzz -maxdepth 1 -type f -executable -printf '%f\n' | sort)
fi
((${#targets[@]})) || { echo "fuzz: no targets in build-fuzz/fuzz" >&2; exit 1; }

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
mkdir -p build-fuzz/findings
for target in "${targets[@]}"; do
  corpus=build-fuzz/corpus/$target
  log=build-fuzz/$target.log
  mkdir -p "$corpus"
  folders=("$corpus")
  [[ -d fuzz/seeds/$target ]] && folders+=("fuzz/seeds/$target")
  echo "== $target, $seconds s"
  "build-fuzz/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -print_funcs=0 -print_final_stats=1 -artifact_prefix=build-fuzz/findings/ \
    "${folders[@]}" >"$log" 2>&1 ||
    { tail -n 60 "$log"; echo "fuzz: $target failed, see $log" >&2; exit 1; }
  grep -E '^(Done|stat::peak_rss_mb)' "$log"
done
echo "fuzz: ${#targets[@]} targets, no finding"
