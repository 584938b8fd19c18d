#!/usr/bin/env python3
"""Goes on training a Llama on the rows that stream.py writes, until a point in time.

usage: train_chat.py --init MODEL --rows DIR --out MODEL --until EPOCH_SECONDS

Muon trains the matrices of the layers, AdamW the rest; the weights written are the mean of the last steps',
where the held-out answers say that it is better. --plain: AdamW alone, without a mean.
"""

import argparse
import math
import shutil
import time
from pathlib import Path

import numpy as np
import torch

import llama


FULL = 100  # weight of an answer's token in a shard


class Shards:
    """The rows written so far, on the device; the least used shard of a length comes next. The first shard of
    each length is kept aside, to measure with."""

    def __init__(self, directory: Path, device: str):
        self._directory, self._device = directory, device
        self._known: set[str] = set()
        self._shards: dict[int, list[list]] = {}  # length -> [uses, next row, tokens, weights]
        self._aside: dict[int, list[torch.Tensor]] = {}  # length -> [tokens, weights]
        self.tokens = 0

    def look(self, most: int = 4) -> None:
        """Loads a few new shards."""
        fresh = [p for p in sorted(self._directory.glob("*-*-*.npz"))
                 if p.name not in self._known and ".tmp" not in p.name]
        for path in fresh[:most]:
            with np.load(path) as file:
                tokens = torch.from_numpy(file["tokens"].astype(np.int32)).to(self._device)
                weights = torch.from_numpy(file["weights"]).to(self._device)
            self._known.add(path.name)
            length = weights.shape[1]
            if length not in self._aside:
                self._aside[length] = [tokens, weights]
                continue
            self._shards.setdefault(length, []).append([0, 0, tokens, weights])
            self.tokens += weights.numel()

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
        return shard[2][index].long(), shard[3][index].float() / FULL

    def kept_aside(self, batch_tokens: int, most: int = 8):
        """Batches that training does not see, of training's shapes: (length, tokens, weights 1 on answers)."""
        for length, (tokens, weights) in sorted(self._aside.items()):
            rows = max(1, min(len(tokens), batch_tokens // length))
            for start in range(0, len(tokens) - rows + 1, rows)[:most]:
                part = slice(start, start + rows)
                yield length, tokens[part].long(), (weights[part] == FULL).float()


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


class Mean:
    """The mean of a model's weights over the steps that it has seen, in f32 on the device."""

    def __init__(self, model: llama.Llama):
        self._parameters = list(model.parameters())
        self.weights: list[torch.Tensor] = []
        self.steps = 0

    @torch.no_grad()
    def see(self) -> None:
        self.steps += 1
        if self.steps == 1:
            self.weights = copies(self._parameters)
        for mean, parameter in zip(self.weights, self._parameters):
            mean.lerp_(parameter, 1 / self.steps)


def copies(parameters) -> list[torch.Tensor]:
    return [p.detach().clone() for p in parameters]


@torch.no_grad()
def put(model: llama.Llama, weights: list[torch.Tensor]) -> None:
    for parameter, value in zip(model.parameters(), weights):
        parameter.copy_(value)


def loss_aside(name: str, model: llama.Llama, shards: Shards, batch_tokens: int) -> float:
    """Prints the loss of held-out answers by row length; returns that of all."""
    sums: dict[int, list[float]] = {}
    for length, tokens, weights in shards.kept_aside(batch_tokens):
        # With gradients recorded, as in training: no other kernels are compiled.
        total, count = sums.get(length, (0.0, 0.0))
        sums[length] = [total + model.loss_sum(tokens[:, :-1], tokens[:, 1:], weights).item(),
                        count + weights.sum().item()]
    total, count = (sum(column) for column in zip(*sums.values()))
    print(f"held-out answers, weights {name}: "
          + " ".join(f"{k}: {t / max(c, 1):.4f}" for k, (t, c) in sums.items())
          + f" all: {total / max(count, 1):.5f} ({count / 1e3:.0f}K tokens)", flush=True)
    return total / max(count, 1)


def rate_of(args, step: int, done: float) -> float:
    """done: share of the time. Falls in a line to 3%; as a cosine to 2% with --plain."""
    fall = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)) if args.plain else max(0.03, 1 - done)
    return args.lr * min(1.0, (step + 1) / args.warmup) * fall


