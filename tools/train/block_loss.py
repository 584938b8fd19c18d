"""What a block head learns: behind random anchors, the target's distribution of every row."""

from dataclasses import dataclass

import torch
from torch import Tensor

import ttt
from block import BlockHead
from data import Rows
from target import Target


@dataclass(frozen=True)
class BlockLossOptions:
    anchors: int  # blocks in each row
    decay: float  # loss weight of each depth relative to the one before
    hard: float  # share of the label on the target's first choice; the rest is its distribution
    prompt: float  # share of the anchors that may lie before what the target wrote
    unreached: float  # weight factor after a depth whose true token a tree would not have held
    tree_width: int = 4  # candidates a level, for `unreached`


def draft_rows(head: BlockHead, target: Target, tokens: Tensor, features: Tensor,
               anchors: Tensor) -> Tensor:
    """The head's rows [batch, anchors, block - 1, hidden] behind the anchors' places."""
    block = torch.full((*anchors.shape, head.shape.block), head.shape.mask_token,
                       device=anchors.device)
    block[..., 0] = tokens.gather(1, anchors)
    return head.draft(features, target.embed(block), anchors)


def loss_of(head: BlockHead, target: Target, rows: Rows,
            options: BlockLossOptions) -> tuple[Tensor, Tensor]:
    """The loss, and [block - 1] the share of target-written tokens guessed first, by depth."""
    tokens = rows.tokens.long()
    features, hidden = target.teach(tokens)
    anchors = _random_anchors(rows, head.shape.block, options)
    places = anchors[..., None] + torch.arange(head.shape.block - 1, device=anchors.device)
    with torch.no_grad():  # row j learns what the target says at the token before it
        wide = places.flatten(1)[..., None].expand(-1, -1, hidden.shape[-1])
        said = target.logits(hidden.gather(1, wide)).unflatten(1, places.shape[1:])
        first = said.argmax(-1)
        label = said.softmax(-1).mul_(1 - options.hard)
        one = torch.full_like(first, 1, dtype=label.dtype).mul_(options.hard)
        label.scatter_add_(-1, first[..., None], one[..., None])
    with torch.autocast(target.device, torch.bfloat16, enabled=target.device == "cuda"):
        out = draft_rows(head, target, tokens, features, anchors)
        logits = out @ target.output_weight.to(out.dtype).T
    counted = (places + 1 < rows.end[:, None, None]).float()
    rank = ttt.rank_of(logits.detach(), first)
    missed = (rank >= options.tree_width).float().cumsum(-1) - (rank >= options.tree_width).float()
    weights = counted * options.decay ** torch.arange(places.shape[-1], device=places.device)
    weights = weights * options.unreached ** missed
    loss = ttt.SoftCrossEntropy.apply(logits, label, weights / counted[..., 0].sum().clamp(min=1))
    hits = ((rank == 0).float() * counted).sum((0, 1)) / counted.sum((0, 1)).clamp(min=1)
    return loss, hits


def _random_anchors(rows: Rows, block: int, options: BlockLossOptions) -> Tensor:
    """[batch, anchors] places: the last token before what the target wrote, or a later one."""
    device = rows.tokens.device
    last = torch.minimum(rows.end.long() - 2, torch.tensor(rows.length - block, device=device))
    anywhere = torch.rand(len(rows), options.anchors, device=device) < options.prompt
    start = torch.where(anywhere, 1, (rows.prompt.long() - 1)[:, None]).clamp(min=1)
    last = torch.maximum(last, torch.tensor(1, device=device))[:, None]
    start = torch.minimum(start, last)
    random = torch.rand(len(rows), options.anchors, device=device)
    return start + (random * (last - start + 1)).long().clamp(max=rows.length)


@torch.no_grad()
def depth_ranks(head: BlockHead, target: Target, rows: Rows, depth: int) -> tuple[Tensor, Tensor]:
    """For evaluation, as ttt.depth_ranks: ranks [depth, batch, rows] of the target's first choice,
    and the mask [batch, rows] of the rows whose predictions the target wrote.

    Row p has token p + 1 for its anchor. A depth behind the head's block is never guessed.
    """
    tokens = rows.tokens.long()
    features, hidden = target.teach(tokens)
    first = target.logits(hidden).argmax(-1)
    depths = min(depth, head.shape.block - 1)
    count = tokens.shape[1] - 1 - depth
    place = torch.arange(1, count + 1, device=tokens.device)
    ranks = torch.full((depth, len(rows), count), head.shape.vocab, device=tokens.device)
    for begin in range(0, count, 128):  # the blocks' logits are large
        anchors = place[begin:begin + 128].expand(len(rows), -1)
        logits = target.logits(draft_rows(head, target, tokens, features, anchors))
        for j in range(depths):
            ranks[j, :, begin:begin + 128] = ttt.rank_of(logits[:, :, j], first.gather(1, anchors + j))
    written = (place >= rows.prompt[:, None]) & (place < rows.end[:, None])
    return ranks, written
