#!/usr/bin/env python3
"""Breaks the code in random places and sees whether a test notices.

  scripts/mutate.py --count 200 --seed 7               a share of survivors for each module
  scripts/mutate.py --modules kv spec --count 40       some modules only
  scripts/mutate.py --count 200 --out mutants.json     all mutants, as JSON

A mutant is one operator, constant or condition changed in one source file. It is built and the
tests of its module are run, in a copy of the commit at HEAD below build-mutants/: the tree itself is
not touched. Modules take turns. A mutant that does not compile is drawn again; one that no test
fails has survived. Some survivors are equivalent to the original, so a share of zero cannot be
reached. Random tests run the fewer rounds that they run on a GPU.
"""

import argparse
import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build-mutants"

# Tests of engine_test that take half of its time and do in full length what others do briefly.
LONG = "Eagle3.PauseLonger*:Eagle3.AWindowKeeps*:Merged.*:PrefixIndex.*:RunAhead.P*:RunAhead.Off*"

# Folders below src/ and the test programs that must notice: (target, gtest filter).
MODULES = {
    "base": [("base_test", "*")],
    "observe": [("observe_test", "*")],
    "grammar": [("grammar_test", "*")],
    "kv": [("kv_test", "*")],
    "spec": [("spec_test", "*"), ("specpv_test", "*")],
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
    return [path for path in sorted((tree / "src" / module).rglob("*"))
            if path.suffix in (".cc", ".h") and not re.search(r"test", path.name)]


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
        self.tree.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True,
                                 check=True)
        subprocess.run(["tar", "-x", "-C", str(self.tree)], input=archive.stdout, check=True)
        code, text = run(["cmake", "-S", str(self.tree), "-B", str(self.build), "-G", "Ninja",
                          "-DCMAKE_BUILD_TYPE=Release", "-DTALON_UNITY=OFF"])
        if code != 0:
            sys.exit(text)
        targets = sorted({target for module in self.modules for target, _ in MODULES[module]})
        code, text = self.compile(targets)
        if code != 0:
            sys.exit(text)
        for module in self.modules:
            begin = time.monotonic()
            failed = self.failing_test(module, None)
            if failed:
                sys.exit(f"{module}: {failed} without any mutant")
            self.limits[module] = 20 + 4 * (time.monotonic() - begin)

    def compile(self, targets):
        return run(["ninja", "-C", str(self.build), f"-j{self.jobs}", *targets])

    def failing_test(self, module, limit):
        """The first test that fails, or runs out of time; None: all pass."""
        for target, only in MODULES[module]:
            program = next(self.build.rglob(target))
            code, text = run(["prlimit", f"--as={MEMORY_BYTES}", str(program), "--gtest_fail_fast",
                              "--gtest_brief=1", f"--gtest_filter={only}"],
                             timeout=limit, cwd=self.tree)
            if code != 0:
                named = re.search(r"\[  FAILED  \] (\S+)", text)
                return named[1] if named else f"{target} {'crashed' if code else 'hung'}"
        return None

    def draw(self):
        """One mutant that compiles, and what noticed it."""
        module = next(self.turns)
        while True:
            path, (number, line) = self.random.choice(self.pool[module])
            before = path.read_text()
            lines = before.splitlines(keepends=True)
            old = lines[number]
            lines[number] = line + "\n"
            path.write_text("".join(lines))
            try:
                code, _ = self.compile([target for target, _ in MODULES[module]])
                if code == 0:
                    return {"module": module, "place": f"{path.relative_to(self.tree)}:{number + 1}",
                            "was": old.strip(), "is": line.strip(),
                            "noticed_by": self.failing_test(module, self.limits[module])}
            finally:
                path.write_text(before)


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
    args = parser.parse_args()
    mutants = []
    try:
        source = Mutants(args.modules, args.seed, args.jobs)
        ways = sum(map(len, source.pool.values()))
        print(f"{ways} ways to break it; {args.count} are drawn", flush=True)
        while len(mutants) < args.count:
            mutant = source.draw()
            mutants.append(mutant)
            if args.out:
                args.out.write_text(json.dumps(mutants, indent=1))
            if mutant["noticed_by"]:
                print(f"{len(mutants):>4} {mutant['place']}: {mutant['noticed_by']}", flush=True)
            else:
                print(f"{len(mutants):>4} {mutant['place']}: SURVIVED\n     was {mutant['was']}\n"
                      f"     is  {mutant['is']}", flush=True)
    except KeyboardInterrupt:
        pass
    report(mutants)


if __name__ == "__main__":
    main()
