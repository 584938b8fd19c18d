"""Random gpt_oss and qwen3_moe models and their references, in plain Python: written from the
specification alone, so that `talon check` is compared with something that shares no code with it."""

import math
import random
import struct

VALUES = [0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6]  # values of MXFP4 codes


def round32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def matvec(rows, x, bias=None):
    out = [sum(a * b for a, b in zip(row, x)) for row in rows]
    return out if bias is None else [a + b for a, b in zip(out, bias)]


def softmax(logits):
    largest = max(logits)
    weights = [math.exp(a - largest) for a in logits]
    return [w / sum(weights) for w in weights]


class Model:
    """`config` as in config.json; `form`: separate, stacked, input_first or mxfp4."""

    def __init__(self, config, form, seed=1):
        self.c, self.form, self.random = config, form, random.Random(seed)
        self.gpt = config["architectures"][0] == "GptOssForCausalLM"
        self.qwen2 = config["architectures"][0] == "Qwen2ForCausalLM"
        self.hidden, self.dim = config["hidden_size"], config["head_dim"]
        self.heads, self.kv = config["num_attention_heads"], config["num_key_value_heads"]
        self.experts = config.get("num_experts", config.get("num_local_experts"))
        self.top = config.get("num_experts_per_tok", config.get("experts_per_token"))
        self.files = {}  # what model.safetensors holds
        self.embed = self.matrix("model.embed_tokens.weight", config["vocab_size"], self.hidden, .5)
        self.layers = [self.layer(i) for i in range(config["num_hidden_layers"])]
        self.norm = self.vector("model.norm.weight", self.hidden, 1)
        self.head = self.matrix("lm_head.weight", config["vocab_size"], self.hidden)

    # ---- Weights ----
    def numbers(self, count, scale, offset=0.0):
        return [round32(offset + scale * self.random.uniform(-1, 1)) for _ in range(count)]

    def vector(self, name, size, offset=0.0):
        values = self.numbers(size, .3, offset)
        self.files[name] = ("F32", [size], values)
        return values

    def matrix(self, name, rows, cols, scale=.25):
        values = [self.numbers(cols, scale) for _ in range(rows)]
        self.files[name] = ("F32", [rows, cols], [v for row in values for v in row])
        return values

    def layer(self, index):
        name = f"model.layers.{index}."
        attention, q, kv = name + "self_attn.", self.heads * self.dim, self.kv * self.dim
        layer = {"in": self.vector(name + "input_layernorm.weight", self.hidden, 1),
                 "post": self.vector(name + "post_attention_layernorm.weight", self.hidden, 1)}
        for part, rows, cols in (("q", q, self.hidden), ("k", kv, self.hidden),
                                 ("v", kv, self.hidden), ("o", self.hidden, q)):
            layer[part] = self.matrix(f"{attention}{part}_proj.weight", rows, cols)
            layer[part + "b"] = None
            if self.gpt or self.qwen2 and part != "o":
                layer[part + "b"] = self.vector(f"{attention}{part}_proj.bias", rows)
        if self.gpt:
            layer["sinks"] = self.vector(attention + "sinks", self.heads)
        elif not self.qwen2:
            for part in ("q_norm", "k_norm"):
                layer[part] = self.vector(f"{attention}{part}.weight", self.dim, 1)
        mlp = name + "mlp."
        if not self.is_sparse(index):
            layer["mlp"] = self.dense(mlp, self.c["intermediate_size"])
            return layer
        router = "router." if self.gpt else "gate."
        layer["router"] = self.matrix(mlp + router + "weight", self.experts, self.hidden, .6)
        layer["rb"] = self.vector(mlp + router + "bias", self.experts) if self.gpt else None
        layer["experts"] = self.make_experts(mlp + "experts.")
        return layer

    def is_sparse(self, index):
        if not self.experts:
            return False
        step = self.c.get("decoder_sparse_step", 1)
        return index not in self.c.get("mlp_only_layers", []) and (index + 1) % step == 0

    def dense(self, name, ffn):
        return {"gate": self.matrix(name + "gate_proj.weight", ffn, self.hidden),
                "up": self.matrix(name + "up_proj.weight", ffn, self.hidden),
                "down": self.matrix(name + "down_proj.weight", self.hidden, ffn)}

    def make_experts(self, name):
        ffn = self.c["intermediate_size"] if self.gpt else self.c["moe_intermediate_size"]
        if self.form == "separate":
            return [self.dense(f"{name}{e}.", ffn) for e in range(self.experts)]
        gate_up = self.stack(name + "gate_up_proj", 2 * ffn, self.hidden)
        down = self.stack(name + "down_proj", self.hidden, ffn)
        experts = []
        for e in range(self.experts):
            halves = ((gate_up[e][0::2], gate_up[e][1::2]) if self.gpt
                      else (gate_up[e][:ffn], gate_up[e][ffn:]))
            experts.append({"gate": halves[0], "up": halves[1], "down": down[e]})
        if self.gpt:
            for part, size in (("gate_up_proj_bias", 2 * ffn), ("down_proj_bias", self.hidden)):
                biases = [self.numbers(size, .3) for _ in range(self.experts)]
                self.files[name + part] = ("F32", [self.experts, size], sum(biases, []))
                for expert, bias in zip(experts, biases):
                    expert[part] = bias
        return experts

    def stack(self, name, rows, cols):
        """[experts][rows][cols], whatever the file's form."""
        count = self.experts
        if self.form == "mxfp4":
            groups = count * rows * cols // 32
            codes = [self.random.randrange(256) for _ in range(groups * 16)]
            scales = [self.random.choice((123, 124)) for _ in range(groups)]
            self.files[name + "_blocks"] = ("U8", [count, rows, cols // 32, 16], codes)
            self.files[name + "_scales"] = ("U8", [count, rows, cols // 32], scales)
            flat = [VALUES[codes[i // 2] >> (4 * (i % 2)) & 15] * 2.0 ** (scales[i // 32] - 127)
                    for i in range(groups * 32)]
        else:
            flat = self.numbers(count * rows * cols, .25)
        matrices = [[flat[(e * rows + r) * cols:(e * rows + r + 1) * cols] for r in range(rows)]
                    for e in range(count)]
        if self.form == "stacked":
            self.files[name] = ("F32", [count, rows, cols], flat)
        elif self.form == "input_first":
            turned = [m[r][c] for m in matrices for c in range(cols) for r in range(rows)]
            self.files[name] = ("F32", [count, cols, rows], turned)
        return matrices

    # ---- The forward pass ----
    def rms(self, x, weight):
        scale = 1 / math.sqrt(sum(a * a for a in x) / len(x) + self.c["rms_norm_eps"])
        return [a * scale * w for a, w in zip(x, weight)]

    def rotate(self, x, position):
        half, out = self.dim // 2, list(x)
        rope = self.c.get("rope_scaling") or self.c.get("rope_parameters") or {}
        theta = rope.get("rope_theta", self.c.get("rope_theta"))
        yarn = rope.get("rope_type") == "yarn"
        size = 0.1 * math.log(rope["factor"]) + 1 if yarn else 1
        for i in range(half):
            frequency = theta ** (-2 * i / self.dim)
            if yarn:
                low, high = (self.dim * math.log(rope["original_max_position_embeddings"]
                                                 / (rope[beta] * 2 * math.pi))
                             / (2 * math.log(theta)) for beta in ("beta_fast", "beta_slow"))
                low, high = max(low, 0), min(high, self.dim - 1)
                kept = 1 - min(max((i - low) / (high - low), 0), 1)
                frequency = frequency / rope["factor"] * (1 - kept) + frequency * kept
            cos, sin = (f(position * frequency) * size for f in (math.cos, math.sin))
            out[i] = x[i] * cos - x[half + i] * sin
            out[half + i] = x[half + i] * cos + x[i] * sin
        return out

    def attend(self, layer, q, keys, values, window):
        group, out = self.heads // self.kv, []
        first = max(0, len(keys) - window) if window else 0
        for h in range(self.heads):
            scores = [sum(a * b for a, b in zip(q[h], key[h // group])) / math.sqrt(self.dim)
                      for key in keys[first:]]
            sink = [layer["sinks"][h]] if self.gpt else []
            weights = softmax(scores + sink)
            out += [sum(w * value[h // group][d] for w, value in zip(weights, values[first:]))
                    for d in range(self.dim)]
        return out

    def expert(self, e, x):
        gate, up = matvec(e["gate"], x), matvec(e["up"], x)
        if not self.gpt:
            act = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
            return matvec(e["down"], act)
        limit, bias = self.c.get("swiglu_limit", 7.0), e["gate_up_proj_bias"]
        gate = [min(g + b, limit) for g, b in zip(gate, bias[0::2])]
        up = [min(max(u + b, -limit), limit) for u, b in zip(up, bias[1::2])]
        act = [g / (1 + math.exp(-1.702 * g)) * (u + 1) for g, u in zip(gate, up)]
        return matvec(e["down"], act, e["down_proj_bias"])

    def mlp(self, layer, x):
        if "mlp" in layer:
            return self.expert(layer["mlp"], x)
        logits = matvec(layer["router"], x, layer["rb"])
        chosen = sorted(range(self.experts), key=lambda e: (-logits[e], e))[:self.top]
        if self.gpt or self.c.get("norm_topk_prob"):
            weights = dict(zip(chosen, softmax([logits[e] for e in chosen])))
        else:
            everything = softmax(logits)
            weights = {e: everything[e] for e in chosen}
        out = [0.0] * self.hidden
        for e in sorted(chosen):
            out = [a + weights[e] * b for a, b in zip(out, self.expert(layer["experts"][e], x))]
        return out

    def window(self, index):
        return self.c["sliding_window"] if self.gpt and index % 2 == 0 else 0

    def row(self, token, position, seen):
        """Logits after `token`; `seen`: for each layer the (key, value) of its ancestors, appended."""
        split = lambda x: [x[i:i + self.dim] for i in range(0, len(x), self.dim)]
        x = list(self.embed[token])
        for index, layer in enumerate(self.layers):
            n = self.rms(x, layer["in"])
            q, k, v = (split(matvec(layer[p], n, layer[p + "b"])) for p in "qkv")
            if "q_norm" in layer:
                q = [self.rms(h, layer["q_norm"]) for h in q]
                k = [self.rms(h, layer["k_norm"]) for h in k]
            q, k = ([self.rotate(h, position) for h in part] for part in (q, k))
            seen[index].append((k, v))
            keys, values = zip(*seen[index])
            attended = self.attend(layer, q, list(keys), list(values), self.window(index))
            x = [a + b for a, b in zip(x, matvec(layer["o"], attended, layer["ob"]))]
            x = [a + b for a, b in zip(x, self.mlp(layer, self.rms(x, layer["post"])))]
        return matvec(self.head, self.rms(x, self.norm))

    def golden(self, length=24, greedy=6):
        vocab, layers = self.c["vocab_size"], len(self.layers)
        tokens = [self.random.randrange(3, vocab) for _ in range(length)]
        seen = [[] for _ in range(layers)]
        logits = [self.row(token, i, seen) for i, token in enumerate(tokens)]
        parents, nodes = [-1, -1, 0, 0, 2], [self.random.randrange(3, vocab) for _ in range(5)]
        tree, paths = [], []
        for parent, token in zip(parents, nodes):
            path = [list(s) for s in (seen if parent < 0 else paths[parent])]
            tree.append(self.row(token, len(path[0]), path))
            paths.append(path)
        text, last = [], logits[-1]
        for _ in range(greedy):
            text.append(max(range(vocab), key=lambda t: last[t]))
            last = self.row(text[-1], len(seen[0]), seen)
        flat = lambda rows: [v for row in rows for v in row]
        return {"short.input_ids": ("I32", [length], tokens),
                "short.logits": ("F32", [length, vocab], flat(logits)),
                "short.greedy": ("I32", [greedy], text),
                "tree.parents": ("I32", [5], parents), "tree.tokens": ("I32", [5], nodes),
                "tree.logits": ("F32", [5, vocab], flat(tree))}
