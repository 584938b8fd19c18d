"""Random EAGLE-1 heads and block heads (DFlash, JetSpec, DSpark) with their references, in plain
Python: written from the specification alone, so that `talon check` is compared with something that
shares no code with it."""

import heapq
import random

import eagle3_golden


def int_tensors(values):
    return {name: ("I32", [len(v)], v) for name, v in values.items()}


def float_tensors(values):
    return {name: ("F32", [len(v), len(v[0])], sum(v, [])) for name, v in values.items()}


class Eagle1(eagle3_golden.Head):
    """The feature is the target's last hidden state; it is fused with every row's embedding."""

    def capture(self, n):
        return [n]

    def make_tensors(self, ffn):
        h, q, kv = self.hidden, self.heads * self.dim, self.kv_heads * self.dim
        self.add("fc.weight", h, 2 * h)
        if self.config.get("bias", True):
            self.add("fc.bias", h)
        for name, rows, cols in [("q_proj", q, h), ("k_proj", kv, h), ("v_proj", kv, h),
                                 ("o_proj", h, q)]:
            self.add(f"midlayer.self_attn.{name}.weight", rows, cols)
            if self.config.get("qkv_bias") and name != "o_proj":
                self.add(f"midlayer.self_attn.{name}.bias", rows)
        for name, rows, cols in [("gate_proj", ffn, h), ("up_proj", ffn, h), ("down_proj", h, ffn)]:
            self.add(f"midlayer.mlp.{name}.weight", rows, cols)
        self.add("midlayer.post_attention_layernorm.weight", h)

    def fuse(self, features):
        return features

    def inputs(self, g, embedding):
        x = self.linear("fc", embedding + g)
        return x, x

    def outputs(self, out):
        return out, self.linear("lm_head", out)

    def checkpoint(self, rename=lambda name: name.replace("midlayer.", "layers.0.")):
        return super().checkpoint(rename)


