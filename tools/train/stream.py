#!/usr/bin/env python3
"""Writes training rows on all cores while the GPU trains: shards of DIR, first come first trained.

usage: stream.py --tokenizer tokenizer.json --corpus DIR --held-out tasks.jsonl --out DIR

A shard is NAME.npz: `tokens` [rows, length + 1] uint16 and `weights` [rows, length] uint8, a
hundred times the loss weight of each next token. Rows of 1024 tokens are packed conversations or windows of books and
documentation; longer rows hide facts in book text.
"""

import argparse
import json
import lzma
import multiprocessing
import os
import random
import time
from pathlib import Path

import numpy as np

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tasks
from chat import context_key, read_items, render
from tasks import passage, pools, stories
from tasks.source import Source, learn_words

SHARD_TOKENS = 1 << 20
LENGTHS = {1024: 0.80, 4096: 0.13, 16384: 0.07}  # share of the tokens
# Weights times a hundred: the assistant's tokens, those of a story, plain text, the rest.
ANSWER, STORY, TEXT, OTHER = 100, 30, 20, 2
EOT = 4
PLACES = "lighthouse harbour orchard chapel mill tavern garden library stable cellar bridge tower".split()


def read_corpus(directory: Path) -> dict[str, list[str]]:
    texts = {}
    for path in sorted(directory.glob("*.txt.xz")):
        documents = lzma.decompress(path.read_bytes()).decode().split("\n<|end_of_text|>\n")
        texts[path.name.split(".")[0]] = documents
    return texts


class Rows:
    """Fills rows of one length from documents of (ids, weights)."""

    def __init__(self, count: int, length: int):
        self.tokens = np.zeros((count, length + 1), dtype=np.uint16)
        self.weights = np.zeros((count, length + 1), dtype=np.uint8)
        self.row = self.place = 0

    @property
    def full(self) -> bool:
        return self.row == len(self.tokens)

    @property
    def room(self) -> int:
        return self.tokens.shape[1] - self.place

    def put(self, ids, weights) -> None:
        """A document; what does not fit into the row is cut. Every row begins with a document."""
        count = min(len(ids), self.room)
        self.tokens[self.row, self.place:self.place + count] = ids[:count]
        self.weights[self.row, self.place:self.place + count] = weights[:count]
        self.place += count
        if self.room == 0:
            self.row, self.place = self.row + 1, 0


