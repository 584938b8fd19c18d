"""The target model: frozen teacher of the head, read through Hugging Face transformers."""

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer


class Target:
    """Any Hugging Face causal LM whose trunk is Llama-like (`model.model.layers`)."""

    def __init__(self, directory: str, device: str, capture: list[int] | None = None):
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype,
                                                          attn_implementation="sdpa")
        self.model = self.model.to(device).eval().requires_grad_(False)
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.config = self.model.config
        self.device = device
        self.trunk = self.model.model
        layers = self.config.num_hidden_layers
        self.default_capture = [2, layers // 2, layers - 3]
        self.capture = capture or self.default_capture
        self._output = self.model.get_output_embeddings().weight.float()

    @property
    def head_dim(self) -> int:
        size = getattr(self.config, "head_dim", None)
        return size or self.config.hidden_size // self.config.num_attention_heads

    @property
    def output_weight(self) -> Tensor:
        """The output embedding, [vocab, hidden] float32."""
        return self._output

    def embed(self, tokens: Tensor) -> Tensor:
        return self.model.get_input_embeddings()(tokens)

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 logits of the final hidden state: bf16 ones tie too often to rank tokens."""
        with torch.autocast(self.device, enabled=False):
            return hidden.float() @ self._output.T

    @torch.no_grad()
    def teach(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens [batch, length] -> captured features [.., captured * hidden], final hidden."""
        out = self.trunk(input_ids=tokens, output_hidden_states=True, use_cache=False)
        features = torch.cat([out.hidden_states[i] for i in self.capture], -1)
        return features, out.last_hidden_state

    @torch.no_grad()
    def rope(self, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin of the target's own rotary embedding, each [positions, head_dim] float32."""
        index = torch.arange(positions, device=self.device)[None]
        cos, sin = self.trunk.rotary_emb(torch.zeros(1, device=self.device), index)
        return cos[0].float(), sin[0].float()
