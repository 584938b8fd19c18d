#!/usr/bin/env python3
"""Trains an EAGLE-3 or EAGLE head for a Hugging Face causal LM and writes the official format.

The common case, everything learned from the target's own text:
  train_eagle.py --target DIR --out DIR --self-generate --minutes 10
With texts like those the head will serve, as prompts for the target:
  train_eagle.py --target DIR --out DIR --self-generate --data books/*.txt
"""

import argparse
from pathlib import Path

import torch

import rows
import trainer
import ttt
from data import Rows
from evaluate import report
from export import (LAST_HIDDEN, capture_of, choose_draft_vocab, load_head, save_head,
                    start_from)
from head import DraftHead, Eagle1Head, Eagle3Head, HeadShape
from target import Target


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    rows.add_flags(parser)
    add = parser.add_argument
    add("--kind", choices=["eagle3", "eagle"], default="eagle3", help="eagle: the head of EAGLE "
        "and EAGLE-2, which reads the last hidden state and has the target's vocabulary")
    add("--capture", type=int, nargs="+", help="target layers whose input the head reads "
        "(eagle3; default: 2, n/2, n-3)")
    add("--init", type=Path, help="start from this head; what has another shape starts fresh")
    add("--no-before", action="store_true", help="do not evaluate the head of --init first")
    _add_shape_flags(parser.add_argument_group("shape of the head (defaults follow the target)"))
    _add_training_flags(parser.add_argument_group("training"))
    return parser.parse_args()


def _add_shape_flags(group) -> None:
    add = group.add_argument
    add("--draft-vocab", type=int, help="tokens the head can draft (eagle3; default: half the "
        "target's, at most 32000), the most frequent ones of the rows")
    add("--ffn", type=int, help="MLP width")
    add("--heads", type=int, help="attention heads")
    add("--kv-heads", type=int, help="key/value heads")


def _add_training_flags(group) -> None:
    add = group.add_argument
    trainer.add_flags(group)
    add("--depth", type=int, default=7, help="draft depths unrolled in training (%(default)s)")
    add("--decay", type=float, default=0.9, help="loss weight from depth to depth (%(default)s)")
    add("--hard", type=float, default=0.5, help="label share of the target's first choice: 1 for "
        "greedy decoding only, 0 for its whole distribution (%(default)s)")
    add("--prompt-weight", type=float, default=0.3, help="loss weight of prompts (%(default)s)")
    add("--unreached", type=float, default=0.2, help="loss factor of depths behind a token that a "
        "tree of width 4 would have missed (%(default)s)")
    add("--no-compile", action="store_true", help="do not torch.compile the loss")


def make_head(args: argparse.Namespace, target: Target, pools: dict[str, Rows],
              mix: dict[str, float]) -> DraftHead:
    config = target.config
    is_eagle3 = args.kind == "eagle3"
    if args.init and (capture_of(args.init) == LAST_HIDDEN) == is_eagle3:
        raise SystemExit(f"--init {args.init}: a head of another kind than --kind {args.kind}")
    source = load_head(args.init, target) if args.init else None
    like = source.shape if source else None
    shape = HeadShape(
        hidden=config.hidden_size,
        ffn=args.ffn or (like.ffn if like else config.intermediate_size),
        heads=args.heads or (like.heads if like else config.num_attention_heads),
        kv_heads=args.kv_heads or (like.kv_heads if like else config.num_key_value_heads),
        head_dim=target.head_dim, vocab=config.vocab_size,
        draft_vocab=(args.draft_vocab or min(32000, config.vocab_size // 2)) if is_eagle3
        else config.vocab_size,
        captured=len(target.capture), norm_eps=config.rms_norm_eps)
    rope = target.rope(config.max_position_embeddings)
    if is_eagle3:
        head = _eagle3_head(target, shape, rope, pools, mix)
    else:
        head = Eagle1Head(shape, target.output_weight, rope).to(target.device)
    if source:
        start_from(head, source)
    return head


def _eagle3_head(target: Target, shape: HeadShape, rope: tuple[torch.Tensor, torch.Tensor],
                 pools: dict[str, Rows], mix: dict[str, float]) -> Eagle3Head:
    counts = sum(_written_shares(part, shape.vocab) * mix.get(name, part.tokens.numel() / 1e6)
                 for name, part in pools.items())
    draft_ids, covered = choose_draft_vocab(counts, shape.draft_vocab)
    print(f"draft vocabulary: {shape.draft_vocab} of {shape.vocab} tokens, {covered:.2%} of the "
          "text written by the target", flush=True)
    head = Eagle3Head(shape, draft_ids, rope).to(target.device)
    head.lm_head.weight.data.copy_(target.output_weight[head.draft_ids])
    return head


def _written_shares(part: Rows, vocab: int) -> torch.Tensor:
    """[vocab]: the share of each token in what the target wrote."""
    place = torch.arange(part.length)
    written = (place >= part.prompt[:, None]) & (place < part.end[:, None])
    counts = torch.bincount(part.tokens[written].long(), minlength=vocab).double()
    return counts / counts.sum()


def main() -> None:
    args = parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    if args.device == "cuda" and not args.no_compile:
        ttt.compile_kernels()
    capture = args.capture if args.kind == "eagle3" else LAST_HIDDEN
    target = Target(args.target, args.device, capture)
    pools, held_out = rows.rows_of(args, target)
    mix = trainer.mix_of(args)
    head = make_head(args, target, pools, mix)
    if args.init and not args.no_before:
        print(f"before\n{report(load_head(args.init, target), target, held_out)}", flush=True)
    loss = ttt.LossOptions(depth=args.depth, decay=args.decay, hard=args.hard,
                           prompt=args.prompt_weight, unreached=args.unreached)
    trainer.train(args, head, lambda part: ttt.loss_of(head, target, part, loss), pools, mix)
    save_head(head, target, args.out)
    print(f"after\n{report(load_head(args.out, target), target, held_out)}", flush=True)


if __name__ == "__main__":
    main()
