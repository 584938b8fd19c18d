#!/usr/bin/env python3
"""Checks the words of the repository (CONTRIBUTING.md, "Words").

  - A comment does not open with a headless "Of", "Whose" or "That", nor does one beside a
    declaration (`int rows;  // of the pass`): "rows of the pass".
  - "is not a", not "is no" (but "there is no", "is no longer").
  - No people-words for machines (hope, believe, nobody, ...), in comments, names or prose.
  - One name for one computation: CeilDiv and RoundUp, not `(a + b - 1) / b`.
  - A folder has at most 40 files.
  - Commits after BASE_COMMIT (--commits): a subject of at most 72 characters without a period at
    its end, whose first word is not a past tense or a gerund.

Prints one `file:line: problem` for each problem and exits with 1 if there is any.

    scripts/check_words.py [--commits] [--root FOLDER]
        --commits   also checks commit subjects, where git knows BASE_COMMIT
        --root      the repository; default: the one of this script
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

BASE_COMMIT = "1750acf0f3c38bd36fee1d9d9fd5683d7ed45984"
MAX_FILES = 40
MAX_SUBJECT = 72
DATA = ("models/", "tests/data/", "fuzz/seeds/")  # not written here
# These name the words.
THIS = ("CONTRIBUTING.md", "scripts/check_words.py", "scripts/check_words_test.py")

HEADLESS = re.compile(r"(of|whose|that) ", re.IGNORECASE)
IS_NO = re.compile(
    r"(?<!\bthere )\b(is|are|was|were) no "
    r"(?!longer\b|more\b|less\b|fewer\b|later\b|earlier\b|better\b|worse\b|larger\b|smaller\b)",
    re.IGNORECASE,
)
# Whole words, or the parts of a name: kHopeless, NobodyWaits.
PEOPLE = re.compile(
    r"(hope|hopes|hoped|hopeful|hopeless|faith|mood|moods|anybody|nobody|somebody|whoever|whom"
    r"|believe|believes|believed|accident|accidents|accidental|mend|mends|mended|remedy|remedies"
    r"|wish|wishes|luck|narrator)",
    re.IGNORECASE,
)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
FIELD_WORDS = {"copy engine": "TMA", "copy engines": "TMA"}  # home-made -> the field's
OPEN_CODED_CEIL = re.compile(r"\+\s+([\w.:()>-]+|\(.*\)) - 1\)\s+/\s+\1(?!\w)")
CEIL_HOME = "src/base/math.h"

C_LIKE = {".h", ".cc", ".cu", ".cuh", ".js", ".proto"}
HASH = {".sh", ".cmake", ".yaml", ".yml", ".cfg", ".service", ".conf"}
C_TOKEN = re.compile(
    r'R"([^(\s]*)\((?:.|\n)*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'"
    r"|`(?:\\.|[^`\\])*`"
    r"|(?P<comment>//[^\n]*|/\*(?:.|\n)*?\*/)"
    r"|(?P<name>[A-Za-z_]\w*)"
)


class Text(NamedTuple):
    """A piece of a file: a line of a comment or of prose, or a name."""

    line: int
    text: str
    opens: bool = False  # the first line of a comment
    is_name: bool = False


def comment_lines(first_line, comment, opens=True):
    """The lines of a comment without its marks."""
    for offset, line in enumerate(comment.split("\n")):
        text = re.sub(r"^\s*(//+|/\*+|\*/?|#+!?)?\s?", "", line)
        text = re.sub(r"\s*\*/\s*$", "", text)
        yield Text(first_line + offset, text, opens and offset == 0)


def c_texts(source):
    last_comment = -1  # the line of the `//` before, if it stood alone on its line
    line, position = 1, 0
    for match in C_TOKEN.finditer(source):
        line += source.count("\n", position, match.start())
        position = match.start()
        if match.lastgroup == "name":
            yield Text(line, match.group(), is_name=True)
        elif match.lastgroup == "comment":
            before = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
            alone = not before.strip()
            yield from comment_lines(line, match.group(), not alone or last_comment != line - 1)
            last_comment = line if alone else -1


def python_texts(source):
    last_comment = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.NAME:
            yield Text(line, token.string, is_name=True)
        elif token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            yield from comment_lines(line, token.string, not alone or last_comment != line - 1)
            last_comment = line if alone else -1
    for node in ast.walk(ast.parse(source)):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        text = isinstance(node, documented) and ast.get_docstring(node, clean=False)
        if text:
            yield from comment_lines(node.body[0].lineno, text)


def hash_texts(source):
    last_comment = -1
    for number, line in enumerate(source.split("\n"), start=1):
        if re.match(r"\s*#", line):
            yield from comment_lines(number, line, last_comment != number - 1)
            last_comment = number


def prose_texts(source):
    fenced = False
    for number, line in enumerate(source.split("\n"), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield Text(number, re.sub(r"`[^`]*`", "", line))


def texts_of(name, source):
    suffix = Path(name).suffix
    if suffix in C_LIKE:
        return c_texts(source)
    if suffix == ".py":
        return python_texts(source)
    if suffix in HASH or Path(name).name in ("Makefile", "CMakeLists.txt"):
        return hash_texts(source)
    if suffix == ".md":
        return prose_texts(source)
    return ()


def people_words(text):
    words = WORD.findall(text.text)
    return [word for word in words if PEOPLE.fullmatch(word)]


def problems_of_text(text):
    for word in people_words(text):
        yield f'"{word}" in a name' if text.is_name else f'"{word}" is a word for people'
    if text.is_name:
        return
    if text.opens and HEADLESS.match(text.text):
        yield f'a comment opens with a headless "{text.text.split()[0]}"'
    for match in IS_NO.finditer(text.text):
        yield f'"{match.group().strip()}": write "{match.group(1)} not a"'
    for home_made, word in FIELD_WORDS.items():
        if re.search(rf"\b{home_made}\b", text.text, re.IGNORECASE):
            yield f'"{home_made}": write "{word}"'


def open_coded(name, source):
    """Computations of C++ that have a name already."""
    if Path(name).suffix not in C_LIKE or name == CEIL_HOME:
        return
    for match in OPEN_CODED_CEIL.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        yield f"{name}:{line}: write CeilDiv or RoundUp ({CEIL_HOME})"


def check_file(name, source):
    """The problems of a file, one `file:line: problem` each."""
    yield from open_coded(name, source)
    seen = set()
    for text in texts_of(name, source):
        for problem in problems_of_text(text):
            message = f"{name}:{text.line}: {problem}"
            if message not in seen:
                seen.add(message)
                yield message


def folder_of(name):
    """The folder a file is counted for: src/kv, tests, or . for the root."""
    parts = name.split("/")
    if len(parts) == 1:
        return "."
    return "/".join(parts[: 2 if parts[0] == "src" and len(parts) > 2 else 1])


def check_folders(names):
    """(folder, problem) of each folder with too many files."""
    sizes = Counter(str(Path(name).parent) for name in names)
    for folder, size in sorted(sizes.items()):
        if size > MAX_FILES:
            yield folder_of(folder + "/x"), f"{folder}: {size} files, limit {MAX_FILES}"


# Verbs that only look like a past tense or a gerund.
VERBS = {"bring", "embed", "exceed", "feed", "need", "proceed", "ring", "seed", "shed", "speed"}

# Commits that landed before their subject was checked; a published history is not rewritten.
EXCUSED_COMMITS = {
    "40ff576c": "75 characters",
    "b69ac99e": "73 characters",
}


def problem_of_subject(subject):
    """Why a commit may not have this subject, or None."""
    first = re.match(r"\w*", subject).group().lower()
    if len(subject) > MAX_SUBJECT:
        return f"{len(subject)} characters, limit {MAX_SUBJECT}"
    if subject.endswith("."):
        return "a period at its end"
    if first not in VERBS and re.search(r"(ed|ing)$", first):
        return f'"{first}" is not an imperative'
    return None


def problem_of_commit(commit, subject):
    """Why a commit may not have this subject, or None; `commit` is its whole hash."""
    return None if commit[:8] in EXCUSED_COMMITS else problem_of_subject(subject)


def check_commits(root):
    command = ["git", "log", "--no-merges", "--format=%H%x09%s", f"{BASE_COMMIT}..HEAD"]
    log = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if log.returncode:
        print("commit subjects: not checked, git does not know the base commit")
        return
    for line in log.stdout.splitlines():
        commit, subject = line.split("\t", 1)
        problem = problem_of_commit(commit, subject)
        if problem:
            yield f"commit {commit[:8]}: {problem}: {subject}"


def repository_files(root):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=root, capture_output=True)
    if listing.returncode:  # an archive without .git
        names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
        names = [name for name in names if not name.startswith(("build", "."))]
    else:
        names = listing.stdout.decode().split("\0")
    return [name for name in sorted(names) if name and (root / name).is_file()]


def check_tree(root):
    """{folder: [problem]} of a repository."""
    names = [name for name in repository_files(root) if not name.startswith(DATA)]
    problems = {}
    for folder, problem in check_folders(names):
        problems.setdefault(folder, []).append(problem)
    for name in names:
        if name in THIS:
            continue
        try:
            source = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for problem in check_file(name, source):
            problems.setdefault(folder_of(name), []).append(problem)
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--commits", action="store_true", help="also check commit subjects")
    default_root = Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=Path, default=default_root, help="the repository")
    options = parser.parse_args()

    problems = list(check_commits(options.root)) if options.commits else []
    for _, found in sorted(check_tree(options.root).items()):
        problems += found
    for problem in problems:
        print(problem)
    print(f"words: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
