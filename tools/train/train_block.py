#!/usr/bin/env python3
"""Trains a block head (JetSpec's form) for a Hugging Face causal LM and writes DFlash's format.

The common case, everything learned from the target's own text:
  train_block.py --target DIR --out DIR --self-generate --minutes 10
With the rows of an EAGLE-3 head that was trained before:
  train_block.py --target DIR --out DIR --rows EAGLE3/rows
"""

import argparse
from pathlib import Path

import torch

import block_loss
import rows
import trainer
import ttt
from block import BlockHead, BlockShape
from evaluate import report
from export import capture_of, load_head, save_head
from target import Target


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    rows.add_flags(parser)
    parser.add_argument("--init", type=Path, help="go on from this head, with its shape")
    _add_shape_flags(parser.add_argument_group("shape of the head (defaults follow the target)"))
    _add_training_flags(parser.add_argument_group("training"))
    return parser.parse_args()


def _add_shape_flags(group) -> None:
    add = group.add_argument
    add("--capture", type=int, nargs="+", help="target layers whose input the head reads "
        "(default: five from the second on, spread to the fourth from the end)")
    add("--block", type=int, default=8, help="rows of a block, the anchor included (%(default)s)")
    add("--layers", type=int, default=2, help="decoder layers (%(default)s)")
    add("--ffn", type=int, help="MLP width")
    add("--heads", type=int, help="attention heads")
    add("--kv-heads", type=int, help="key/value heads")
    add("--mask-token", type=int, help="token that stands for what is not known yet; one that "
        "texts do not have (default: the last of the vocabulary)")


def _add_training_flags(group) -> None:
    trainer.add_flags(group)
    add = group.add_argument
    add("--anchors", type=int, default=32, help="blocks of each row of 1024 tokens, and as many "
        "in proportion of others (%(default)s)")
    add("--decay", type=float, default=0.85, help="loss weight from depth to depth (%(default)s)")
    add("--hard", type=float, default=0.3, help="label share of the target's first choice; the "
        "rest is its distribution, forward KL (%(default)s)")
    add("--prompt-share", type=float, default=0.1, help="share of anchors that may lie in prompts "
        "(%(default)s)")
    add("--unreached", type=float, default=0.5, help="loss factor of depths behind a token that a "
        "tree of width 4 would have missed (%(default)s)")
    add("--no-compile", action="store_true", help="do not torch.compile the loss")


def default_capture(layers: int) -> list[int]:
    """Inputs of layers: the outputs that DFlash takes of a target for five features."""
    return sorted({1 + round(1 + i * (layers - 4) / 4) for i in range(5)})


def make_head(args: argparse.Namespace, target: Target) -> BlockHead:
    if args.init:
        return load_head(args.init, target)
    config = target.config
    mask = config.vocab_size - 1 if args.mask_token is None else args.mask_token
    shape = BlockShape(
        hidden=config.hidden_size, ffn=args.ffn or config.intermediate_size,
        heads=args.heads or config.num_attention_heads,
        kv_heads=args.kv_heads or config.num_key_value_heads, head_dim=target.head_dim,
        vocab=config.vocab_size, layers=args.layers, block=args.block,
        captured=len(target.capture), mask_token=mask, norm_eps=config.rms_norm_eps)
    return BlockHead(shape, target.rope(config.max_position_embeddings)).to(target.device)


def main() -> None:
    args = parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    if args.device == "cuda" and not args.no_compile:
        ttt.compile_kernels()
    capture = capture_of(args.init) if args.init else args.capture
    target = Target(args.target, args.device, capture)
    if capture is None:
        target.capture = default_capture(target.config.num_hidden_layers)
    pools, held_out = rows.rows_of(args, target)
    head = make_head(args, target)

    def loss(part):
        options = block_loss.BlockLossOptions(
            anchors=max(1, args.anchors * part.length // 1024), decay=args.decay, hard=args.hard,
            prompt=args.prompt_share, unreached=args.unreached)
        return block_loss.loss_of(head, target, part, options)

    trainer.train(args, head, loss, pools, trainer.mix_of(args))
    save_head(head, target, args.out)
    print(f"after\n{report(load_head(args.out, target), target, held_out)}", flush=True)


if __name__ == "__main__":
    main()
