"""Attention of one training-time-test step, in memory linear in the sequence length.

At depth j of a draft chain that starts at row p, the query sees the true rows 0..p (first step
of the test) and the rows the chain itself made, one per earlier depth, at the same index p. So the
score matrix is a causal square plus one diagonal per depth. The square goes through the flash
kernel; the diagonals are element-wise; both meet in the log-sum-exp.
"""

import torch
from torch import Tensor

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention
_FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_backward


def chain_attention(query: Tensor, key: Tensor, value: Tensor, chain_keys: list[Tensor],
                    chain_values: list[Tensor]) -> Tensor:
    """All tensors [batch, heads, rows, head_dim]; returns the attended values, same shape.

    `key`, `value`: the true rows, causal. `chain_keys[j]`, `chain_values[j]`: the chain's own
    rows, each visible only to the query of the same index.
    """
    if not chain_keys:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    keys, values = torch.stack(chain_keys), torch.stack(chain_values)
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        return FlashChain.apply(query, key, value, keys, values)
    return dense_chain(query, key, value, keys, values)


def dense_chain(query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The slow twin: quadratic memory, any device and type."""
    scale = query.shape[-1] ** -0.5
    rows = query.shape[2]
    square = query @ key.transpose(-1, -2) * scale
    future = torch.ones(rows, rows, dtype=torch.bool, device=query.device).triu(1)
    square = square.masked_fill(future, float("-inf"))
    diagonals = (query * keys).sum(-1).movedim(0, -1) * scale
    weights = torch.cat([square, diagonals], -1).float().softmax(-1).to(query.dtype)
    own = (weights[..., rows:].movedim(-1, 0)[..., None] * values).sum(0)
    return weights[..., :rows] @ value + own


class FlashChain(torch.autograd.Function):
    """The flash kernel's square merged with the diagonals.

    The backward needs no second merge: given the *merged* output and log-sum-exp, the flash
    backward computes exactly the square's share of the full softmax's gradient.
    """

    @staticmethod
    def forward(ctx, query, key, value, keys, values):
        scale = query.shape[-1] ** -0.5
        square, square_lse, *extra = _FLASH(query, key, value, 0.0, True, False, scale=scale)
        scores = (query.float() * keys.float()).sum(-1) * scale
        lse = torch.logsumexp(torch.cat([square_lse[None], scores]), 0)
        weights = (scores - lse).exp()
        out = (square_lse - lse).exp()[..., None] * square.float()
        out = (out + (weights[..., None] * values.float()).sum(0)).to(query.dtype)
        ctx.save_for_backward(query, key, value, keys, values, out, lse, weights, *extra[4:6])
        ctx.lengths = extra[:4]
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, keys, values, out, lse, weights, seed, offset = ctx.saved_tensors
        grad_out = grad_out.to(out.dtype).contiguous()
        grad_query, grad_key, grad_value = _FLASH_BACKWARD(
            grad_out, query, key, value, out, lse, *ctx.lengths, 0.0, True, seed, offset,
            scale=ctx.scale)
        grad32 = grad_out.float()
        delta = (grad32 * out.float()).sum(-1)
        grad_scores = weights * ((grad32 * values.float()).sum(-1) - delta) * ctx.scale
        own = (grad_scores[..., None] * keys.float()).sum(0)
        grad_query = (grad_query.float() + own).to(query.dtype)
        grad_keys = (grad_scores[..., None] * query.float()).to(keys.dtype)
        grad_values = (weights[..., None] * grad32).to(values.dtype)
        return grad_query, grad_key, grad_value, grad_keys, grad_values
