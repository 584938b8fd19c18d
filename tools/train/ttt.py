"""Training-time test: the head is trained on its own outputs, depth after depth.

Depth 0 reads the target's features; depth j reads the features the head made at depth j - 1, as it
will when it drafts. Every depth predicts the target's distribution after the true tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attention import chain_attention
from data import Rows
from head import DraftHead
from target import Target


@dataclass(frozen=True)
class LossOptions:
    depth: int  # draft depths unrolled
    decay: float  # loss weight of each depth relative to the one before
    hard: float  # share of the label on the target's first choice; the rest is its distribution
    prompt: float  # loss weight of positions the target did not write
    unreached: float  # weight factor after a depth whose true token a tree would not have held
    tree_width: int = 4  # candidates a level, for `unreached`


@dataclass
class Labels:
    """What the target says at each position: probabilities over the draft vocabulary [b, s, draft],
    the draft index of its first choice [b, s] (-1: not in the draft vocabulary)."""
    probabilities: Tensor
    first: Tensor


@torch.no_grad()
def make_labels(head: DraftHead, target: Target, hidden: Tensor, hard: float) -> Labels:
    logits = target.logits(hidden)
    first = head.to_draft[logits.argmax(-1)]
    probabilities = logits[..., head.draft_ids].softmax(-1).mul_(1 - hard)
    one = torch.full_like(first, 1, dtype=probabilities.dtype).mul_(hard)
    probabilities.scatter_add_(-1, first.clamp(min=0)[..., None], one[..., None])
    return Labels(probabilities.to(torch.bfloat16), first)


def unroll(head: DraftHead, target: Target, tokens: Tensor, features: Tensor, depth: int):
    """Yields the draft logits [batch, rows, draft_vocab] of each depth; rows = length - 1 - depth.

    Row p of depth j has consumed token p + 1 + j and predicts token p + 2 + j.
    """
    rows = tokens.shape[1] - 1 - depth
    group = head.shape.heads // head.shape.kv_heads
    feature = head.fuse(features[:, :rows])
    keys: list[Tensor] = []
    values: list[Tensor] = []
    for j in range(depth):
        embedding = target.embed(tokens[:, 1 + j:1 + j + rows])
        positions = torch.arange(j, j + rows, device=tokens.device)
        x, query, key, value = head.project(feature, embedding, positions)
        keys.append(key.transpose(1, 2).repeat_interleave(group, 1))
        values.append(value.transpose(1, 2).repeat_interleave(group, 1))
        attended = chain_attention(query.transpose(1, 2), keys[0], values[0], keys[1:], values[1:])
        feature = head.finish(x, attended.transpose(1, 2).flatten(2))
        yield head.logits(feature)


class SoftCrossEntropy(torch.autograd.Function):
    """Weighted cross entropy against probabilities; keeps one bf16 gradient, no float32 logits."""

    @staticmethod
    def forward(ctx, logits, probabilities, weights):
        loss, gradient = _soft_cross_entropy(logits, probabilities, weights)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx, grad_loss):
        return ctx.saved_tensors[0] * grad_loss.to(ctx.saved_tensors[0].dtype), None, None


def _soft_cross_entropy(logits: Tensor, probabilities: Tensor,
                        weights: Tensor) -> tuple[Tensor, Tensor]:
    log_p = logits.float().log_softmax(-1)
    label = probabilities.float()
    loss = -((label * log_p).sum(-1) * weights).sum()
    return loss, ((log_p.exp() - label) * weights[..., None]).to(logits.dtype)


def rank_of(logits: Tensor, index: Tensor) -> Tensor:
    """Number of candidates the head puts before draft index `index` ([b, s]; -1: all of them)."""
    place = index.clamp(min=0)[..., None]
    own = logits.gather(-1, place)
    earlier = torch.arange(logits.shape[-1], device=logits.device) < place
    rank = ((logits > own) | ((logits == own) & earlier)).sum(-1)
    return torch.where(index >= 0, rank, logits.shape[-1])


def compile_kernels() -> None:
    """Fuses the element-wise work over the logits, the largest tensors here."""
    global _soft_cross_entropy, rank_of
    _soft_cross_entropy = torch.compile(_soft_cross_entropy)
    rank_of = torch.compile(rank_of)


def loss_of(head: DraftHead, target: Target, rows: Rows,
            options: LossOptions) -> tuple[Tensor, Tensor]:
    """The loss, and [depth] the share of target-written positions guessed first, by depth."""
    features, hidden = target.teach(rows.tokens.long())
    labels = make_labels(head, target, hidden, options.hard)
    with torch.autocast(target.device, torch.bfloat16, enabled=target.device == "cuda"):
        return _unrolled_loss(head, target, rows, labels, features, options)


def _unrolled_loss(head: DraftHead, target: Target, rows: Rows, labels: Labels, features: Tensor,
                   options: LossOptions) -> tuple[Tensor, Tensor]:
    tokens = rows.tokens.long()
    count = tokens.shape[1] - 1 - options.depth
    place = torch.arange(1, count + 1, device=tokens.device)
    written = _written(rows, place).float()
    counted = (place < rows.end[:, None]).float()
    weights = written + (counted - written) * options.prompt
    total = weights.sum()
    loss = torch.zeros((), device=tokens.device)
    guessed = []
    for j, logits in enumerate(unroll(head, target, tokens, features, options.depth)):
        first = labels.first[:, 1 + j:1 + j + count]
        probabilities = labels.probabilities[:, 1 + j:1 + j + count]
        here = weights * (first >= 0) / total
        loss = loss + SoftCrossEntropy.apply(logits, probabilities, here)
        rank = rank_of(logits.detach(), first)
        guessed.append(((rank == 0) * written).sum() / written.sum().clamp(min=1))
        weights = weights * options.decay
        weights = torch.where(rank < options.tree_width, weights, weights * options.unreached)
    return loss, torch.stack(guessed)


def _written(rows: Rows, place: Tensor) -> Tensor:
    """[rows, place] bool: did the target write the token at this place?"""
    return (place >= rows.prompt[:, None]) & (place < rows.end[:, None])


@torch.no_grad()
def depth_ranks(head: DraftHead, target: Target, rows: Rows, depth: int) -> tuple[Tensor, Tensor]:
    """For evaluation: ranks [depth, batch, rows] of the target's first choice, and the mask
    [batch, rows] of the rows whose predictions the target wrote."""
    tokens = rows.tokens.long()
    features, hidden = target.teach(tokens)
    first = head.to_draft[target.logits(hidden).argmax(-1)]
    count = tokens.shape[1] - 1 - depth
    ranks = [rank_of(logits, first[:, 1 + j:1 + j + count])
             for j, logits in enumerate(unroll(head, target, tokens, features, depth))]
    place = torch.arange(1, count + 1, device=tokens.device)
    return torch.stack(ranks), _written(rows, place)
