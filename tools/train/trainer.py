"""The training loop of a head: batches from pools of rows, schedule, progress, checkpoints."""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from data import Rows

# The loss of a batch of rows, and by draft depth the share of tokens guessed first.
Loss = Callable[[Rows], tuple[Tensor, Tensor]]


def add_flags(group) -> None:
    add = group.add_argument
    add("--minutes", type=float, default=10, help="time to train (%(default)s)")
    add("--batch-tokens", type=int, default=32768, help="tokens of one step (%(default)s)")
    add("--lr", type=float, default=1e-3, help="peak learning rate (%(default)s)")
    add("--long-fraction", type=float, default=0.25, help="last share of the time, in which half "
        "the batches are long rows (%(default)s)")
    add("--mix", nargs="*", default=[], metavar="NAME=WEIGHT", help="weight of a kind of rows "
        "(default: its number of tokens)")


def mix_of(args: argparse.Namespace) -> dict[str, float]:
    return {name: float(weight) for name, weight in (item.split("=") for item in args.mix)}


def train(args: argparse.Namespace, head: nn.Module, loss: Loss, pools: dict[str, Rows],
          mix: dict[str, float]) -> None:
    options = TrainOptions(device=args.device, minutes=args.minutes,
                           batch_tokens=args.batch_tokens, learning_rate=args.lr,
                           long_fraction=args.long_fraction)
    trainer = Trainer(head, loss, pools, mix, options, args.out / "checkpoint.pt")
    if args.resume:
        trainer.resume()
    trainer.run()


@dataclass(frozen=True)
class TrainOptions:
    device: str
    minutes: float
    batch_tokens: int
    learning_rate: float
    long_fraction: float  # the last share of the time, in which long rows join
    long_length: int = 4096  # rows of at least this length are long
    checkpoint_every: float = 60.0  # seconds


class Trainer:

    def __init__(self, head: nn.Module, loss: Loss, pools: dict[str, Rows],
                 weights: dict[str, float], options: TrainOptions, checkpoint: Path):
        self._head, self._loss, self._options = head, loss, options
        self._pools = {name: rows.to(options.device) for name, rows in pools.items()}
        self._weights = {name: weights.get(name, rows.tokens.numel() / 1e6)
                         for name, rows in pools.items()}
        self._optimizer = torch.optim.AdamW(head.parameters(), lr=options.learning_rate,
                                            betas=(0.9, 0.95), weight_decay=0.01,
                                            fused=options.device == "cuda")
        self._random = torch.Generator().manual_seed(1)
        self._checkpoint = checkpoint
        self._step, self._seconds, self._tokens = 0, 0.0, 0

    def resume(self) -> None:
        state = torch.load(self._checkpoint, map_location=self._options.device, weights_only=True)
        self._head.load_state_dict(state["head"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._random.set_state(state["random"].cpu())
        self._step, self._seconds, self._tokens = state["step"], state["seconds"], state["tokens"]
        print(f"resumed at step {self._step}, {self._seconds / 60:.1f} minutes", flush=True)

    def run(self) -> None:
        budget = self._options.minutes * 60
        started = time.time() - self._seconds
        saved = shown = time.time()
        while (done := (time.time() - started) / budget) < 1:
            name, rows = self._batch(done)
            loss, guessed = self._train_step(rows, done)
            self._seconds = time.time() - started
            if time.time() - shown > 5:
                shown = time.time()
                self._show(name, rows.length, loss.item(), guessed.tolist(), budget)
            if time.time() - saved > self._options.checkpoint_every:
                saved = time.time()
                self._save()
        self._save()

    def _batch(self, done: float) -> tuple[str, Rows]:
        """One pool's random rows. Long rows take half the batches of the long phase."""
        long = {name for name, rows in self._pools.items()
                if rows.length >= self._options.long_length}
        names = [name for name in self._pools if name not in long]
        in_long_phase = done > 1 - self._options.long_fraction
        if long and in_long_phase and torch.rand(1, generator=self._random) < 0.5:
            names = sorted(long)
        weights = torch.tensor([self._weights[name] for name in names])
        name = names[int(torch.multinomial(weights, 1, generator=self._random))]
        rows = self._pools[name]
        count = max(1, self._options.batch_tokens // rows.length)
        index = torch.randint(0, len(rows), (count,), generator=self._random)
        return name, rows.select(index.to(self._options.device))

    def _train_step(self, rows: Rows, done: float) -> tuple[Tensor, Tensor]:
        options = self._options
        rate = options.learning_rate * min(1.0, (self._step + 1) / 200)
        rate *= 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        loss, guessed = self._loss(rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._head.parameters(), 0.5)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        self._tokens += rows.tokens.numel()
        return loss.detach(), guessed

    def _show(self, name: str, length: int, loss: float, guessed: list[float],
              budget: float) -> None:
        memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
        print(f"step {self._step} {name} ({length}) loss {loss:.3f} accept "
              + " ".join(f"{x:.3f}" for x in guessed)
              + f" | {self._tokens / self._seconds / 1e3:.0f}k tokens/s, {memory:.1f} GiB, "
              f"{(budget - self._seconds) / 60:.1f} min left", flush=True)

    def _save(self) -> None:
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._checkpoint.with_suffix(".new")
        torch.save({"head": self._head.state_dict(), "optimizer": self._optimizer.state_dict(),
                    "random": self._random.get_state(), "step": self._step,
                    "seconds": self._seconds, "tokens": self._tokens}, fresh)
        fresh.replace(self._checkpoint)
