#!/usr/bin/env python3
"""Goes on training a Llama on the rows that stream.py writes, until a point in time.

usage: train_chat.py --init MODEL --rows DIR --out MODEL --until EPOCH_SECONDS
"""

import argparse
import math
import shutil
import time
from pathlib import Path

import numpy as np
import torch

import llama


class Shards:
    """The rows written so far, on the device; the least used shard of a length comes next."""

    def __init__(self, directory: Path, device: str):
        self._directory, self._device = directory, device
        self._known: set[str] = set()
        self._shards: dict[int, list[list]] = {}  # length -> [uses, next row, tokens, weights]
        self.tokens = 0

    def look(self, most: int = 4) -> None:
        """Loads a few new shards."""
        fresh = [p for p in sorted(self._directory.glob("*-*-*.npz"))
                 if p.name not in self._known and ".tmp" not in p.name]
        for path in fresh[:most]:
            with np.load(path) as file:
                tokens = torch.from_numpy(file["tokens"].astype(np.int32)).to(self._device)
                weights = torch.from_numpy(file["weights"]).to(self._device)
            length = weights.shape[1]
            self._shards.setdefault(length, []).append([0, 0, tokens, weights])
            self._known.add(path.name)
            self.tokens += weights.numel()
            path.unlink()

    @property
    def lengths(self) -> list[int]:
        return sorted(self._shards)

    def batch(self, length: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        shards = self._shards[length]
        fewest = min(shard[0] for shard in shards)
        shard = next(s for s in shards if s[0] == fewest)
        start = shard[1]
        if start + rows > len(shard[2]):
            start = max(0, len(shard[2]) - rows)
        shard[1] = start + rows
        if shard[1] + rows > len(shard[2]):
            shard[0], shard[1] = shard[0] + 1, 0
        index = torch.arange(start, start + rows, device=self._device) % len(shard[2])
        return shard[2][index].long(), shard[3][index].float()


class Lengths:
    """Which row length comes next, so that each gets its share of the tokens."""

    def __init__(self, shares: dict[int, float]):
        self._shares = shares
        self._due = dict.fromkeys(shares, 0.0)

    def next(self, known: list[int]) -> int:
        for length in known:
            self._due[length] += self._shares[length]
        length = max(known, key=self._due.get)
        self._due[length] -= sum(self._shares[n] for n in known)
        return length


def train(model: llama.Llama, shards: Shards, args) -> int:
    optimizer = llama.optimizer_of(model, args.lr, fused=args.device == "cuda")
    started, step, seen, shown = time.time(), 0, 0, time.time()
    lengths = Lengths({1024: 0.80, 4096: 0.13, 16384: 0.07})
    mean: dict[int, float] = {}
    while time.time() < args.until and step < args.steps:
        done = (time.time() - started) / max(1e-6, args.until - started)
        if step % 8 == 0:
            shards.look()
        length = lengths.next(shards.lengths)
        tokens, weights = shards.batch(length, max(1, args.batch_tokens // length))
        rate = args.lr * min(1.0, (step + 1) / args.warmup)
        rate *= 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = model.loss(tokens[:, :-1], tokens[:, 1:], weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step, seen = step + 1, seen + weights.numel()
        if step % 50 == 0 or step <= 3:
            mean[length] = loss.item()
            if not math.isfinite(mean[length]):
                raise SystemExit("the loss is not finite")
        if time.time() - shown > 10 or step <= 3:
            shown = time.time()
            print(f"step {step} rate {rate:.1e} loss by length "
                  + " ".join(f"{k}: {v:.3f}" for k, v in sorted(mean.items()))
                  + f" | {seen / 1e6:.0f}M tokens trained, {shards.tokens / 1e6:.0f}M made, "
                  f"{seen / (time.time() - started) / 1e3:.0f}k tokens/s", flush=True)
    print(f"trained {step} steps, {seen / 1e6:.1f}M tokens in {time.time() - started:.0f} s", flush=True)
    return step


def check_twin(model: llama.Llama, directory: Path, device: str) -> None:
    """The model here and Hugging Face's must agree before training."""
    from transformers import AutoModelForCausalLM
    reference = AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32).to(device)
    tokens = torch.randint(16, model.vocab, (2, 48), generator=torch.Generator().manual_seed(0)).to(device)
    with torch.no_grad():
        expected, got = reference(tokens, use_cache=False).logits.float(), model.logits(tokens)
    error = ((got - expected).norm() / expected.norm()).item()
    print(f"against transformers: relative error {error:.1e}", flush=True)
    if not error < 0.06:
        raise SystemExit("this Llama differs from transformers'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--init", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--until", type=float, required=True, help="seconds of the epoch")
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--batch-tokens", type=int, default=65536)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-twin", action="store_true", help="do not compare with transformers")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = llama.Llama(args.init, args.device)
    if not args.no_twin:
        check_twin(model, args.init, args.device)
    if args.device == "cuda":
        llama.compile_kernels()
    shards = Shards(args.rows, args.device)
    while 1024 not in shards.lengths:
        shards.look()
        time.sleep(0.2)
        if time.time() > args.until:
            raise SystemExit("no rows came")
    print("first rows are there", flush=True)
    if train(model, shards, args) == 0:
        raise SystemExit("no step was trained")
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.init.iterdir():
        if path.name != "model.safetensors" and path.is_file():
            shutil.copyfile(path, args.out / path.name)
    model.save(args.out)


if __name__ == "__main__":
    main()
