#!/usr/bin/env bash
# clang-format, include directions, file contents, words and clang-tidy, all of them errors.
#   scripts/lint.sh [FILE.cc ...]    clang-tidy only these files; default: all that are built
# Needs a configured build/ (for compile_commands.json).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=()
check() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}

sources() {
  find src tests fuzz \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0
}

format() {
  sources | xargs -0 --max-args=1 bash -c \
    'clang-format --dry-run -Werror "$0" 2>/dev/null || { echo "$0: run make format"; exit 1; }'
}

# Prints the files that are built, and leaves their commands for clang-tidy in build/lint: without the
# precompiled headers, which only the compiler that made them can read.
built_files() {
  python3 - <<'END'
import json
import os
import re

entries = json.load(open("build/compile_commands.json"))
entries = [e for e in entries if "cmake_pch" not in e["file"]]


def sources(entry):
    """A batch of sources (TALON_UNITY) as entries of their own."""
    if "/Unity/unity_" not in entry["file"]:
        return [entry]
    included = re.findall(r'^#include "(.*)"', open(entry["file"]).read(), re.MULTILINE)
    return [{**entry, "file": f, "command": entry["command"].replace(entry["file"], f)} for f in included]


entries = [source for entry in entries for source in sources(entry)]
for entry in entries:
    entry["command"] = re.sub(r"-Winvalid-pch|-include \S*cmake_pch\S*", "", entry["command"])
os.makedirs("build/lint", exist_ok=True)
json.dump(entries, open("build/lint/compile_commands.json", "w"))
files = {os.path.relpath(os.path.join(e["directory"], e["file"])) for e in entries}
print("\n".join(sorted(files)))
END
}

tidy() {
  local built
  built=$(built_files)
  { if (($#)); then printf '%s\n' "$@"; else echo "$built"; fi; } |
    xargs --max-args=1 --max-procs="$(nproc)" clang-tidy --quiet -p build/lint \
      2> >(grep -v ' warnings\? \(generated\|treated as\)' >&2)
}

check "clang-format" format
check "include directions" python3 scripts/check_includes.py
check "file contents" python3 scripts/check_files.py
check "words" python3 scripts/check_words.py --commits
check "clang-tidy" tidy "$@"

if ((${#failed[@]})); then
  echo "lint: failed: ${failed[*]}" >&2
  exit 1
fi
echo "lint: clean"
