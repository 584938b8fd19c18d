"""EAGLE heads: one decoder layer over token embedding and feature, which makes the next feature."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class HeadShape:
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    draft_vocab: int
    captured: int  # number of target layers whose input the head reads
    norm_eps: float


class RmsNorm(nn.Module):

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):

    def __init__(self, shape: HeadShape, inputs: int):
        super().__init__()
        self.q_proj = linear(inputs, shape.heads * shape.head_dim)
        self.k_proj = linear(inputs, shape.kv_heads * shape.head_dim)
        self.v_proj = linear(inputs, shape.kv_heads * shape.head_dim)
        self.o_proj = linear(shape.heads * shape.head_dim, shape.hidden)


class Mlp(nn.Module):

    def __init__(self, shape: HeadShape):
        super().__init__()
        self.gate_proj = linear(shape.hidden, shape.ffn)
        self.up_proj = linear(shape.hidden, shape.ffn)
        self.down_proj = linear(shape.ffn, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class _MidLayer(nn.Module):

    def __init__(self, shape: HeadShape):
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden, shape.norm_eps)
        self.hidden_norm = RmsNorm(shape.hidden, shape.norm_eps)
        self.self_attn = Attention(shape, 2 * shape.hidden)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.norm_eps)
        self.mlp = Mlp(shape)


class DraftHead(nn.Module):
    """What EAGLE heads have in common. Parameter names are those of the published formats.

    A draft row is: `project` (what is added to, query, key, value of feature and token), attention
    (the caller's: training and evaluation lay rows out differently), `finish`, `logits`.
    """

    def __init__(self, shape: HeadShape, draft_ids: Tensor, rope: tuple[Tensor, Tensor]):
        """draft_ids: [draft_vocab] target ids, ascending. rope: cos, sin, [positions, head_dim]."""
        super().__init__()
        self.shape = shape
        to_draft = torch.full((shape.vocab,), -1, dtype=torch.long)
        to_draft[draft_ids.cpu()] = torch.arange(shape.draft_vocab)
        self.register_buffer("draft_ids", draft_ids.long(), persistent=False)
        self.register_buffer("to_draft", to_draft, persistent=False)  # -1: not in the draft vocab
        self.register_buffer("cos", rope[0].float(), persistent=False)
        self.register_buffer("sin", rope[1].float(), persistent=False)

    def _query_key_value(self, attention: Attention, x: Tensor,
                         positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (p(x).unflatten(-1, (-1, self.shape.head_dim)) for p in
                             (attention.q_proj, attention.k_proj, attention.v_proj))
        return self._rotate(query, positions), self._rotate(key, positions), value

    @staticmethod
    def _finish(layer: nn.Module, x: Tensor, attended: Tensor) -> Tensor:
        x = x + layer.self_attn.o_proj(attended).float()
        return x + layer.mlp(layer.post_attention_layernorm(x)).float()

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)
        first, second = x.float().chunk(2, -1)
        return (x.float() * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)


class Eagle3Head(DraftHead):
    """Reads several layers of the target, and has an output matrix for a small vocabulary."""

    def __init__(self, shape: HeadShape, draft_ids: Tensor, rope: tuple[Tensor, Tensor]):
        super().__init__(shape, draft_ids, rope)
        self.fc = linear(shape.captured * shape.hidden, shape.hidden)
        self.midlayer = _MidLayer(shape)
        self.norm = RmsNorm(shape.hidden, shape.norm_eps)
        self.lm_head = linear(shape.hidden, shape.draft_vocab)

    def fuse(self, features: Tensor) -> Tensor:
        """Captured target features [..., captured * hidden] -> [..., hidden]."""
        return self.fc(features.float()).float()

    def project(self, feature: Tensor, embedding: Tensor,
                positions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """[.., hidden] each, positions [..] -> x [.., hidden], q [.., heads, head_dim], k, v."""
        layer = self.midlayer
        x = torch.cat([layer.input_layernorm(embedding), layer.hidden_norm(feature)], -1)
        return feature, *self._query_key_value(layer.self_attn, x, positions)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """x [..., hidden], attended [..., heads * head_dim] -> the next step's feature."""
        return self._finish(self.midlayer, x, attended)

    def logits(self, out: Tensor) -> Tensor:
        return self.lm_head(self.norm(out))


class Eagle1Head(DraftHead):
    """EAGLE and EAGLE-2: the feature is the target's last hidden state, and so is what the head
    makes; the output matrix is the target's."""

    def __init__(self, shape: HeadShape, output: Tensor, rope: tuple[Tensor, Tensor]):
        """output: the target's output matrix."""
        super().__init__(shape, torch.arange(shape.vocab), rope)
        self.fc = nn.Linear(2 * shape.hidden, shape.hidden)
        layer = nn.Module()
        layer.self_attn = Attention(shape, shape.hidden)
        layer.post_attention_layernorm = RmsNorm(shape.hidden, shape.norm_eps)
        layer.mlp = Mlp(shape)
        self.layers = nn.ModuleList([layer])
        self.register_buffer("output", output, persistent=False)

    def fuse(self, features: Tensor) -> Tensor:
        return features.float()

    def project(self, feature: Tensor, embedding: Tensor,
                positions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = self.fc(torch.cat([embedding.float(), feature], -1)).float()
        return x, *self._query_key_value(self.layers[0].self_attn, x, positions)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        return self._finish(self.layers[0], x, attended)

    def logits(self, out: Tensor) -> Tensor:
        return out @ self.output.to(out.dtype).T
