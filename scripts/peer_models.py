"""Random models of Talon's shapes as GGUF files, for a peer to run (scripts/peer.py).

Only the sizes matter for speed: every matrix is random, and there is no vocabulary. Needs numpy, and
the peer's `gguf` package on the path.
"""

import numpy as np

MX_GROUP = 32  # inputs that share a scale in MXFP4
MX_BYTES = MX_GROUP // 2

LLAMA_1B = dict(hidden=2048, layers=16, heads=32, kv_heads=8, head=64, inner=8192, vocabulary=32000)
GPT_OSS_3B = dict(
    hidden=2880, layers=4, heads=64, kv_heads=8, head=64, inner=2880, vocabulary=32768, experts=32
)


class Writer:
    """A file with the settings that both architectures have."""

    def __init__(self, path, architecture, shape):
        import gguf  # only where a file is made

        self.gguf = gguf
        self.random = np.random.default_rng(1)
        self.shape = shape
        self.file = gguf.GGUFWriter(path, architecture)
        self.file.add_context_length(131072)
        self.file.add_embedding_length(shape["hidden"])
        self.file.add_block_count(shape["layers"])
        self.file.add_feed_forward_length(shape["inner"])
        self.file.add_head_count(shape["heads"])
        self.file.add_head_count_kv(shape["kv_heads"])
        self.file.add_key_length(shape["head"])
        self.file.add_value_length(shape["head"])
        self.file.add_rope_dimension_count(shape["head"])
        self.file.add_layer_norm_rms_eps(1e-5)
        self.file.add_vocab_size(shape["vocabulary"])
        self.file.add_tokenizer_model("none")

    def matrix(self, name, outputs, inputs):
        values = self.random.standard_normal((outputs, inputs), dtype=np.float32)
        self.file.add_tensor(name, values / np.float32(np.sqrt(inputs)))

    def vector(self, name, *sizes):
        self.file.add_tensor(name, np.ones(sizes, np.float32))

    def experts(self, name, outputs, inputs):
        """MXFP4: groups of an exponent, then codes. Any byte is a pair of codes."""
        groups = (self.shape["experts"], outputs, inputs // MX_GROUP)
        data = self.random.integers(0, 256, (*groups, 1 + MX_BYTES), dtype=np.uint8)
        data[..., 0] = 119  # makes values of about the other matrices' size
        kind = self.gguf.GGMLQuantizationType.MXFP4
        self.file.add_tensor(name, data.reshape(*groups[:2], -1), raw_dtype=kind)
        self.file.add_tensor(name.replace(".weight", ".bias"), np.zeros(groups[:2], np.float32))

    def attention(self, layer):
        hidden, head = self.shape["hidden"], self.shape["head"]
        rows = {"q": self.shape["heads"] * head, "k": self.shape["kv_heads"] * head}
        rows["v"] = rows["k"]
        self.vector(f"{layer}.attn_norm.weight", hidden)
        for name, outputs in rows.items():
            self.matrix(f"{layer}.attn_{name}.weight", outputs, hidden)
        self.matrix(f"{layer}.attn_output.weight", hidden, rows["q"])
        return rows

    def close(self):
        self.vector("output_norm.weight", self.shape["hidden"])
        self.matrix("token_embd.weight", self.shape["vocabulary"], self.shape["hidden"])
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def write_llama(path):
    shape = LLAMA_1B
    writer = Writer(path, "llama", shape)
    for i in range(shape["layers"]):
        layer = f"blk.{i}"
        writer.attention(layer)
        writer.vector(f"{layer}.ffn_norm.weight", shape["hidden"])
        writer.matrix(f"{layer}.ffn_gate.weight", shape["inner"], shape["hidden"])
        writer.matrix(f"{layer}.ffn_up.weight", shape["inner"], shape["hidden"])
        writer.matrix(f"{layer}.ffn_down.weight", shape["hidden"], shape["inner"])
    writer.close()


def write_gpt_oss(path):
    shape = GPT_OSS_3B
    hidden, inner, experts = shape["hidden"], shape["inner"], shape["experts"]
    writer = Writer(path, "gpt-oss", shape)
    writer.file.add_expert_count(experts)
    writer.file.add_expert_used_count(4)
    writer.file.add_expert_feed_forward_length(inner)
    writer.file.add_sliding_window(128)
    for i in range(shape["layers"]):
        layer = f"blk.{i}"
        for name, outputs in writer.attention(layer).items():
            writer.vector(f"{layer}.attn_{name}.bias", outputs)
        writer.vector(f"{layer}.attn_output.bias", hidden)
        writer.vector(f"{layer}.attn_sinks.weight", shape["heads"])
        writer.vector(f"{layer}.post_attention_norm.weight", hidden)
        writer.matrix(f"{layer}.ffn_gate_inp.weight", experts, hidden)
        writer.vector(f"{layer}.ffn_gate_inp.bias", experts)
        writer.experts(f"{layer}.ffn_gate_exps.weight", inner, hidden)
        writer.experts(f"{layer}.ffn_up_exps.weight", inner, hidden)
        writer.experts(f"{layer}.ffn_down_exps.weight", hidden, inner)
    writer.matrix("output.weight", shape["vocabulary"], hidden)
    writer.close()
