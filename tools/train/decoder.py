"""Batched generation by the target: thousands of rows in lockstep, one CUDA graph per step."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from data import Rows
from target import Target

_BUCKET = 256  # the attended cache length grows by this much


class LockstepDecoder:
    """Continues rows of ragged prompts without padding: row r takes its own prompt's token while
    position < prompt[r], the target's choice after that. Choice: argmax(logits + t * Gumbel noise),
    which is greedy for temperature 0 and exact sampling else.
    """

    def __init__(self, target: Target, rows: int, length: int):
        config, device = target.config, target.device
        shape = (rows, config.num_key_value_heads, length, target.head_dim)
        dtype = target.model.dtype
        self._target = target
        self._keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in target.trunk.layers]
        self._values = [torch.zeros_like(k) for k in self._keys]
        self._cos, self._sin = (x.to(dtype) for x in target.rope(length))
        self._tokens = torch.zeros(rows, length, dtype=torch.long, device=device)
        self._prompt = torch.zeros(rows, dtype=torch.long, device=device)
        self._temperature = torch.zeros(rows, 1, device=device)
        self._position = torch.zeros(1, dtype=torch.long, device=device)
        self._graphs: dict[tuple[int, bool], torch.cuda.CUDAGraph] = {}

    @torch.no_grad()
    def run(self, rows: Rows, temperature: Tensor) -> Tensor:
        """Returns the filled tokens. `rows` has the decoder's shape; temperature is [rows]."""
        self._tokens.copy_(rows.tokens)
        self._prompt.copy_(rows.prompt)
        self._temperature.copy_(temperature[:, None])
        start = self._prefill(int(rows.prompt.min()) - 1)
        noisy = bool((temperature > 0).any())
        length = self._tokens.shape[1]
        for position in range(start, length - 1):
            self._position.fill_(position)
            bucket = min(length, (position // _BUCKET + 1) * _BUCKET)
            self._replay(bucket, noisy)
        return self._tokens.to(torch.int32)

    def _replay(self, bucket: int, noisy: bool) -> None:
        if self._target.device != "cuda":
            self._step(bucket, noisy)
            return
        graph = self._graphs.get((bucket, noisy))
        if graph is None:
            self._step(bucket, noisy)  # warm-up; the step is idempotent at one position
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step(bucket, noisy)
            self._graphs[bucket, noisy] = graph
        graph.replay()

    def _prefill(self, end: int) -> int:
        """Fills the cache for positions [0, end), a few rows at a time; short prompts need none."""
        if end < 2 * _BUCKET:
            return 0
        chunk = max(1, 65536 // end)
        for first in range(0, self._tokens.shape[0], chunk):
            part = slice(first, first + chunk)

            def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                self._keys[layer][part, :, :end] = key
                self._values[layer][part, :, :end] = value
                return scaled_dot_product_attention(query, key, value, is_causal=True,
                                                    enable_gqa=True)

            self._trunk(self._tokens[part, :end], self._cos[:end], self._sin[:end], attend)
        return end

    def _step(self, bucket: int, noisy: bool) -> None:
        position = self._position
        visible = torch.arange(bucket, device=position.device) <= position
        bias = torch.zeros(bucket, dtype=self._cos.dtype, device=position.device)
        bias = bias.masked_fill(~visible, float("-inf"))

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            self._keys[layer].index_copy_(2, position, key)
            self._values[layer].index_copy_(2, position, value)
            keys, values = self._keys[layer][:, :, :bucket], self._values[layer][:, :, :bucket]
            # The query heads of one key head become its query rows: no repeated keys.
            grouped = query.reshape(keys.shape[0], keys.shape[1], -1, keys.shape[3])
            mask = bias.expand(*grouped.shape[:3], bucket)
            with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
                return scaled_dot_product_attention(grouped, keys, values,
                                                    attn_mask=mask).reshape(query.shape)

        x = self._tokens.index_select(1, position)
        cos, sin = self._cos.index_select(0, position), self._sin.index_select(0, position)
        logits = self._target.logits(self._trunk(x, cos, sin, attend)[:, -1])
        if noisy:
            gumbel = -torch.empty_like(logits).exponential_().log()
            logits = logits + self._temperature * gumbel
        given = self._tokens.index_select(1, position + 1)
        forced = (position + 1 < self._prompt)[:, None]
        chosen = torch.where(forced, given, logits.argmax(-1, keepdim=True))
        self._tokens.index_copy_(1, position + 1, chosen)

    def _trunk(self, tokens: Tensor, cos: Tensor, sin: Tensor, attend) -> Tensor:
        """The Llama-like trunk, with the caller's attention: attend(layer, q, k, v)."""
        x = self._target.embed(tokens)
        for index, layer in enumerate(self._target.trunk.layers):
            attention = layer.self_attn
            y = layer.input_layernorm(x)
            query, key, value = (p(y).unflatten(-1, (-1, self._target.head_dim))
                                 for p in (attention.q_proj, attention.k_proj, attention.v_proj))
            if hasattr(attention, "q_norm"):
                query, key = attention.q_norm(query), attention.k_norm(key)
            query, key, value = (z.transpose(1, 2) for z in (query, key, value))
            out = attend(index, _rotate(query, cos, sin), _rotate(key, cos, sin), value)
            x = x + attention.o_proj(out.transpose(1, 2).flatten(2))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self._target.trunk.norm(x)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
