"""Acceptance of heads on held-out rows: by depth, and tau of chains and dynamic trees.

usage: evaluate.py --target DIR --head DIR --rows DIR
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import block_loss
import ttt
from block import BlockHead
from data import Rows, load_rows
from export import capture_of, load_head
from head import DraftHead
from target import Target

Head = DraftHead | BlockHead


@dataclass(frozen=True)
class TreeShape:
    levels: int
    width: int  # candidates a node, and nodes expanded a level
    nodes: int  # nodes verified, root included

    def __str__(self) -> str:
        return f"{self.levels}x{self.width}/{self.nodes}"


TREES = (TreeShape(5, 1, 6), TreeShape(5, 4, 8), TreeShape(5, 4, 16), TreeShape(6, 4, 24),
         TreeShape(8, 4, 48))


class TreeDrafter:
    """Drafts dynamic trees for many roots at once, from the true prefix of each root.

    Root r of row b is draft row `roots[b, r]`: its logits are level 1 of the tree.
    """

    def __init__(self, head: DraftHead, target: Target, rows: Rows, roots: Tensor):
        self._head, self._target, self._roots = head, target, roots
        self._tokens = rows.tokens.long()
        features, _ = target.teach(self._tokens)
        count = self._tokens.shape[1] - 1
        feature = head.fuse(features[:, :count])
        positions = torch.arange(count, device=roots.device)
        x, query, self._keys, self._values = head.project(
            feature, target.embed(self._tokens[:, 1:]), positions)
        group = head.shape.heads // head.shape.kv_heads
        keys, values = (x.repeat_interleave(group, 2).transpose(1, 2)
                        for x in (self._keys, self._values))
        attended = torch.nn.functional.scaled_dot_product_attention(
            query.transpose(1, 2), keys, values, is_causal=True)
        out = head.finish(x, attended.transpose(1, 2).flatten(2))
        self._out = out.gather(1, roots[..., None].expand(-1, -1, out.shape[-1]))

    def accepted(self, tree: TreeShape) -> Tensor:
        """[batch, roots]: how many draft tokens of each root's tree the target accepts."""
        width = tree.width
        scores, picks = self._head.logits(self._out).float().log_softmax(-1).topk(width)
        beams = self._head.draft_ids[picks]  # [b, r, width] tokens
        feature = self._out[:, :, None].expand(-1, -1, width, -1)
        right = beams == self._truth(1)
        all_scores, path_scores = [scores], [self._path_score(scores, right)]
        history: tuple[Tensor, Tensor] | None = None
        for level in range(2, tree.levels + 1):
            feature, history = self._expand(feature, beams, level, history)
            log_p, picks = self._head.logits(feature).float().log_softmax(-1).topk(width)
            candidates = (scores[..., None] + log_p).flatten(2)
            tokens = self._head.draft_ids[picks].flatten(2)
            hit = right.repeat_interleave(width, 2) & (tokens == self._truth(level))
            all_scores.append(candidates)
            path_scores.append(self._path_score(candidates, hit))
            scores, chosen = candidates.topk(width)
            parent = chosen // width
            beams, right = tokens.gather(2, chosen), hit.gather(2, chosen)
            feature = _take(feature, parent)
            history = (_take(history[0], parent), _take(history[1], parent))
        ranked = torch.cat(all_scores, 2)
        better = [(ranked > score[..., None]).sum(-1) for score in path_scores]
        kept = torch.stack([(score > float("-inf")) & (count < tree.nodes - 1)
                            for score, count in zip(path_scores, better)])
        return kept.int().cumprod(0).sum(0)

    def _truth(self, level: int) -> Tensor:
        return self._tokens.gather(1, self._roots + 1 + level)[..., None]

    @staticmethod
    def _path_score(scores: Tensor, hit: Tensor) -> Tensor:
        return scores.masked_fill(~hit, float("-inf")).max(-1).values

    def _expand(self, feature: Tensor, beams: Tensor, level: int,
                history: tuple[Tensor, Tensor] | None):
        """One draft row per beam; history: the beams' own keys, values [b, r, width, depth, ..]."""
        positions = (self._roots + level - 1)[..., None].expand_as(beams)
        x, query, key, value = self._head.project(feature, self._target.embed(beams), positions)
        own = (key.unsqueeze(3), value.unsqueeze(3))
        if history is not None:
            own = (torch.cat([history[0], own[0]], 3), torch.cat([history[1], own[1]], 3))
        return self._head.finish(x, self._attend(query, *own)), own

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Over the rows up to the root and the beam's ancestors. Query [b, r, w, heads, size]."""
        shape = self._head.shape
        query = query.unflatten(3, (shape.kv_heads, -1)).float() * shape.head_dim ** -0.5
        prefix = torch.einsum("brwkgd,bskd->brwkgs", query, self._keys.float())
        place = torch.arange(self._keys.shape[1], device=query.device)
        hidden = (place > self._roots[..., None])[:, :, None, None, None]
        prefix = prefix.masked_fill(hidden, float("-inf"))
        chain = torch.einsum("brwkgd,brwckd->brwkgc", query, keys.float())
        weights = torch.cat([prefix, chain], -1).softmax(-1)
        rows = prefix.shape[-1]
        out = torch.einsum("brwkgs,bskd->brwkgd", weights[..., :rows], self._values.float())
        out = out + torch.einsum("brwkgc,brwckd->brwkgd", weights[..., rows:], values.float())
        return out.flatten(3)


