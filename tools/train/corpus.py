#!/usr/bin/env python3
"""Plain text of free books and documentation out of git repositories, for continued training.

usage: corpus.py --books REPO.git... --docs REPO.git --exclude PROMPTS.jsonl... --out DIR

Writes DIR/books.txt.xz and DIR/docs.txt.xz, documents between lines of <|end_of_text|>. Books are
Standard Ebooks repositories (public domain), documentation is MDN's (CC-BY-SA 2.5). A paragraph
that shares 47 or more characters with a text of --exclude is left out; a page whose title does,
whole.
"""

import argparse
import html
import json
import lzma
import random
import re
import subprocess
from pathlib import Path

PIECE, STRIDE = 40, 8
SEPARATOR = "\n<|end_of_text|>\n"
BOOK_PART = re.compile(r"src/epub/text/(chapter|part|book|story|[a-z0-9-]+)[^/]*\.xhtml$")
NOT_TEXT = re.compile(r"(colophon|imprint|uncopyright|titlepage|halftitle|loi|toc|endnotes|dedication"
                      r"|epigraph)")


def git(repo: str, *arguments: str) -> bytes:
    return subprocess.run(["git", "--git-dir", repo, *arguments], check=True,
                          stdout=subprocess.PIPE).stdout


def files(repo: str, names: list[str]):
    """The contents of many files of HEAD, by one git process."""
    process = subprocess.Popen(["git", "--git-dir", repo, "cat-file", "--batch"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for name in names:
        process.stdin.write(f"HEAD:{name}\n".encode())
        process.stdin.flush()
        header = process.stdout.readline().split()
        if len(header) != 3:
            continue
        content = process.stdout.read(int(header[2]))
        process.stdout.read(1)
        yield content.decode("utf-8", errors="ignore")
    process.stdin.close()
    process.wait()


def strings_of(value) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in strings_of(part)]


def pieces_of(paths: list[str]) -> set[str]:
    pieces: set[str] = set()
    for path in paths:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            for text in strings_of(json.loads(line)):
                pieces.update(text[i:i + PIECE] for i in range(len(text) - PIECE + 1))
    return pieces


def is_clean(text: str, pieces: set[str]) -> bool:
    return not any(text[i:i + PIECE] in pieces for i in range(0, len(text) - PIECE + 1, STRIDE))


def clean(document: str, pieces: set[str]) -> str:
    paragraphs = document.split("\n\n")
    if not is_clean(paragraphs[0], pieces):
        return ""
    return "\n\n".join(p for p in paragraphs if is_clean(p, pieces))


def book_text(page: str) -> str:
    page = re.sub(r"(?s)^.*?<body[^>]*>", "", page)
    page = re.sub(r"\s+", " ", page)
    page = re.sub(r"</?(p|h\d|section|blockquote|li|tr|div|header)[^>]*>", "\n\n", page)
    page = re.sub(r"<br ?/>", "\n", page)
    page = html.unescape(re.sub(r"<[^>]+>", "", page))
    page = page.replace("\u2060", "").replace("\u00a0", " ").replace("\u200a", "")
    for fancy, plain in (("\u201c", '"'), ("\u201d", '"'), ("\u2018", "'"), ("\u2019", "'"),
                         ("\u2014", "--"), ("\u2026", "...")):
        page = page.replace(fancy, plain)
    return re.sub(r"\n\n\s+", "\n\n", re.sub(r"[ \t]+\n", "\n", page)).strip()


def books(repos: list[str]) -> list[str]:
    documents = []
    for repo in repos:
        names = git(repo, "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()
        names = [n for n in names if BOOK_PART.search(n) and not NOT_TEXT.search(n)]
        names.sort(key=lambda n: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", n)])
        documents.append("\n\n".join(book_text(page) for page in files(repo, names)))
        print(repo, len(names), "files", len(documents[-1]) // 1000, "KB", flush=True)
    return documents


def docs(repo: str, limit: int) -> list[str]:
    names = git(repo, "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()
    names = [n for n in names if n.startswith("files/en-us/") and n.endswith(".md")]
    random.Random(0).shuffle(names)
    documents, size = [], 0
    for page in files(repo, names):
        if len(page) > 60000:
            continue
        documents.append(page.strip())
        size += len(page)
        if size > limit:
            break
    return documents


def write(path: Path, documents: list[str], pieces: set[str]) -> None:
    kept = [text for text in (clean(document, pieces) for document in documents) if text]
    data = SEPARATOR.join(kept).encode()
    path.write_bytes(lzma.compress(data, preset=6))
    print(path, len(kept), "documents", len(data) / 1e6, "MB,", path.stat().st_size / 1e6,
          "MB compressed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--books", nargs="+", required=True, help="git directories")
    parser.add_argument("--docs", required=True, help="git directory of MDN's content")
    parser.add_argument("--docs-mb", type=float, default=14)
    parser.add_argument("--exclude", nargs="+", required=True, help=".jsonl files")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    pieces = pieces_of(args.exclude)
    write(args.out / "books.txt.xz", books(args.books), pieces)
    write(args.out / "docs.txt.xz", docs(args.docs, int(args.docs_mb * 1e6)), pieces)


if __name__ == "__main__":
    main()
