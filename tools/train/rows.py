"""Where the rows of a head's training come from, and the flags that say so."""

import argparse
import json
from pathlib import Path

import torch

from data import Rows, load_rows, read_texts, save_rows, token_stream, windows
from generate import GenerateOptions, SelfGenerator
from target import Target


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--target", required=True, help="directory of the target model (Hugging Face format)")
    add("--out", required=True, type=Path, help="directory of the head; also its checkpoint, "
        "training rows and held-out rows")
    add("--data", nargs="*", default=[], help=".txt files, or .jsonl files with text, prompt (and "
        "response) or messages; with --self-generate they serve as prompts")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--resume", action="store_true", help="continue from OUT/checkpoint.pt and OUT/rows")
    add("--row", type=int, default=1024, help="row length for --data without --self-generate")
    _add_generation_flags(parser.add_argument_group("rows written by the target"))


def _add_generation_flags(group) -> None:
    add = group.add_argument
    add("--self-generate", action="store_true", help="let the target write the training rows")
    add("--rows", type=Path, help="use rows made before (OUT/rows of another run)")
    add("--gen-rows", type=int, default=16384, help="greedy rows of each kind (%(default)s)")
    add("--gen-batch", type=int, default=4096, help="rows written at once; the target's KV cache "
        "holds this many rows of 512 tokens (%(default)s)")
    add("--long-rows", nargs="*", default=[], metavar="LENGTH:COUNT",
        help="long rows, e.g. 8192:256 32768:64, for the long phase")
    add("--temperatures", type=float, nargs="+", default=[0.7, 0.85, 1.0])
    add("--seed-prompt", action="append", default=[], help="a document opening the target knows, "
        "e.g. --seed-prompt='## '; greedy rows of that kind are added (may be repeated; \\n is a "
        "line break)")
    add("--exclude", nargs="*", default=[], help=".jsonl files of prompts that will judge the "
        "head: no row the target writes may begin with one")
    add("--held-out", type=int, default=64, help="rows of each kind kept for evaluation")


def rows_of(args: argparse.Namespace, target: Target) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """The rows to train on and those held out, by kind; both are written to OUT."""
    if args.resume or args.rows:
        rows = load_rows(args.rows or args.out / "rows")
    else:
        rows = _make_rows(args, target)
        save_rows(rows, args.out / "rows")
    splits = {name: part.split(min(args.held_out, len(part) // 8)) for name, part in rows.items()}
    held_out = {name: test_part for name, (_, test_part) in splits.items() if len(test_part)}
    save_rows(held_out, args.out / "held-out")
    return {name: train_part for name, (train_part, _) in splits.items()}, held_out


def _make_rows(args: argparse.Namespace, target: Target) -> dict[str, Rows]:
    stream = None
    if args.data:
        stream = token_stream(read_texts(args.data, target.tokenizer), target.tokenizer)
        print(f"data: {len(stream) / 1e6:.1f}M tokens", flush=True)
    if args.self_generate:
        return SelfGenerator(target, _generate_options(args), stream).run()
    if stream is None:
        raise SystemExit("nothing to train on: give --data, --self-generate or --rows")
    count = max(2 * args.held_out, 2 * len(stream) // args.row)
    tokens = windows(stream, count, args.row, None, torch.Generator().manual_seed(0))
    return {"data": Rows(tokens, torch.ones(count, dtype=torch.int32))}


def _generate_options(args: argparse.Namespace) -> GenerateOptions:
    pairs = (item.split(":") for item in args.long_rows)
    excluded = [json.loads(line)["prompt"] for path in args.exclude
                for line in Path(path).read_text().splitlines()]
    return GenerateOptions(
        batch=args.gen_batch, rows=args.gen_rows,
        long_rows={int(length): int(count) for length, count in pairs},
        temperatures=tuple(args.temperatures),
        seed_prompts=tuple(text.replace("\\n", "\n") for text in args.seed_prompt),
        excluded=tuple(excluded))
