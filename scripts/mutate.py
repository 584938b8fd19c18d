#!/usr/bin/env python3
"""Breaks the code in random places and sees whether a test notices.

  scripts/mutate.py --count 200 --seed 7               a share of survivors for each module
  scripts/mutate.py --modules kv spec --count 40       some modules only
  scripts/mutate.py --count 200 --out mutants.json     all mutants, as JSON
  scripts/mutate.py --again mutants.json               its survivors once more, after new tests

A mutant is one operator, constant or condition changed in one source file. It is built and the
tests of its module are run until one fails, those of files that include its header first, in a copy
of the commit at HEAD below build-mutants/: the tree itself is not touched. Modules take turns. A
mutant that does not compile is drawn again; one that no test fails has survived. Some survivors are
equivalent to the original, so a share of zero cannot be reached. Random tests run the fewer rounds
that they run on a GPU.
"""

import argparse
import io
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build-mutants"

# Tests of engine_test that take half of its time and do in full length what others do briefly.
LONG = "Eagle3.PauseLonger*:Eagle3.AWindowKeeps*:Merged.*:PrefixIndex.*:RunAhead.P*:RunAhead.Off*"

# Tests of engine_test that run drafters alone, on models that spec_test does not have.
DRAFTERS = "Eagle3Alone*:*HeadsAlone*:*DraftersTest*:Standalone*"

# Folders below src/, less those that are listed themselves, and the test programs that must notice:
# (target, gtest filter).
MODULES = {
    "base": [("base_test", "*")],
    "observe": [("observe_test", "*")],
    "grammar": [("grammar_test", "*")],
    "kv": [("kv_test", "*")],
    "spec": [("spec_test", "*"), ("specpv_test", "*")],
    "spec/drafters": [("spec_test", "*"), ("engine_test", DRAFTERS)],
    "model": [("model_test", "*")],
    "text": [("text_test", "*")],
    "engine": [("session_test", "*"), ("engine_test", "-" + LONG)],
    "remote": [("remote_test", "*")],
    "serve/grpc": [("grpc_test", "*"), ("target_service_test", "*")],
    "serve/http/api": [("serve_api_test", "*")],
    "serve/http/guard": [("serve_api_test", "*"), ("serve_http_test", "*")],
    "setup": [("setup_test", "*")],
}

MEMORY_BYTES = 8 << 30  # a loop that does not end must not take the machine's

# The rounds of random tests are fewer where a device is named.
ENVIRONMENT = {**os.environ, "TALON_TEST_DEVICE": "cpu"}

# What a token becomes. Operators need spaces around them, which clang-format guarantees.
SWAPS = [
    (r" < ", [" <= ", " >= "]), (r" > ", [" >= ", " <= "]),
    (r" <= ", [" < "]), (r" >= ", [" > "]),
    (r" == ", [" != "]), (r" != ", [" == "]),
    (r" \+ ", [" - "]), (r" - ", [" + "]), (r" \* ", [" + "]), (r" / ", [" * "]), (r" % ", [" / "]),
    (r" && ", [" || "]), (r" \|\| ", [" && "]),
    (r" \+= ", [" -= "]), (r" -= ", [" += "]), (r"\+\+(?=\w)", ["--"]),
    (r"\btrue\b", ["false"]), (r"\bfalse\b", ["true"]),
    (r"(?<=[ (\[])!(?=[a-z])", [""]),
    (r"\b(?<![.\w])0\b(?![.x])", ["1"]), (r"\b(?<![.\w])1\b(?!\.)", ["0", "2"]),
    (r"\bstd::min\b", ["std::max"]), (r"\bstd::max\b", ["std::min"]),
    (r"\bcontinue;", ["break;"]), (r"\bbreak;", ["continue;"]),
]


