"""The EAGLE-3 head: one decoder layer over (token embedding, feature), and its small vocabulary."""

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


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class _Attention(nn.Module):

    def __init__(self, shape: HeadShape):
        super().__init__()
        self.q_proj = _linear(2 * shape.hidden, shape.heads * shape.head_dim)
        self.k_proj = _linear(2 * shape.hidden, shape.kv_heads * shape.head_dim)
        self.v_proj = _linear(2 * shape.hidden, shape.kv_heads * shape.head_dim)
        self.o_proj = _linear(shape.heads * shape.head_dim, shape.hidden)


class _Mlp(nn.Module):

    def __init__(self, shape: HeadShape):
        super().__init__()
        self.gate_proj = _linear(shape.hidden, shape.ffn)
        self.up_proj = _linear(shape.hidden, shape.ffn)
        self.down_proj = _linear(shape.ffn, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class _MidLayer(nn.Module):

    def __init__(self, shape: HeadShape):
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden, shape.norm_eps)
        self.hidden_norm = RmsNorm(shape.hidden, shape.norm_eps)
        self.self_attn = _Attention(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.norm_eps)
        self.mlp = _Mlp(shape)


class Eagle3Head(nn.Module):
    """Parameter names are those of the official checkpoint format.

    A draft row is: `project` (query, key, value of feature and token), attention (the caller's:
    training and evaluation lay rows out differently), `finish`, `logits`.
    """

    def __init__(self, shape: HeadShape, draft_ids: Tensor, rope: tuple[Tensor, Tensor]):
        """draft_ids: [draft_vocab] target ids, ascending. rope: cos, sin, [positions, head_dim]."""
        super().__init__()
        self.shape = shape
        self.fc = _linear(shape.captured * shape.hidden, shape.hidden)
        self.midlayer = _MidLayer(shape)
        self.norm = RmsNorm(shape.hidden, shape.norm_eps)
        self.lm_head = _linear(shape.hidden, shape.draft_vocab)
        to_draft = torch.full((shape.vocab,), -1, dtype=torch.long)
        to_draft[draft_ids.cpu()] = torch.arange(shape.draft_vocab)
        self.register_buffer("draft_ids", draft_ids.long(), persistent=False)
        self.register_buffer("to_draft", to_draft, persistent=False)  # -1: not in the draft vocab
        self.register_buffer("cos", rope[0].float(), persistent=False)
        self.register_buffer("sin", rope[1].float(), persistent=False)

    def fuse(self, features: Tensor) -> Tensor:
        """Captured target features [..., captured * hidden] -> [..., hidden]."""
        return self.fc(features.float()).float()

    def project(self, feature: Tensor, embedding: Tensor,
                positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[.., hidden] each, positions [..] -> q [.., heads, head_dim], k, v [.., kv_heads, ..]."""
        layer, size = self.midlayer, self.shape.head_dim
        x = torch.cat([layer.input_layernorm(embedding), layer.hidden_norm(feature)], -1)
        query, key, value = (p(x).unflatten(-1, (-1, size)) for p in
                             (layer.self_attn.q_proj, layer.self_attn.k_proj,
                              layer.self_attn.v_proj))
        return self._rotate(query, positions), self._rotate(key, positions), value

    def finish(self, feature: Tensor, attended: Tensor) -> Tensor:
        """feature [..., hidden], attended [..., heads * head_dim] -> the next step's feature."""
        layer = self.midlayer
        x = feature + layer.self_attn.o_proj(attended).float()
        return x + layer.mlp(layer.post_attention_layernorm(x)).float()

    def logits(self, out: Tensor) -> Tensor:
        return self.lm_head(self.norm(out))

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)
        first, second = x.float().chunk(2, -1)
        return (x.float() * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)