class Block(eagle3_golden.Head):
    """A head that drafts a block in one pass: the anchor's row, then rows of the mask token."""

    def __init__(self, config, target, seed=1):
        self.config, self.random = config, random.Random(seed)
        layer = config.get("transformer_layer_config", config)
        options = config.get("dflash_config", config)
        self.hidden, self.heads = layer["hidden_size"], layer["num_attention_heads"]
        self.kv_heads, self.dim = layer["num_key_value_heads"], layer["head_dim"]
        self.eps, self.theta = layer.get("rms_norm_eps", 1e-6), layer["rope_theta"]
        self.layers, self.vocab = layer["num_hidden_layers"], layer["vocab_size"]
        self.draft_vocab = config.get("draft_vocab_size", self.vocab)
        self.block, self.mask = config["block_size"], options["mask_token_id"]
        self.causal = options.get("causal_head", False)
        self.rank = config.get("markov_rank", 0)
        self.from_anchor = config.get("sample_from_anchor", self.rank > 0)
        outputs = options.get("target_layer_ids")
        self.captured = [i + 1 for i in outputs] if outputs else config["aux_hidden_state_layer_ids"]
        self.shared = {"embed_tokens.weight": target["model.embed_tokens.weight"],
                       "lm_head.weight": target["lm_head.weight"]}
        self.tensors = {}
        self.make_tensors(layer["intermediate_size"])
        ids = sorted(self.random.sample(range(self.vocab), self.draft_vocab))
        self.target_ids = ids if self.draft_vocab < self.vocab else list(range(self.vocab))

    def make_tensors(self, ffn):
        h, q, kv = self.hidden, self.heads * self.dim, self.kv_heads * self.dim
        self.add("fc.weight", h, len(self.captured) * h)
        self.add("hidden_norm.weight", h)
        self.add("norm.weight", h)
        for i in range(self.layers):
            for name, rows, cols in [
                    ("self_attn.q_proj", q, h), ("self_attn.k_proj", kv, h),
                    ("self_attn.v_proj", kv, h), ("self_attn.o_proj", h, q),
                    ("mlp.gate_proj", ffn, h), ("mlp.up_proj", ffn, h), ("mlp.down_proj", h, ffn)]:
                self.add(f"layers.{i}.{name}.weight", rows, cols)
            for name in ("input_layernorm", "post_attention_layernorm"):
                self.add(f"layers.{i}.{name}.weight", h)
            for name in ("q_norm", "k_norm"):
                self.add(f"layers.{i}.self_attn.{name}.weight", self.dim)
        if self.draft_vocab < self.vocab:
            self.add("lm_head.weight", self.draft_vocab, h)
        if self.rank:
            self.add("markov_head.markov_w1.weight", self.vocab, self.rank)
            self.add("markov_head.markov_w2.weight", self.draft_vocab, self.rank)
            self.add("confidence_head.proj.weight", 1, h + self.rank)

    def norm_heads(self, name, x):
        return sum((self.norm(name, x[i : i + self.dim]) for i in range(0, len(x), self.dim)), [])

    def keys(self, layer, x, position):
        attention = f"layers.{layer}.self_attn."
        k = self.norm_heads(attention + "k_norm", self.linear(attention + "k_proj", x))
        return self.rope(k, position), self.linear(attention + "v_proj", x)

    def context(self, features):
        """[layers][rows] of (k, v), made of the target's features."""
        fused = [self.norm("hidden_norm", self.linear("fc", f)) for f in features]
        return [[self.keys(layer, c, t) for t, c in enumerate(fused)]
                for layer in range(self.layers)]

    def run_block(self, anchor, context):
        """The hidden states of all rows after the final norm."""
        first = len(context[0])
        rows = [self.get("embed_tokens.weight")[token]
                for token in [anchor] + [self.mask] * (self.block - 1)]
        for layer in range(self.layers):
            name = f"layers.{layer}."
            normed = [self.norm(name + "input_layernorm", x) for x in rows]
            own = [self.keys(layer, x, first + j) for j, x in enumerate(normed)]
            attended = []
            for j, x in enumerate(normed):
                q = self.norm_heads(name + "self_attn.q_norm",
                                    self.linear(name + "self_attn.q_proj", x))
                seen = own[: j + 1] if self.causal else own
                attended.append(self.attend(self.rope(q, first + j), context[layer] + seen))
            rows = [[a + b for a, b in zip(x, self.linear(name + "self_attn.o_proj", y))]
                    for x, y in zip(rows, attended)]
            rows = [self.mlp(name, x) for x in rows]
        return [self.norm("norm", x) for x in rows]

    def following(self, logits, token):
        """With the Markov bias of the token before."""
        if not self.rank:
            return logits
        bias = self.linear("markov_head.markov_w2",
                           self.get("markov_head.markov_w1.weight")[token])
        return [a + b for a, b in zip(logits, bias)]

    def block_tree(self, anchor, logits, width, nodes):
        """Best-first search: tokens, parents (-1: the anchor), scores, as they are taken."""
        taken, heap, order = [], [], 0

        def add(parent, depth, token, score):
            nonlocal order
            if depth == len(logits):
                return
            for following, p in self.best(self.following(logits[depth], token), width):
                heapq.heappush(heap, (-(score + p), order, following, parent, depth + 1))
                order += 1

        add(-1, 0, anchor, 0.0)
        while heap and len(taken) < nodes:
            cost, _, token, parent, depth = heapq.heappop(heap)
            taken.append((token, parent, -cost))
            add(len(taken) - 1, depth, token, -cost)
        return [list(column) for column in zip(*taken)]

    def golden(self, ids, anchor, hidden_of, width, nodes):
        features = [sum((hidden_of[layer][t] for layer in self.captured), [])
                    for t in range(len(ids))]
        context = self.context(features)
        hidden = self.run_block(anchor, context)
        logits = [self.linear("lm_head", x) for x in hidden[0 if self.from_anchor else 1 :]]
        tokens, parents, scores = self.block_tree(anchor, logits, width, nodes)
        golden = int_tensors({"input_ids": ids, "anchor": [anchor],
                              "tree.width_nodes": [width, nodes], "tree.tokens": tokens,
                              "tree.parents": parents})
        golden |= float_tensors({"features": features, "block.hidden": hidden,
                                 "block.logits": logits})
        golden["tree.scores"] = ("F32", [len(scores)], scores)
        for layer, rows in enumerate(context):
            for which, name in enumerate("kv"):
                flat = sum((row[which] for row in rows), [])
                shape = [len(rows), self.kv_heads, self.dim]
                golden[f"context.{name}.{layer}"] = ("F32", shape, flat)
        return golden