def run(command, timeout=None, cwd=None):
    """The exit code and output; None: it ran out of time."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd,
                              timeout=timeout, check=False, env=ENVIRONMENT)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return None, ""


def is_code(line):
    """Comments, includes, log lines and invariants are not worth a mutant."""
    text = line.strip()
    skipped = ("//", "#", "static_assert", "TALON_CHECK", "TALON_DCHECK", "Log", "}  //", "using ",
               "template", "case '")
    return bool(text) and not text.startswith(skipped)


def sites(path):
    """All mutants of a file: (line number, new line)."""
    found = []
    for number, line in enumerate(path.read_text().splitlines()):
        if not is_code(line):
            continue
        code = re.sub(r'"(\\.|[^"\\])*"', lambda m: '"' + "x" * (len(m[0]) - 2) + '"', line)
        code = code.split("//")[0]
        for pattern, replacements in SWAPS:
            for match in re.finditer(pattern, code):
                for text in replacements:
                    found.append((number, line[:match.start()] + text + line[match.end():]))
    return found


def sources(tree, module):
    inner = [tree / "src" / name for name in MODULES if name.startswith(module + "/")]
    return [path for path in sorted((tree / "src" / module).rglob("*"))
            if path.suffix in (".cc", ".h") and not re.search(r"test", path.name)
            and not any(path.is_relative_to(folder) for folder in inner)]


def near(path, tree, module):
    """A gtest filter: the suites in test files that are named like the source or include its header."""
    stem = re.sub(r"\.\w+$", "", str(path.relative_to(tree / "src")))
    suites = set()
    for test in (tree / "src" / module).rglob("*_test.cc"):
        text = test.read_text()
        if test.name == f"{path.stem}_test.cc" or f'"{stem}.h"' in text:
            suites |= set(re.findall(r"(?m)^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),", text))
    return ":".join(f"*{name}.*:*{name}/*" for name in sorted(suites))


class Mutants:
    def __init__(self, modules, seed, jobs):
        self.random = random.Random(seed)
        self.jobs = jobs
        self.tree = PLACE / "tree"
        self.build = PLACE / "build"
        self.modules = modules
        self.turns = itertools.cycle(modules)
        self.limits = {}
        self.prepare()
        self.pool = {module: [(path, site) for path in sources(self.tree, module)
                              for site in sites(path)] for module in modules}

    def prepare(self):
        """The commit at HEAD, built, its tests passing; how long they take bounds a mutant's."""
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True,
                                 check=True)
        self.unpack(archive.stdout)
        linker = ["-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld"] if shutil.which("ld.lld") else []
        code, text = run(["cmake", "-S", str(self.tree), "-B", str(self.build), "-G", "Ninja",
                          "-DCMAKE_BUILD_TYPE=Release", "-DTALON_UNITY=OFF", *linker])
        if code != 0:
            sys.exit(text)
        targets = sorted({target for module in self.modules for target, _ in MODULES[module]})
        code, text = self.compile(targets)
        if code != 0:
            sys.exit(text)
        for module in self.modules:
            begin = time.monotonic()
            failed = self.failing_test(module, "*", None)
            if failed:
                sys.exit(f"{module}: {failed} without any mutant")
            self.limits[module] = 20 + 4 * (time.monotonic() - begin)

    def compile(self, targets):
        return run(["ninja", "-C", str(self.build), f"-j{self.jobs}", *targets])

    def unpack(self, archive):
        """Writes only what differs: the rest is not compiled again. Files that are gone are removed."""
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            files = {self.tree / entry.name: packed.extractfile(entry).read()
                     for entry in packed if entry.isfile()}
        for path in list(self.tree.rglob("*")):
            if path.is_file() and path not in files:
                path.unlink()
        for path, content in files.items():
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def failing_test(self, module, only, limit):
        """The first test that fails, or runs out of time; None: all pass."""
        for target, chosen in MODULES[module]:
            if chosen.startswith("-"):
                chosen = only + chosen
            elif only != "*":
                if chosen != "*":
                    continue
                chosen = only
            failed = self.failing_of(target, chosen, limit)
            if failed:
                return failed
        return None

    def failing_of(self, target, only, limit):
        """Runs one program as several shards, side by side."""
        program = next(path for path in self.build.rglob(target) if path.is_file())
        command = ["prlimit", f"--as={MEMORY_BYTES}", str(program), "--gtest_fail_fast",
                   "--gtest_brief=1", f"--gtest_filter={only}"]
        shards = []
        for index in range(self.jobs):
            folder = PLACE / f"shard{index}"  # tests of one program write files of the same name
            folder.mkdir(exist_ok=True)
            log = open(folder / "log", "wb+")  # noqa: SIM115
            shards.append((log, subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self.tree,
                env={**ENVIRONMENT, "TEST_TMPDIR": str(folder),
                     "GTEST_TOTAL_SHARDS": str(self.jobs), "GTEST_SHARD_INDEX": str(index)})))
        end = time.monotonic() + limit if limit else None
        try:
            return self.first_failure(target, shards, end)
        finally:
            for log, process in shards:
                process.kill()
                process.wait()
                log.close()

    def first_failure(self, target, shards, end):
        while True:
            codes = [process.poll() for _, process in shards]
            for code, (log, _) in zip(codes, shards):
                if code:
                    log.seek(0)
                    named = re.search(r"\[  FAILED  \] (\S+)", log.read().decode(errors="replace"))
                    return named[1] if named else f"{target} crashed"
            if all(code == 0 for code in codes):
                return None
            if end and time.monotonic() > end:
                return f"{target} hung"
            time.sleep(0.01)

    def draw(self):
        """One mutant that compiles, and what noticed it."""
        module = next(self.turns)
        while True:
            path, (number, line) = self.random.choice(self.pool[module])
            mutant = self.judge(module, path, number, line)
            if mutant:
                return mutant

    def repeat(self, mutant):
        """A survivor of an earlier run; None: the line is gone."""
        name, number = mutant["place"].split(":")
        path = self.tree / name
        lines = path.read_text().splitlines() if path.is_file() else []
        same = [i for i, line in enumerate(lines) if line.strip() == mutant["was"]]
        if not same:
            return None
        nearest = min(same, key=lambda i: abs(i + 1 - int(number)))
        return self.judge(mutant["module"], path, nearest, mutant["is"])

    def judge(self, module, path, number, line):
        """What notices the mutant; None: it does not compile."""
        before = path.read_text()
        lines = before.splitlines(keepends=True)
        old = lines[number]
        lines[number] = line + "\n"
        path.write_text("".join(lines))
        try:
            code, _ = self.compile([target for target, _ in MODULES[module]])
            if code != 0:
                return None
            limit = self.limits[module]
            first = near(path, self.tree, module)
            failed = (self.failing_test(module, first, limit) if first else None) \
                or self.failing_test(module, "*", limit)
            return {"module": module, "place": f"{path.relative_to(self.tree)}:{number + 1}",
                    "was": old.strip(), "is": line.strip(), "noticed_by": failed}
        finally:
            path.write_text(before)