class BlockTreeDrafter:
    """The same for a block head, whose one pass gives the candidates of every level."""

    def __init__(self, head: BlockHead, target: Target, rows: Rows, roots: Tensor):
        tokens = rows.tokens.long()
        features, _ = target.teach(tokens)
        out = block_loss.draft_rows(head, target, tokens, features, roots + 1)
        self._log_p, self._picks = target.logits(out).log_softmax(-1).topk(
            max(tree.width for tree in TREES))  # [b, r, levels, width]
        steps = torch.arange(2, 1 + head.shape.block, device=roots.device)
        truth = tokens.gather(1, (roots[..., None] + steps).clamp(max=rows.length - 1).flatten(1))
        self._hits = self._picks == truth.unflatten(1, (-1, len(steps)))[..., None]

    def accepted(self, tree: TreeShape) -> Tensor:
        """[batch, roots]: how many draft tokens of each root's tree the target accepts."""
        scores = self._log_p.new_zeros((*self._log_p.shape[:2], 1))
        right = torch.ones_like(scores, dtype=torch.bool)
        all_scores, path_scores = [], []
        for level in range(min(tree.levels, self._log_p.shape[2])):
            log_p = self._log_p[:, :, level, :tree.width]
            scores = (scores[..., None] + log_p[:, :, None]).flatten(2)
            right = (right[..., None] & self._hits[:, :, level, None, :tree.width]).flatten(2)
            path_scores.append(TreeDrafter._path_score(scores, right))
            # A node among the best of the tree is among the best of its level.
            scores, chosen = scores.topk(min(tree.nodes, scores.shape[-1]))
            right = right.gather(2, chosen)
            all_scores.append(scores)
        ranked = torch.cat(all_scores, 2)
        kept = torch.stack([(score > float("-inf"))
                            & ((ranked > score[..., None]).sum(-1) < tree.nodes - 1)
                            for score in path_scores])
        return kept.int().cumprod(0).sum(0)


def _take(x: Tensor, index: Tensor) -> Tensor:
    """x [b, r, w, ...] at index [b, r, w] of dimension 2."""
    wide = index.reshape(*index.shape, *([1] * (x.dim() - 3))).expand(*index.shape, *x.shape[3:])
    return x.gather(2, wide)


def walk(accepted: Tensor, written: Tensor) -> tuple[int, int]:
    """Decodes along [rows, roots] accepted lengths: tokens emitted, target passes.

    written [rows]: tokens that the target wrote; no row is decoded past its own.
    """
    tokens = passes = 0
    for row, count in zip(accepted.tolist(), written.tolist()):
        place = 0
        while place < min(count, len(row)):
            emitted = min(row[place] + 1, count - place)
            tokens += emitted
            passes += 1
            place += emitted
    return tokens, passes


@torch.no_grad()
def tree_taus(head: Head, target: Target, rows: Rows, roots: int = 240) -> dict[str, float]:
    """tau by tree shape over the first `roots` tokens the target wrote after each prompt."""
    is_block = isinstance(head, BlockHead)
    deepest = max(tree.levels for tree in TREES)
    sums = {str(tree): [0, 0] for tree in TREES}
    batch = max(1, min(16, 2 ** 18 // rows.length // 4))
    for first in range(0, len(rows), batch):
        part = rows.select(slice(first, first + batch)).to(target.device)
        last = part.length - 2 - deepest  # the last root whose whole tree can be judged
        written = torch.minimum(part.end, torch.full_like(part.end, last + 2)) - part.prompt
        count = max(1, min(roots, int(written.max())))
        start = (part.prompt.long() - 1)[:, None]
        places = (start + torch.arange(count, device=start.device)).clamp(max=last)
        drafter = (BlockTreeDrafter if is_block else TreeDrafter)(head, target, part, places)
        for tree in TREES:
            for i, value in enumerate(walk(drafter.accepted(tree), written)):
                sums[str(tree)][i] += value
    return {name: tokens / max(1, passes) for name, (tokens, passes) in sums.items()}


@torch.no_grad()
def depth_acceptance(head: Head, target: Target, rows: Rows,
                     depth: int) -> tuple[list[float], list[float]]:
    """By depth, given the true tokens before: share of first choices hit by top 1 and by top 4."""
    hits, total = torch.zeros(2, depth), 0
    batch = max(1, 65536 // rows.length)
    for first in range(0, len(rows), batch):
        part = rows.select(slice(first, first + batch)).to(target.device)
        method = block_loss if isinstance(head, BlockHead) else ttt
        ranks, mask = method.depth_ranks(head, target, part, depth)
        hits += torch.stack([((ranks < width) & mask).sum((1, 2)) for width in (1, 4)]).cpu()
        total += int(mask.sum())
    return (hits[0] / total).tolist(), (hits[1] / total).tolist()


def report(head: Head, target: Target, parts: dict[str, Rows], depth: int = 6) -> str:
    """A table: one line per kind of text."""
    lines = ["text | top-1 by depth | top-4 by depth | tau of levels x width / nodes"]
    for name, rows in parts.items():
        with torch.autocast(target.device, torch.bfloat16, enabled=target.device == "cuda"):
            first, four = depth_acceptance(head, target, rows, depth)
        taus = tree_taus(head, target, rows)
        lines.append(" | ".join([
            f"{name} ({len(rows)} rows)", " ".join(f"{x:.3f}" for x in first),
            " ".join(f"{x:.3f}" for x in four),
            " ".join(f"{shape}: {tau:.2f}" for shape, tau in taus.items())]))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True, help="directory of the target model")
    parser.add_argument("--head", required=True, nargs="+", help="directories of heads to compare")
    parser.add_argument("--rows", required=True, help="held-out rows, as the training leaves them "
                        "in OUT/held-out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    parts = load_rows(Path(args.rows))
    for directory in args.head:
        target = Target(args.target, args.device, capture_of(Path(directory)))
        head = load_head(Path(directory), target)
        print(f"{directory}\n{report(head, target, parts)}", flush=True)


if __name__ == "__main__":
    main()
