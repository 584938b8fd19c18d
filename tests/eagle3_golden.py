"""Random EAGLE-3 heads and their references, in plain Python: written from the specification alone,
so that `talon check` is compared with something that shares no code with it."""

import json
import math
import random
import struct

FORMATS = {"F32": "f", "BF16": "H", "I32": "i", "I64": "q", "BOOL": "B", "I8": "b"}


def write_tensors(path, tensors):
    """tensors: {name: (dtype, shape, flat list)}. Wide types first, so all are aligned."""
    header, data = {}, b""
    for name, (dtype, shape, values) in sorted(tensors.items(), key=lambda t: t[1][0] != "I64"):
        raw = struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    """{name: rows of floats or ints, or one list if it has one dimension}"""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, info in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        form = FORMATS[info["dtype"]]
        flat = list(struct.unpack(f"<{(end - begin) // struct.calcsize(form)}{form}",
                                  raw[8 + length + begin : 8 + length + end]))
        cols = info["shape"][-1]
        rows = [flat[i : i + cols] for i in range(0, len(flat), cols)]
        tensors[name] = rows if len(info["shape"]) == 2 else flat
    return tensors


class Head:
    """A head of the given configuration with random weights; `target` are the target's tensors."""

    def __init__(self, config, target, num_layers, seed=1):
        self.config, self.random = config, random.Random(seed)
        layer = config.get("transformer_layer_config", config)
        self.speculators = layer is not config
        self.hidden, self.heads = layer["hidden_size"], layer["num_attention_heads"]
        self.kv_heads, self.dim = layer["num_key_value_heads"], layer["head_dim"]
        self.eps, self.theta = layer.get("rms_norm_eps", 1e-6), layer["rope_theta"]
        self.vocab = layer["vocab_size"]
        self.draft_vocab = config.get("draft_vocab_size", self.vocab)
        self.target_hidden = config.get("target_hidden_size", self.hidden)
        self.residual_norm = config.get("norm_before_residual", self.speculators)
        self.attention_bias = layer.get("attention_bias", False)
        self.captured = self.capture(num_layers)
        self.tensors, self.shared = {}, {}
        self.make_tensors(layer["intermediate_size"])
        self.shared["embed_tokens.weight"] = target["model.embed_tokens.weight"]
        self.shared["lm_head.weight"] = target["lm_head.weight"]
        ids = sorted(self.random.sample(range(self.vocab), self.draft_vocab))
        self.target_ids = ids if self.draft_vocab < self.vocab else list(range(self.vocab))

    def capture(self, n):
        key = "eagle_aux_hidden_state_layer_ids"
        if key in self.config:
            return self.config[key]
        outputs = self.config.get("eagle_config", {}).get(key)
        return [i + 1 for i in outputs] if outputs else [2, n // 2, n - 3]

    def add(self, name, rows, cols=0):
        base = 1.0 if "norm" in name else 0.0

        def values(count):  # exact in float32
            return [base + self.random.randint(-2**20, 2**20) / 2**22 for _ in range(count)]

        self.tensors[name] = [values(cols) for _ in range(rows)] if cols else values(rows)

    def make_tensors(self, ffn):
        h, q, kv = self.hidden, self.heads * self.dim, self.kv_heads * self.dim
        features = len(self.captured) * self.target_hidden
        self.add("fc.weight", h, features)
        for name, rows, cols in [("q_proj", q, 2 * h), ("k_proj", kv, 2 * h), ("v_proj", kv, 2 * h),
                                 ("o_proj", h, q)]:
            self.add(f"midlayer.self_attn.{name}.weight", rows, cols)
            if self.attention_bias:
                self.add(f"midlayer.self_attn.{name}.bias", rows)
        for name, rows, cols in [("gate_proj", ffn, h), ("up_proj", ffn, h), ("down_proj", h, ffn)]:
            self.add(f"midlayer.mlp.{name}.weight", rows, cols)
        for name in ("midlayer.input_layernorm", "midlayer.hidden_norm",
                     "midlayer.post_attention_layernorm", "norm"):
            self.add(name + ".weight", h)
        if self.draft_vocab < self.vocab or h != self.target_hidden:
            self.add("lm_head.weight", self.draft_vocab, h)
        if h != self.target_hidden:
            self.add("embed_tokens.weight", self.vocab, h)
        if self.config.get("bias"):
            self.add("fc.bias", h)
        if self.config.get("norm_before_fc"):
            self.add("input_norm.weight", features)
        if self.config.get("fc_norm"):
            for i in range(len(self.captured)):
                self.add(f"fc_norm.{i}.weight", self.target_hidden)

    def get(self, name):
        return self.tensors.get(name, self.shared.get(name))

    def linear(self, name, x):
        bias = self.get(name + ".bias") or [0.0] * len(self.get(name + ".weight"))
        return [sum(map(lambda a, b: a * b, row, x)) + b
                for row, b in zip(self.get(name + ".weight"), bias)]

    def norm(self, name, x):
        scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + self.eps)
        return [v * scale * w for v, w in zip(x, self.get(name + ".weight"))]

    def rope(self, x, position):
        half, out = self.dim // 2, list(x)
        for start in range(0, len(x), self.dim):
            for i in range(half):
                angle = position * self.theta ** (-2 * i / self.dim)
                a, b = x[start + i], x[start + half + i]
                out[start + i] = a * math.cos(angle) - b * math.sin(angle)
                out[start + half + i] = b * math.cos(angle) + a * math.sin(angle)
        return out

    def fuse(self, features):
        if self.config.get("norm_before_fc"):
            features = self.norm("input_norm", features)
        if self.config.get("fc_norm"):
            size = self.target_hidden
            features = sum((self.norm(f"fc_norm.{i}", features[i * size : (i + 1) * size])
                            for i in range(len(self.captured))), [])
        return self.linear("fc", features)

    def forward(self, g, token, position, keys):
        """One row; keys: the (k, v) it sees. Returns (k, v), out, next feature, logits."""
        x, r = self.inputs(g, self.get("embed_tokens.weight")[token])
        q = self.rope(self.linear("midlayer.self_attn.q_proj", x), position)
        own = (self.rope(self.linear("midlayer.self_attn.k_proj", x), position),
               self.linear("midlayer.self_attn.v_proj", x))
        attended = self.attend(q, keys + [own])
        r = [a + b for a, b in zip(r, self.linear("midlayer.self_attn.o_proj", attended))]
        out = self.mlp("midlayer.", r)
        return own, out, *self.outputs(out)

    def inputs(self, g, embedding):
        """The layer's input and its residual."""
        h = self.norm("midlayer.hidden_norm", g)
        x = self.norm("midlayer.input_layernorm", embedding) + h
        return x, h if self.residual_norm else g

    def outputs(self, out):
        """The next feature and the logits."""
        normed = self.norm("norm", out)
        scale = self.config.get("logit_scale", 1)
        logits = [scale * v for v in self.linear("lm_head", normed)]
        return normed if self.config.get("norm_output") else out, logits

    def attend(self, q, keys):
        attended = []
        for head in range(self.heads):
            at = head // (self.heads // self.kv_heads) * self.dim
            mine = q[head * self.dim : (head + 1) * self.dim]
            weights = [math.exp(sum(a * b for a, b in zip(mine, k[at : at + self.dim]))
                                / math.sqrt(self.dim)) for k, _ in keys]
            attended += [sum(w * v[at + i] for w, (_, v) in zip(weights, keys)) / sum(weights)
                         for i in range(self.dim)]
        return attended

    def mlp(self, layer, r):
        z = self.norm(layer + "post_attention_layernorm", r)
        gate, up = self.linear(layer + "mlp.gate_proj", z), self.linear(layer + "mlp.up_proj", z)
        act = [a / (1 + math.exp(-a)) * b for a, b in zip(gate, up)]
        return [a + b for a, b in zip(r, self.linear(layer + "mlp.down_proj", act))]

    def best(self, logits, k):
        total = math.log(sum(math.exp(v) for v in logits))
        order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:k]
        return [(self.target_ids[i], logits[i] - total) for i in order]

    def tree(self, row, length, keys, k, steps, kept):
        """The dynamic tree after the last prefill row: tokens, parents (-1: root), scores."""
        nodes = [(token, -1, score) for token, score in self.best(row[3], k)]  # by flat id
        state, beam, first = {-1: (row[2], keys)}, list(range(k)), 0
        for level in range(2, steps + 1):
            first = len(nodes)
            for flat in beam:
                token, parent, score = nodes[flat]
                feature, seen = state[parent]
                own, _, following, logits = self.forward(feature, token, length + level - 2, seen)
                state[flat] = (following, seen + [own])
                nodes += [(t, flat, score + p) for t, p in self.best(logits, k)]
            beam = sorted(range(first, len(nodes)), key=lambda f: (-nodes[f][2], f))[:k]
        order = sorted(sorted(range(len(nodes)), key=lambda f: (-nodes[f][2], f))[:kept])
        parents = [order.index(nodes[f][1]) if nodes[f][1] >= 0 else -1 for f in order]
        return [nodes[f][0] for f in order], parents, [nodes[f][2] for f in order]

    def golden(self, ids, sampled, hidden_of, k, steps, kept):
        """The tensors of the golden file; hidden_of[layer][row] are the target's layer inputs."""
        features = [sum((hidden_of[layer][t] for layer in self.captured), [])
                    for t in range(len(ids))]
        rows, keys = [], []
        for t, token in enumerate(ids[1:] + [sampled]):
            rows.append(self.forward(self.fuse(features[t]), token, t, keys))
            keys = keys + [rows[-1][0]]
        tokens, parents, scores = self.tree(rows[-1], len(ids), keys, k, steps, kept)
        ints = {"input_ids": ids, "sampled": [sampled], "capture_layers": self.captured,
                "tree.topk_steps_total": [k, steps, kept], "tree.tokens": tokens,
                "tree.parents": parents}
        floats = {"features": features, "prefill.hidden": [row[1] for row in rows],
                  "prefill.logits": [row[3] for row in rows]}
        golden = {name: ("I32", [len(values)], values) for name, values in ints.items()}
        golden["tree.scores"] = ("F32", [len(scores)], scores)
        golden |= {name: ("F32", [len(v), len(v[0])], sum(v, [])) for name, v in floats.items()}
        return golden

    def checkpoint(self, rename=lambda name: name):
        """The tensors of model.safetensors."""
        file = {}
        for name, values in self.tensors.items():
            matrix = isinstance(values[0], list)
            file[rename(name)] = (("F32", [len(values), len(values[0])], sum(values, [])) if matrix
                                  else ("F32", [len(values)], values))
        if self.draft_vocab < self.vocab:
            offsets = [target - i for i, target in enumerate(self.target_ids)]
            file[rename("d2t")] = ("I64", [self.draft_vocab], offsets)
            marks = [int(i in set(self.target_ids)) for i in range(self.vocab)]
            file[rename("t2d")] = ("BOOL", [self.vocab], marks)
        return file