class Writer:

    def __init__(self, args, texts: dict[str, list[str]], streams: dict[str, np.ndarray], seed: int):
        from tokenizers import Tokenizer
        self._tokenizer = Tokenizer.from_file(str(args.tokenizer))
        self._header = self._encode("<|start_header_id|>assistant<|end_header_id|>\n\n")
        self._texts, self._streams = texts, streams
        self._random = random.Random(seed)
        self._held_out = {context_key(i["messages"], i.get("tools")) for i in read_items(args.held_out)}
        self.dropped = 0

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def shard(self, length: int, count: int) -> Rows:
        rows = Rows(count, length)
        chats = self._conversations()
        while not rows.full:
            row = rows.row
            self._begin_row(rows, length)
            while rows.row == row:
                rows.put(*next(chats))
        order = np.random.default_rng(self._random.getrandbits(32)).permutation(count)
        rows.tokens, rows.weights = rows.tokens[order], rows.weights[order]
        return rows

    def _begin_row(self, rows: Rows, length: int) -> None:
        share = self._random.random()
        if length == 1024:
            if share < 0.17:
                self._window(rows)
        elif share < 0.18:
            self._window(rows)
        else:
            rows.put(*self._hidden(length))

    def _window(self, rows: Rows) -> None:
        """A whole row of plain text, after a begin token."""
        stream = self._streams[self._random.choices(["books", "docs"], [11, 9])[0]]
        start = self._random.randrange(len(stream) - rows.room)
        ids = np.concatenate([[0], stream[start:start + rows.room - 1]])
        rows.put(ids, np.full(len(ids), TEXT))

    def _conversations(self):
        """Endless conversations, tokenized in batches."""
        while True:
            texts, lasts = [], []
            for _ in range(256):
                item = tasks.conversation(self._random)
                if self._is_held_out(item):
                    self.dropped += 1
                else:
                    tasks.add_courtesies(item, self._random)
                    texts.append(render(item.messages, item.tools))
                    lasts.append(STORY if item.kind == "story" else ANSWER)
            for encoding, last in zip(self._tokenizer.encode_batch(texts, add_special_tokens=False), lasts):
                yield encoding.ids, self._answer_weights(encoding.ids, last)

    def _is_held_out(self, item: tasks.Item) -> bool:
        return any(m["role"] == "assistant"
                   and context_key(item.messages[:i], item.tools) in self._held_out
                   for i, m in enumerate(item.messages))

    def _answer_weights(self, ids: list[int], last: int = ANSWER) -> list[int]:
        """last: the weight of the last answer's tokens; a joined conversation has the kind of its last turn."""
        weights, header, place, span = [OTHER] * len(ids), self._header, 0, slice(0, 0)
        while True:
            try:
                place = ids.index(header[0], place)
            except ValueError:
                weights[span] = [last] * (span.stop - span.start)
                return weights
            if ids[place:place + len(header)] == header:
                start = place + len(header)
                end = ids.index(EOT, start) + 1 if EOT in ids[start:] else len(ids)
                span = slice(start, end)
                weights[span] = [ANSWER] * (end - start)
                place = end
            else:
                place += 1

    def _paragraphs(self, characters: int) -> list[str]:
        """Consecutive paragraphs of a book, or of stories."""
        r = self._random
        if r.random() < 0.25:
            s = Source(r.getrandbits(64))
            return stories.prose(s, max(4, characters // 145))
        text = r.choice(self._texts["books"])
        if len(text) <= characters + 1:
            return text.split("\n\n")
        start = r.randrange(len(text) - characters)
        return [p for p in text[start:start + characters].split("\n\n") if p] or ["..."]

    def _hidden(self, length: int):
        """A long document that fits; a shorter text is tried when it does not."""
        make = self._recall if self._random.random() < 0.33 else self._long_chat
        size = int(length * 3.8 * self._random.uniform(0.3, 1.0))
        while True:
            ids, weights = make(self._paragraphs(size))
            if len(ids) <= length:
                return ids, weights
            size = int(size * 0.9)

    def _long_chat(self, paragraphs: list[str]):
        s = Source(self._random.getrandbits(64))
        item = passage.long_item(s, paragraphs, s.number(3, 8))
        ids = self._encode(render(item.messages, item.tools))
        return ids, self._answer_weights(ids)

    def _recall(self, paragraphs: list[str]):
        """The facts of tests/data/prompts/recall.jsonl's kind, in plain text."""
        r = self._random
        facts = [(name, r.choice(PLACES), f"{r.randint(100, 999)} {r.randint(100, 999)}")
                 for name in r.sample(pools.FIRST, r.randint(3, 14))]
        for name, place, code in facts:
            paragraphs.insert(r.randint(0, len(paragraphs)),
                              f"Remember this: the code of {name}'s {place} is {code}.")
        r.shuffle(facts)
        begin = self._encode("<|begin_of_text|>" + "\n\n".join(paragraphs) + "\n\n")
        tail = self._encode("\n".join(
            f"Question: What is the code of {name}'s {place}?\n"
            f"Answer: The code of {name}'s {place} is {code}." for name, place, code in facts))
        return begin + tail + [1], [TEXT] * len(begin) + [ANSWER] * (len(tail) + 1)


def work(number: int, args, texts, streams, plan: list[tuple[int, int]]) -> None:
    os.nice(5)
    writer = Writer(args, texts, streams, args.seed * 1000 + number)
    for index, (length, rows) in enumerate(plan):
        if time.time() > args.until:
            break
        shard = writer.shard(length, rows)
        path = args.out / f"{length}-{number}-{index}"
        np.savez(f"{path}.tmp.npz", tokens=shard.tokens, weights=shard.weights[:, 1:])
        os.replace(f"{path}.tmp.npz", f"{path}.npz")
    print(f"stream worker {number}: {index + 1} shards, {writer.dropped} held-out prompts dropped",
          flush=True)


def plan_of(tokens: float, workers: int, number: int, scale: float) -> list[tuple[int, int]]:
    """Shards of one worker: (length, rows), every length early and in its share."""
    shard = int(SHARD_TOKENS * scale)
    count = max(3, int(tokens / shard / workers))
    due = {length: (0.0 if length == 1024 else -share * (number % 3) / 3)
           for length, share in LENGTHS.items()}
    plan = []
    for _ in range(count):
        for length, share in LENGTHS.items():
            due[length] += share
        length = max(due, key=due.get)
        if len(plan) == 1 and number % 2 == 0:
            length = 4096 if number % 4 else 16384  # some long rows right at the start
        due[length] -= 1
        plan.append((length, max(4, shard // length)))
    return plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--held-out", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--tokens", type=float, default=400e6, help="of all shards together")
    parser.add_argument("--scale", type=float, default=1.0, help="of a shard; small for tests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds of the epoch")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    texts = read_corpus(args.corpus)
    learn_words([text for documents in texts.values() for text in documents],
                [pools, tasks.passage, tasks.records, tasks.rewriting, tasks.toolcalls],
                list(json.loads(args.tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]))
    with multiprocessing.Pool(args.workers) as pool:
        parts = [(str(args.tokenizer), name, documents[i::args.workers]) for name, documents in
                 _pieces(texts).items() for i in range(args.workers)]
        streams: dict[str, list] = {}
        for name, ids in pool.imap(_encode_part, parts):
            streams.setdefault(name, []).append(ids)
    joined = {name: np.concatenate(ids) for name, ids in streams.items()}
    for name, ids in joined.items():
        np.save(args.out / f"{name}.tokens.npy", ids)
        print(f"stream: {name} {len(ids) / 1e6:.1f}M tokens", flush=True)
    processes = [multiprocessing.Process(target=work, args=(
        i, args, texts, joined, plan_of(args.tokens, args.workers, i, args.scale)))
        for i in range(args.workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("stream: a worker failed")


def _pieces(texts: dict[str, list[str]]) -> dict[str, list[str]]:
    """Documents cut into pieces of about 100 KB at paragraphs, to share the tokenizing."""
    pieces = {}
    for name, documents in texts.items():
        parts = pieces.setdefault(name, [])
        for document in documents:
            start = 0
            while start < len(document):
                end = document.find("\n\n", start + 100000)
                end = len(document) if end < 0 else end
                parts.append(document[start:end] + ("<|end_of_text|>" if end == len(document) else ""))
                start = end
    return pieces


def _encode_part(part) -> tuple[str, np.ndarray]:
    from tokenizers import Tokenizer
    path, name, documents = part
    tokenizer = Tokenizer.from_file(path)
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(documents, add_special_tokens=False):
        ids += encoding.ids
    return name, np.array(ids, dtype=np.uint16)


if __name__ == "__main__":
    main()
