#!/usr/bin/env python3
"""Trains an EAGLE-3 head for a Hugging Face causal LM and writes it in the official format.

The common case, everything learned from the target's own text:
  train_eagle3.py --target DIR --out DIR --self-generate --minutes 10
With texts like those the head will serve, as prompts for the target:
  train_eagle3.py --target DIR --out DIR --self-generate --data books/*.txt
"""

import argparse
import json
from pathlib import Path

import torch

import ttt
from data import Rows, load_rows, read_texts, save_rows, token_stream, windows
from evaluate import report
from export import choose_draft_vocab, load_head, save_head, start_from
from generate import GenerateOptions, SelfGenerator
from head import Eagle3Head, HeadShape
from target import Target
from trainer import Trainer, TrainOptions


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", required=True, help="directory of the target model (Hugging Face format)")
    add("--out", required=True, type=Path, help="directory of the head; also its checkpoint, "
        "training rows and held-out rows")
    add("--data", nargs="*", default=[], help=".txt files, or .jsonl files with text, prompt (and "
        "response) or messages; with --self-generate they serve as prompts")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--capture", type=int, nargs="+", help="target layers whose input the head reads "
        "(default: 2, n/2, n-3)")
    add("--resume", action="store_true", help="continue from OUT/checkpoint.pt and OUT/rows")
    add("--init", type=Path, help="start from this head; what has another shape starts fresh")
    _add_generation_flags(parser.add_argument_group("rows written by the target"))
    _add_shape_flags(parser.add_argument_group("shape of the head (defaults follow the target)"))
    _add_training_flags(parser.add_argument_group("training"))
    return parser.parse_args()


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


def _add_shape_flags(group) -> None:
    add = group.add_argument
    add("--draft-vocab", type=int, help="tokens the head can draft (default: half the target's, "
        "at most 32000), the most frequent ones of the rows")
    add("--ffn", type=int, help="MLP width")
    add("--heads", type=int, help="attention heads")
    add("--kv-heads", type=int, help="key/value heads")


def _add_training_flags(group) -> None:
    add = group.add_argument
    add("--minutes", type=float, default=10, help="time to train (%(default)s)")
    add("--batch-tokens", type=int, default=32768, help="tokens of one step (%(default)s)")
    add("--lr", type=float, default=1e-3, help="peak learning rate (%(default)s)")
    add("--depth", type=int, default=7, help="draft depths unrolled in training (%(default)s)")
    add("--decay", type=float, default=0.9, help="loss weight from depth to depth (%(default)s)")
    add("--hard", type=float, default=0.5, help="label share of the target's first choice: 1 for "
        "greedy decoding only, 0 for its whole distribution (%(default)s)")
    add("--prompt-weight", type=float, default=0.3, help="loss weight of prompts (%(default)s)")
    add("--unreached", type=float, default=0.2, help="loss factor of depths behind a token that a "
        "tree of width 4 would have missed (%(default)s)")
    add("--row", type=int, default=1024, help="row length for --data without --self-generate")
    add("--long-fraction", type=float, default=0.25, help="last share of the time, in which half "
        "the batches are long rows (%(default)s)")
    add("--mix", nargs="*", default=[], metavar="NAME=WEIGHT", help="weight of a kind of rows "
        "(default: its number of tokens)")
    add("--no-before", action="store_true", help="do not evaluate the head of --init first")
    add("--no-compile", action="store_true", help="do not torch.compile the loss")


def make_rows(args: argparse.Namespace, target: Target) -> dict[str, Rows]:
    if args.resume or args.rows:
        return load_rows(args.rows or args.out / "rows")
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


def make_head(args: argparse.Namespace, target: Target, pools: dict[str, Rows],
              mix: dict[str, float]) -> Eagle3Head:
    config = target.config
    source = load_head(args.init, target) if args.init else None
    like = source.shape if source else None
    shape = HeadShape(
        hidden=config.hidden_size,
        ffn=args.ffn or (like.ffn if like else config.intermediate_size),
        heads=args.heads or (like.heads if like else config.num_attention_heads),
        kv_heads=args.kv_heads or (like.kv_heads if like else config.num_key_value_heads),
        head_dim=target.head_dim, vocab=config.vocab_size,
        draft_vocab=args.draft_vocab or min(32000, config.vocab_size // 2),
        captured=len(target.capture), norm_eps=config.rms_norm_eps)
    counts = sum(_written_shares(rows, config.vocab_size) * mix.get(name, rows.tokens.numel() / 1e6)
                 for name, rows in pools.items())
    draft_ids, covered = choose_draft_vocab(counts, shape.draft_vocab)
    print(f"draft vocabulary: {shape.draft_vocab} of {shape.vocab} tokens, {covered:.2%} of the "
          "text written by the target", flush=True)
    head = Eagle3Head(shape, draft_ids, target.rope(config.max_position_embeddings))
    head = head.to(target.device)
    head.lm_head.weight.data.copy_(target.output_weight[head.draft_ids])
    if source:
        start_from(head, source)
    return head


def _written_shares(rows: Rows, vocab: int) -> torch.Tensor:
    """[vocab]: the share of each token in what the target wrote."""
    place = torch.arange(rows.length)
    written = (place >= rows.prompt[:, None]) & (place < rows.end[:, None])
    counts = torch.bincount(rows.tokens[written].long(), minlength=vocab).double()
    return counts / counts.sum()


def train(args: argparse.Namespace, target: Target, head: Eagle3Head, pools: dict[str, Rows],
          mix: dict[str, float]) -> None:
    loss = ttt.LossOptions(depth=args.depth, decay=args.decay, hard=args.hard,
                           prompt=args.prompt_weight, unreached=args.unreached)
    options = TrainOptions(minutes=args.minutes, batch_tokens=args.batch_tokens,
                           learning_rate=args.lr, long_fraction=args.long_fraction, loss=loss)
    trainer = Trainer(head, target, pools, mix, options, args.out / "checkpoint.pt")
    if args.resume:
        trainer.resume()
    trainer.run()


def main() -> None:
    args = parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    if args.device == "cuda" and not args.no_compile:
        ttt.compile_kernels()
    target = Target(args.target, args.device, args.capture)
    rows = make_rows(args, target)
    if not (args.resume or args.rows):
        save_rows(rows, args.out / "rows")
    mix = {name: float(weight) for name, weight in (item.split("=") for item in args.mix)}
    splits = {name: part.split(min(args.held_out, len(part) // 8)) for name, part in rows.items()}
    pools = {name: train_part for name, (train_part, _) in splits.items()}
    held_out = {name: test_part for name, (_, test_part) in splits.items() if len(test_part)}
    save_rows(held_out, args.out / "held-out")
    head = make_head(args, target, pools, mix)
    if args.init and not args.no_before:
        print(f"before\n{report(load_head(args.init, target), target, held_out)}", flush=True)
    train(args, target, head, pools, mix)
    save_head(head, target, args.out)
    print(f"after\n{report(load_head(args.out, target), target, held_out)}", flush=True)


if __name__ == "__main__":
    main()
