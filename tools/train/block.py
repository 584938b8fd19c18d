"""A block head: a few decoder layers that draft a whole block of tokens in one pass.

Rows of a block are [anchor, mask, mask, ...]: the anchor is the last committed token, and row j
predicts the token j places behind it. They attend to keys and values made of the target's features
of all tokens before the anchor, and causally to each other (JetSpec's form of DFlash).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from head import Attention, Mlp, RmsNorm, linear


@dataclass(frozen=True)
class BlockShape:
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    layers: int
    block: int  # rows, the anchor included
    captured: int  # number of target layers whose output the head reads
    mask_token: int
    norm_eps: float


class _Layer(nn.Module):

    def __init__(self, shape: BlockShape):
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden, shape.norm_eps)
        self.self_attn = Attention(shape, shape.hidden)
        self.self_attn.q_norm = RmsNorm(shape.head_dim, shape.norm_eps)
        self.self_attn.k_norm = RmsNorm(shape.head_dim, shape.norm_eps)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.norm_eps)
        self.mlp = Mlp(shape)


class BlockHead(nn.Module):
    """Parameter names are those of published DFlash checkpoints. Embedding and output matrix are
    the target's."""

    def __init__(self, shape: BlockShape, rope: tuple[Tensor, Tensor]):
        """rope: cos, sin, [positions, head_dim]."""
        super().__init__()
        self.shape = shape
        self.fc = linear(shape.captured * shape.hidden, shape.hidden)
        self.hidden_norm = RmsNorm(shape.hidden, shape.norm_eps)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.hidden, shape.norm_eps)
        self.register_buffer("cos", rope[0].float(), persistent=False)
        self.register_buffer("sin", rope[1].float(), persistent=False)

    def draft(self, features: Tensor, embedding: Tensor, anchors: Tensor) -> Tensor:
        """The rows behind the anchors, after the last norm: [batch, anchors, block - 1, hidden].

        features: [batch, length, captured * hidden]. embedding: of the blocks' tokens, [batch,
        anchors, block, hidden]. anchors: their places, [batch, anchors].
        """
        context = self.hidden_norm(self.fc(features.float()))
        everywhere = torch.arange(features.shape[1], device=features.device)
        places = anchors[..., None] + torch.arange(self.shape.block, device=anchors.device)
        x = embedding.float()
        for layer in self.layers:
            known = self._key_value(layer, context, everywhere)
            y = layer.input_layernorm(x)
            own = self._key_value(layer, y, places)
            query = self._heads(layer.self_attn.q_proj(y))
            query = self._rotate(layer.self_attn.q_norm(query), places)
            x = x + layer.self_attn.o_proj(self._attend(query, known, own, anchors)).float()
            x = x + layer.mlp(layer.post_attention_layernorm(x)).float()
        return self.norm(x)[:, :, 1:]

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.shape.head_dim))

    def _key_value(self, layer: _Layer, x: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        key = layer.self_attn.k_norm(self._heads(layer.self_attn.k_proj(x)))
        return self._rotate(key, places), self._heads(layer.self_attn.v_proj(x)).float()

    def _attend(self, query: Tensor, known: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor],
                anchors: Tensor) -> Tensor:
        """query [b, a, rows, heads, size]; known [b, length, kv_heads, size]; own [b, a, rows, ..]"""
        query = query.unflatten(3, (self.shape.kv_heads, -1)) * self.shape.head_dim ** -0.5
        before = torch.einsum("bajkgd,bskd->bakgjs", query, known[0])
        length, rows = known[0].shape[1], query.shape[2]
        later = torch.arange(length, device=anchors.device) >= anchors[..., None]
        before = before.masked_fill(later[:, :, None, None, None], float("-inf"))
        inside = torch.einsum("bajkgd,baikd->bakgji", query, own[0])
        future = torch.ones(rows, rows, dtype=torch.bool, device=anchors.device).triu(1)
        inside = inside.masked_fill(future, float("-inf"))
        weights = torch.cat([before, inside], -1).float().softmax(-1)
        out = torch.einsum("bakgjs,bskd->bajkgd", weights[..., :length], known[1])
        out = out + torch.einsum("bakgji,baikd->bajkgd", weights[..., length:], own[1])
        return out.flatten(3)

    def _rotate(self, x: Tensor, places: Tensor) -> Tensor:
        cos, sin = self.cos[places].unsqueeze(-2), self.sin[places].unsqueeze(-2)
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin
