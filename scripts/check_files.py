#!/usr/bin/env python3
"""Checks every text file of the repository: no path or host of one machine, no trailing
blanks, no source file over 700 lines; and that a clone stays small. Prints `file:line: problem`
and exits 1 on any."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_SOURCE_LINES = 700
MAX_REPOSITORY_BYTES = 46_000_000  # as an archive: a header and whole blocks for each file
TAR_BLOCK = 512
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".py", ".sh"}
DATA = ("models/", "tests/data/", "fuzz/seeds/", "LICENSE")  # not written here

# The brackets keep the patterns from matching this file.
FORBIDDEN = [
    (re.compile(r"(?<![\w.~-])/([w]ork|[r]oot|[h]ome|[U]sers)/"), "path of one machine"),
    (re.compile(r"\b([r]egistry|[m]irror|[a]rtifactory|[n]exus)\.[\w-]+\.\w+"), "package host"),
    (re.compile(r"\b([1]0|[1]92\.168|[1]72\.(1[6-9]|2\d|3[01]))(\.\d+){2,3}\b"), "private address"),
    (re.compile(r"[ \t]+$"), "trailing blanks"),
]


def repository_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    return [name for name in sorted(listing.split("\0")) if (ROOT / name).is_file()]


def check_file(name: str):
    try:
        lines = (ROOT / name).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        return
    if Path(name).suffix in SOURCE_SUFFIXES and len(lines) > MAX_SOURCE_LINES:
        yield f"{name}:{len(lines)}: {len(lines)} lines, limit {MAX_SOURCE_LINES}"
    for number, line in enumerate(lines, start=1):
        for pattern, what in FORBIDDEN:
            if pattern.search(line):
                yield f"{name}:{number}: {what}"


def archived_bytes(path: Path):
    return TAR_BLOCK * (1 + -(-path.lstat().st_size // TAR_BLOCK))


def main():
    names = repository_files()
    written_here = [name for name in names if not name.startswith(DATA)]
    problems = [problem for name in written_here for problem in check_file(name)]
    total = sum(archived_bytes(ROOT / name) for name in names)
    if total > MAX_REPOSITORY_BYTES:
        problems.append(f"an archive of all files: {total} bytes, limit {MAX_REPOSITORY_BYTES}")
    for problem in problems:
        print(problem)
    print(f"file contents: {len(names)} files, {total / 1e6:.1f} MB, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
