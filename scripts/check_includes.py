#!/usr/bin/env python3
"""Checks that includes under src/ only point downwards.

Each folder of src/ is a module with a fixed list of modules it may include, and each heavy
dependency may be included in one place only. Prints one `file:line: problem` per violation and
exits with 1 if there is any.

    scripts/check_includes.py [SOURCE_ROOT]     default: the src/ beside this script's folder
"""

import re
import sys
from pathlib import Path

# What a module may include besides itself. Tests beside the code follow the same rule.
ALLOWED = {
    "base": set(),
    "observe": {"base"},
    "text": {"base"},
    "grammar": {"base"},
    "compute": {"base", "observe"},
    "kv": {"base", "observe", "compute"},
    "model": {"base", "observe", "compute", "grammar"},
}
ALLOWED["spec"] = {"base", "observe", "compute", "grammar", "kv", "model"}
ALLOWED["engine"] = ALLOWED["spec"] | {"text", "spec"}
ALLOWED["remote"] = ALLOWED["engine"] | {"engine"}
ALLOWED["serve"] = ALLOWED["remote"] | {"remote"}
ALLOWED["setup"] = ALLOWED["remote"] | {"remote"}
ALLOWED["apps"] = ALLOWED["serve"] | {"serve", "setup"}
ALLOWED["python"] = ALLOWED["setup"] | {"setup"}

# What a folder of compute/cuda may include there besides itself. The files beside the folders and
# testing/ may include all of them.
CUDA = "compute/cuda/"
CUDA_ALLOWED = {"device": set(), "runtime": {"device"}}
CUDA_ALLOWED["attention"] = {"device", "runtime"}
CUDA_ALLOWED["gemm"] = {"device", "runtime", "gemm/quantised"}
CUDA_ALLOWED["gemm/quantised"] = {"device", "runtime", "gemm"}  # a part of it
CUDA_ALLOWED["tokens"] = {"device", "runtime"}
CUDA_ALLOWED["experts"] = {"device", "runtime", "gemm", "gemm/quantised"}  # their weights are GEMM's
CUDA_ALLOWED["kv"] = {"device", "runtime", "tokens"}  # ChooseColumns ranks blocks, too

# (dependency, how its headers begin, path prefixes under src/ that may include them)
CONFINED = [
    (
        "CUDA",
        re.compile(r"cuda|cublas|cub/|curand|cusparse|thrust/|cooperative_groups|mma\.h"),
        ("compute/cuda/",),
    ),
    ("Highway", re.compile(r"hwy/"), ("compute/cpu/",)),
    ("MPI", re.compile(r"mpi\.h"), ("setup/ranks/",)),
    ("NCCL", re.compile(r"nccl"), ("compute/cuda/runtime/",)),
    ("gRPC", re.compile(r"grpc|google/protobuf/"), ("serve/grpc/",)),
    ("pybind11", re.compile(r"pybind11/"), ("python/",)),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc"}


def problem_in_cuda(path: str, header: str):
    """Why a file of compute/cuda may not include this one of compute/cuda, or None if it may."""
    folder = path.removeprefix(CUDA).rpartition("/")[0]
    target = header.removeprefix(CUDA).rpartition("/")[0]
    if folder == target or folder not in CUDA_ALLOWED or target in CUDA_ALLOWED[folder]:
        return None
    return f"{CUDA}{folder} may not include {CUDA}{target} ({header})"


def problem_with(path: str, bracket: str, header: str):
    """Why `path` (relative to the source root) may not include `header`, or None if it may."""
    for dependency, pattern, places in CONFINED:
        if pattern.match(header):
            if path.startswith(places):
                return None
            return f"only {' and '.join(places)} may include {dependency} (<{header}>)"

    module = path.split("/")[0]
    target = header.split("/")[0]
    if target in ALLOWED and "/" in header:
        if target != module and target not in ALLOWED[module]:
            return f"{module} may not include {target} ({header})"
        if path.startswith(CUDA) and header.startswith(CUDA):
            return problem_in_cuda(path, header)
        return None
    if bracket == '"':
        return f'"{header}" is not a path from the source root; other libraries take <>'
    return None


def check_file(root: Path, path: Path):
    relative = path.relative_to(root).as_posix()
    if relative.split("/")[0] not in ALLOWED:
        yield f"{path}:1: {relative} is in no known module"
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        problem = match and problem_with(relative, *match.groups())
        if problem:
            yield f"{path}:{number}: {problem}"


def check_tree(root: Path):
    files = sorted(p for p in root.rglob("*") if p.suffix in SOURCE_SUFFIXES)
    return len(files), [problem for path in files for problem in check_file(root, path)]


def main():
    default_root = Path(__file__).resolve().parent.parent / "src"
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else default_root
    num_files, problems = check_tree(root)
    if num_files == 0:
        problems = [f"{root}: no source files"]
    for problem in problems:
        print(problem)
    print(f"include directions: {num_files} files, {len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