def train(model: llama.Llama, shards: Shards, mean: Mean, args) -> int:
    fused = args.device == "cuda"
    optimizers = ([llama.optimizer_of(model, args.lr, fused)] if args.plain
                  else llama.muon_of(model, args.lr, fused))
    started, step, seen, shown = time.time(), 0, 0, time.time()
    lengths = Lengths({1024: 0.80, 4096: 0.13, 16384: 0.07})
    losses: dict[int, float] = {}
    while time.time() < args.until and step < args.steps:
        done = min(1.0, max((time.time() - started) / max(1e-6, args.until - started), step / args.steps))
        if step % 8 == 0:
            shards.look()
        length = lengths.next(shards.lengths)
        tokens, weights = shards.batch(length, max(1, args.batch_tokens // length))
        rate = rate_of(args, step, done)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
        # A mean by weight; the few answers of long rows do not count for all of their batch.
        loss = model.loss_sum(tokens[:, :-1], tokens[:, 1:], weights) / weights.sum().clamp(
            min=args.least_weight * weights.numel())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step, seen = step + 1, seen + weights.numel()
        if not args.plain and done > 1 - args.mean_share:
            mean.see()
        if step % 50 == 0 or step <= 3:
            losses[length] = loss.item()
            if not math.isfinite(losses[length]):
                raise SystemExit("the loss is not finite")
        if time.time() - shown > 10 or step <= 3:
            shown = time.time()
            print(f"step {step} rate {rate:.1e} loss by length "
                  + " ".join(f"{k}: {v:.3f}" for k, v in sorted(losses.items()))
                  + f" | {seen / 1e6:.0f}M tokens trained, {shards.tokens / 1e6:.0f}M made, "
                  f"{seen / (time.time() - started) / 1e3:.0f}k tokens/s", flush=True)
    print(f"trained {step} steps, {seen / 1e6:.1f}M tokens in {time.time() - started:.0f} s", flush=True)
    return step


def choose(model: llama.Llama, shards: Shards, first: list[torch.Tensor], mean: Mean, args) -> None:
    """Saves the last weights, then the mean in their place where it is better on held-out answers."""
    model.save(args.out)
    last = copies(model.parameters())
    last_loss = loss_aside("of the last step", model, shards, args.batch_tokens)
    if not math.isfinite(last_loss):
        (args.out / "model.safetensors").unlink()
        raise SystemExit("the loss is not finite")
    if mean.steps > 0:
        put(model, mean.weights)
        mean_loss = loss_aside(f"in the mean of {mean.steps} steps", model, shards, args.batch_tokens)
        if mean_loss <= last_loss:
            model.save(args.out)
        else:
            print("the last step's weights are better than the mean", flush=True)
            put(model, last)
    chosen = copies(model.parameters())
    put(model, first)
    loss_aside("before training", model, shards, args.batch_tokens)
    put(model, chosen)


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
    parser.add_argument("--plain", action="store_true", help="AdamW for all weights, no mean")
    parser.add_argument("--mean-share", type=float, default=0.12, help="last share of the time for the mean")
    parser.add_argument("--least-weight", type=float, default=0.1, help="least divisor of a batch's loss, "
                        "by token")
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
    first, mean = copies(model.parameters()), Mean(model)
    if train(model, shards, mean, args) == 0:
        raise SystemExit("no step was trained")
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.init.iterdir():
        if path.name != "model.safetensors" and path.is_file():
            shutil.copyfile(path, args.out / path.name)
    choose(model, shards, first, mean, args)


if __name__ == "__main__":
    main()