def show(number, mutant):
    if mutant["noticed_by"]:
        print(f"{number:>4} {mutant['place']}: {mutant['noticed_by']}", flush=True)
    else:
        print(f"{number:>4} {mutant['place']}: SURVIVED\n     was {mutant['was']}\n"
              f"     is  {mutant['is']}", flush=True)


def report(mutants):
    print(f"\n{'module':<16} {'mutants':>7} {'survived':>8}  share")
    for module in [*MODULES, "all"]:
        mine = [m for m in mutants if module in (m["module"], "all")]
        survived = sum(1 for m in mine if not m["noticed_by"])
        if mine:
            print(f"{module:<16} {len(mine):>7} {survived:>8}  {survived / len(mine):5.0%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modules", nargs="+", choices=list(MODULES), default=list(MODULES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--again", type=Path)
    args = parser.parse_args()
    survivors = []
    if args.again:
        survivors = [m for m in json.loads(args.again.read_text()) if not m["noticed_by"]]
        if not survivors:
            sys.exit(f"{args.again}: no survivors")
        args.modules = [name for name in MODULES if name in {m["module"] for m in survivors}]
    mutants = []
    try:
        source = Mutants(args.modules, args.seed, args.jobs)
        ways = sum(map(len, source.pool.values()))
        print(f"{ways} ways to break it; {len(survivors) or args.count} are tried", flush=True)
        drawn = map(source.repeat, survivors) if survivors else \
            (source.draw() for _ in range(args.count))
        for mutant in filter(None, drawn):
            mutants.append(mutant)
            if args.out:
                args.out.write_text(json.dumps(mutants, indent=1))
            show(len(mutants), mutant)
    except KeyboardInterrupt:
        pass
    report(mutants)


if __name__ == "__main__":
    main()
