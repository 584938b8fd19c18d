#!/usr/bin/env python3
"""Goes on training the standalone draft: it learns the target's distribution on the target's answers.

usage: train_draft.py --init DRAFT --target MODEL --rows ROWS --out DRAFT --until EPOCH_SECONDS
"""

import argparse
import json
import math
import shutil
import time
from pathlib import Path

import torch

import llama
from data import load_rows


def batch(pools: dict, names: list[str], weights: torch.Tensor, tokens: int, g: torch.Generator, device: str):
    rows = pools[names[int(torch.multinomial(weights, 1, generator=g))]]
    count = max(1, tokens // rows.length)
    part = rows.select(torch.randint(0, len(rows), (count,), generator=g)).to(device)
    place = torch.arange(rows.length, device=device) + 1  # place of the token that is guessed
    counted = (place < part.end[:, None]).float()
    written = counted * (place >= part.prompt[:, None]).float()
    return part.tokens.long(), 0.9 * written + 0.1 * counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--init", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--until", type=float, required=True, help="seconds of the epoch")
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--batch-tokens", type=int, default=32768)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    teacher = llama.Llama(args.target, args.device).requires_grad_(False)
    draft = llama.Llama(args.init, args.device)
    if args.device == "cuda":
        llama.compile_kernels()
    pools = load_rows(args.rows)
    names = [name for name in pools if len(pools[name])]
    weights = torch.tensor([float(pools[name].tokens.numel()) for name in names])
    optimizer = llama.optimizer_of(draft, args.lr, fused=args.device == "cuda")
    g, started, step, shown = torch.Generator().manual_seed(2), time.time(), 0, 0.0
    while (step == 0 or time.time() < args.until) and step < args.steps:
        done = (time.time() - started) / max(1e-6, args.until - started)
        rate = args.lr * min(1.0, (step + 1) / 50) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens, weight = batch(pools, names, weights, args.batch_tokens, g, args.device)
        with torch.no_grad():
            truth = teacher.logits(tokens).to(teacher.dtype)
        loss = draft.teacher_loss(tokens, truth, weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if time.time() - shown > 10:
            shown = time.time()
            print(f"draft step {step} loss {loss.item():.3f}", flush=True)
    if not math.isfinite(loss.item()):
        raise SystemExit("the draft's loss is not finite")
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.init.iterdir():
        if path.name not in ("model.safetensors", "tokenizer.json", "config.json") and path.is_file():
            shutil.copyfile(path, args.out / path.name)
    config = json.loads((args.init / "config.json").read_text())
    config.pop("quantization_config", None)  # the bundled one is in int8
    (args.out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    draft.save(args.out)
    print(f"draft: {step} steps", flush=True)


if __name__ == "__main__":
    main()
