"""A plain Llama for training: fast, few shapes, the parameter names of Hugging Face checkpoints.

Everything but attention works on rows flattened to [tokens, size], so one compiled kernel serves
batches of any row length with the same number of tokens.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from muon import Muon


def load_tensors(directory: Path) -> dict[str, Tensor]:
    """A checkpoint's, in f32; codes of quantise.py as the values that they stand for."""
    tensors = load_file(directory / "model.safetensors")
    scales = {name: tensors.pop(name) for name in list(tensors) if name.endswith(".weight_scale")}
    for name, scale in scales.items():
        matrix = name.removesuffix("_scale")
        tensors[matrix] = tensors[matrix].float() * scale
    return {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [tokens, heads, size]; cos, sin [tokens, 1, size]."""
    x = x.float()
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def _before_attention(x, norm, query, key, value, cos, sin, eps: float, size: int, dtype):
    y = rms_norm(x, norm, eps).to(dtype)
    q, k, v = (F.linear(y, w.to(dtype)).view(x.shape[0], -1, size) for w in (query, key, value))
    group = q.shape[1] // k.shape[1]
    q, k = _rotate(q, cos, sin).to(dtype), _rotate(k, cos, sin).to(dtype)
    return q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)


def _after_attention(x, attended, out, norm, gate, up, down, eps: float, dtype):
    x = x + F.linear(attended, out.to(dtype)).float()
    y = rms_norm(x, norm, eps).to(dtype)
    y = F.silu(F.linear(y, gate.to(dtype))) * F.linear(y, up.to(dtype))
    return x + F.linear(y, down.to(dtype)).float()


def _logits(x, norm, embedding, eps: float, dtype):
    return F.linear(rms_norm(x, norm, eps).to(dtype), embedding.to(dtype)).float()


def _label_loss(x, norm, embedding, labels, weights, eps: float, dtype):
    """Cross entropy times weights, a sum."""
    loss = F.cross_entropy(_logits(x, norm, embedding, eps, dtype), labels, reduction="none")
    return (loss * weights).sum()


def _teacher_loss(x, norm, embedding, teacher, weights, eps: float, dtype):
    """Weighted cross entropy with the teacher's distribution; teacher: logits [tokens, vocab]."""
    log_p = _logits(x, norm, embedding, eps, dtype).log_softmax(-1)
    loss = -(teacher.float().softmax(-1) * log_p).sum(-1)
    return (loss * weights).sum() / weights.sum()


_KERNELS = {f.__name__: f for f in (_before_attention, _after_attention, _label_loss, _teacher_loss)}


def compile_kernels() -> None:
    for name, function in _KERNELS.items():
        _KERNELS[name] = torch.compile(function, dynamic=False)


class _Part(nn.Module):
    """Named weights, as `NAME.weight`."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]):
        super().__init__()
        for name, shape in shapes.items():
            part = nn.Module()
            part.weight = nn.Parameter(torch.zeros(shape))
            self.add_module(name, part)


class _Layer(_Part):

    def __init__(self, hidden: int, ffn: int, heads: int, kv_heads: int, size: int):
        super().__init__({"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)})
        self.self_attn = _Part({"q_proj": (heads * size, hidden), "k_proj": (kv_heads * size, hidden),
                                "v_proj": (kv_heads * size, hidden), "o_proj": (hidden, heads * size)})
        self.mlp = _Part({"gate_proj": (ffn, hidden), "up_proj": (ffn, hidden),
                          "down_proj": (hidden, ffn)})


class Llama(nn.Module):

    def __init__(self, directory: Path, device: str):
        super().__init__()
        config = json.loads((directory / "config.json").read_text())
        self.eps, self.size = config["rms_norm_eps"], config["head_dim"]
        self.vocab, hidden = config["vocab_size"], config["hidden_size"]
        self.theta = config["rope_parameters"]["rope_theta"]
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.model = _Part({"embed_tokens": (self.vocab, hidden), "norm": (hidden,)})
        self.model.layers = nn.ModuleList(
            _Layer(hidden, config["intermediate_size"], config["num_attention_heads"],
                   config["num_key_value_heads"], self.size)
            for _ in range(config["num_hidden_layers"]))
        tensors = load_tensors(directory)
        tensors.pop("lm_head.weight", None)  # tied
        self.load_state_dict(tensors)
        self.to(device)
        self._rope: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.detach().to("cpu", torch.bfloat16).contiguous()
                   for name, value in self.state_dict().items()}
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})

    def _positions(self, rows: int, length: int) -> tuple[Tensor, Tensor]:
        if (rows, length) not in self._rope:
            device = self.model.norm.weight.device
            steps = torch.arange(0, self.size, 2, device=device).float() / self.size
            angles = torch.arange(length, device=device).float()[:, None] / self.theta ** steps
            angles = torch.cat([angles, angles], -1).repeat(rows, 1)[:, None]
            self._rope[rows, length] = (angles.cos(), angles.sin())
        return self._rope[rows, length]

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [rows, length] -> the last layer's output, before the norm, [tokens, hidden]."""
        rows, length = tokens.shape
        cos, sin = self._positions(rows, length)
        x = F.embedding(tokens.reshape(-1), self.model.embed_tokens.weight)
        for layer in self.model.layers:
            a, m = layer.self_attn, layer.mlp
            heads = _KERNELS["_before_attention"](
                x, layer.input_layernorm.weight, a.q_proj.weight, a.k_proj.weight, a.v_proj.weight,
                cos, sin, self.eps, self.size, self.dtype)
            q, k, v = (h.reshape(rows, length, -1, self.size).transpose(1, 2) for h in heads)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            out = out.transpose(1, 2).reshape(rows * length, -1)
            x = _KERNELS["_after_attention"](
                x, out, a.o_proj.weight, layer.post_attention_layernorm.weight, m.gate_proj.weight,
                m.up_proj.weight, m.down_proj.weight, self.eps, self.dtype)
        return x

    def logits(self, tokens: Tensor) -> Tensor:
        out = _logits(self(tokens), self.model.norm.weight, self.model.embed_tokens.weight, self.eps,
                      self.dtype)
        return out.view(*tokens.shape, -1)

    def loss_sum(self, tokens: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Cross entropy times weights, summed over the tokens."""
        return _KERNELS["_label_loss"](self(tokens), self.model.norm.weight,
                                       self.model.embed_tokens.weight, labels.reshape(-1),
                                       weights.reshape(-1), self.eps, self.dtype)

    def teacher_loss(self, tokens: Tensor, teacher: Tensor, weights: Tensor) -> Tensor:
        return _KERNELS["_teacher_loss"](self(tokens), self.model.norm.weight,
                                         self.model.embed_tokens.weight,
                                         teacher.reshape(-1, self.vocab), weights.reshape(-1),
                                         self.eps, self.dtype)


def optimizer_of(model: Llama, rate: float, fused: bool) -> torch.optim.Optimizer:
    return _adamw(list(model.parameters()), rate, fused)


def muon_of(model: Llama, rate: float, fused: bool) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embedding (the output matrix, too) and the norms."""
    matrices = [p for p in model.model.layers.parameters() if p.dim() > 1]
    inside = set(map(id, matrices))
    rest = [p for p in model.parameters() if id(p) not in inside]
    return [Muon(matrices, rate), _adamw(rest, rate, fused)]


def _adamw(parameters: list[Tensor], rate: float, fused: bool) -> torch.optim.Optimizer:
    matrices = [p for p in parameters if p.dim() > 1]
    vectors = [p for p in parameters if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=fused)
