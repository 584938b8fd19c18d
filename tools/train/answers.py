#!/usr/bin/env python3
"""The target's own answers to training prompts, as rows for the heads.

usage: answers.py --target MODEL --corpus-tokens DIR --out ROWS --until EPOCH_SECONDS

Conversations of the training generators without their last answer, which the target writes at
temperatures 0, 0.7 and 1.0; and continuations of books and documentation. Rows end where the answer does.
"""

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch

import tasks
from chat import render
from data import Rows, save_rows
from decoder import LockstepDecoder
from target import Target

EOT, EOS = 4, 1
SIZES = {256: 3072, 512: 2048, 1024: 768}  # row length -> rows written at once
TEMPERATURES = {0.0: 0.5, 0.7: 0.3, 1.0: 0.2}  # and their shares of the rows


def chat_prompts(tokenizer, count: int, r: random.Random) -> list[tuple[list[int], int]]:
    """Prompts, and about how long their answer is."""
    prompts, texts, answers = [], [], []
    for _ in range(count):
        item = tasks.conversation(r)
        texts.append(render(item.messages[:-1], item.tools, prompt=True))
        answers.append(render(item.messages, item.tools)[len(texts[-1]):])
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    lengths = [len(x) for x in tokenizer(answers, add_special_tokens=False)["input_ids"]]
    return list(zip(ids, lengths))


def rows_of(prompts: list[list[int]], length: int) -> Rows:
    tokens = torch.zeros(len(prompts), length, dtype=torch.int32)
    for row, ids in enumerate(prompts):
        tokens[row, :len(ids)] = torch.tensor(ids, dtype=torch.int32)
    return Rows(tokens, torch.tensor([len(ids) for ids in prompts], dtype=torch.int32))


def ends_of(tokens: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
    """Just behind the first end token that the target wrote."""
    place = torch.arange(tokens.shape[1])
    ended = ((tokens == EOT) | (tokens == EOS)) & (place >= prompt[:, None])
    first = torch.where(ended, place, tokens.shape[1]).min(1).values + 1
    return first.clamp(max=tokens.shape[1]).int()


class AnswerWriter:

    def __init__(self, args):
        self._target = Target(args.target, args.device)
        self._random = random.Random(args.seed)
        self._until, self._scale = args.until, args.scale
        self._decoders: dict[int, LockstepDecoder] = {}
        self._waiting: dict[int, list[list[int]]] = {length: [] for length in SIZES}
        self._streams = {name: np.load(args.corpus_tokens / f"{name}.tokens.npy")
                         for name in ("books", "docs")}
        self.rows: dict[str, list[Rows]] = {}

    def _batch(self, length: int) -> int:
        return max(16, int(SIZES[length] * self._scale))

    def _fill(self) -> None:
        """New prompts, each in the shortest row that holds it and its answer."""
        prompts = chat_prompts(self._target.tokenizer, max(64, int(6000 * self._scale)), self._random)
        for ids, answer in prompts:
            need = len(ids) + int(answer * 1.2) + 12
            length = next((n for n in SIZES if n >= need), None)
            if length:
                self._waiting[length].append(ids)

    def _write(self, name: str, rows: Rows, ends: bool) -> None:
        device, started, length = self._target.device, time.time(), rows.length
        if length not in self._decoders:
            self._decoders[length] = LockstepDecoder(self._target, self._batch(length), length)
        temperature = torch.tensor(self._random.choices(list(TEMPERATURES), TEMPERATURES.values(),
                                                        k=len(rows)))
        tokens = self._decoders[length].run(rows.to(device), temperature.to(device)).cpu()
        done = Rows(tokens, rows.prompt, ends_of(tokens, rows.prompt) if ends else None)
        for each in TEMPERATURES:
            self.rows.setdefault(f"{name}-t{each:g}", []).append(done.select(temperature == each))
        print(f"answers {name}: {len(rows)} x {length} in {time.time() - started:.1f} s", flush=True)

    def _text_rows(self, name: str, length: int) -> Rows:
        stream, count = self._streams[name], self._batch(length)
        prompts = []
        for _ in range(count):
            start = self._random.randrange(len(stream) - length)
            cut = int(8 * (length / 2 / 8) ** self._random.random())
            prompts.append([0] + stream[start:start + cut].tolist())
        return rows_of(prompts, length)

    def run(self) -> None:
        number = 0
        while number == 0 or time.time() < self._until:
            for length in SIZES:
                while len(self._waiting[length]) < self._batch(length):
                    self._fill()
                prompts = self._waiting[length][:self._batch(length)]
                del self._waiting[length][:self._batch(length)]
                self._write(f"chat-{length}", rows_of(prompts, length), ends=True)
                if number and time.time() > self._until:
                    return
            for name in self._streams:
                self._write(name, self._text_rows(name, 512), ends=False)
            number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--corpus-tokens", type=Path, required=True, help="where stream.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--until", type=float, required=True, help="seconds of the epoch")
    parser.add_argument("--scale", type=float, default=1.0, help="of the batches; small for tests")
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    writer = AnswerWriter(args)
    writer.run()
    rows = {}
    for name, parts in writer.rows.items():
        joined = Rows(torch.cat([p.tokens for p in parts]), torch.cat([p.prompt for p in parts]),
                      torch.cat([p.end for p in parts]))
        if not len(joined):
            continue
        order = torch.randperm(len(joined), generator=torch.Generator().manual_seed(0))
        rows[name] = joined.select(order)
        written = (joined.end - joined.prompt).float().mean()
        print(f"rows {name}: {len(joined)} x {joined.length}, {written:.0f} tokens written in the mean", flush=True)
    save_rows(rows, args.out)


if __name__ == "__main__":
    main()
