#!/usr/bin/env python3
"""Writes a checkpoint of random weights in the form of gpt-oss, experts packed in MXFP4: to see how long
a model of real size takes to load, and in how much memory. Needs no library.

    random_gpt_oss.py FOLDER [--size 20b|120b] [--layers N]"""

import argparse
import json
import os
import random
import struct
from pathlib import Path

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY, GROUP = 2880, 64, 8, 64, 201088, 32
SIZES = {"20b": (24, 32), "120b": (36, 128)}  # layers, experts
PIECE = 1 << 24
SCALE = bytes([127 - 7])


def config_of(layers, experts):
    types = ["sliding_attention", "full_attention"]
    return {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": HIDDEN, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "attention_bias": True, "num_local_experts": experts, "num_experts_per_tok": 4,
        "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "sliding_window": 128,
        "layer_types": [types[layer % 2] for layer in range(layers)],
        "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "bos_token_id": 199998, "eos_token_id": 200002,
        "rope_theta": 150000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "original_max_position_embeddings": 4096, "truncate": False},
        "quantization_config": {"quant_method": "mxfp4"},
    }


def layer_tensors(layer, experts):
    """{name: (dtype, shape)}"""
    prefix, q, kv = f"model.layers.{layer}.", HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    tensors = {
        "input_layernorm.weight": ("BF16", [HIDDEN]),
        "post_attention_layernorm.weight": ("BF16", [HIDDEN]),
        "self_attn.sinks": ("BF16", [HEADS]),
        "mlp.router.weight": ("BF16", [experts, HIDDEN]),
        "mlp.router.bias": ("BF16", [experts]),
    }
    for name, rows, cols in [("q", q, HIDDEN), ("k", kv, HIDDEN), ("v", kv, HIDDEN), ("o", HIDDEN, q)]:
        tensors[f"self_attn.{name}_proj.weight"] = ("BF16", [rows, cols])
        tensors[f"self_attn.{name}_proj.bias"] = ("BF16", [rows])
    for name, rows in [("gate_up", 2 * HIDDEN), ("down", HIDDEN)]:
        shape = [experts, rows, HIDDEN // GROUP]
        tensors[f"mlp.experts.{name}_proj_blocks"] = ("U8", shape + [GROUP // 2])
        tensors[f"mlp.experts.{name}_proj_scales"] = ("U8", shape)
        tensors[f"mlp.experts.{name}_proj_bias"] = ("BF16", [experts, rows])
    return {prefix + name: tensor for name, tensor in tensors.items()}


def size_of(dtype, shape):
    count = 2 if dtype == "BF16" else 1
    for size in shape:
        count *= size
    return count


def bf16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def write_shard(path, tensors, codes, numbers):
    header, offset = {}, 0
    for name, (dtype, shape) in tensors.items():
        end = offset + size_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (dtype, shape) in tensors.items():
            scales = name.endswith("_scales")
            piece = SCALE * PIECE if scales else codes if dtype == "U8" else numbers
            left = size_of(dtype, shape)
            while left > 0:
                left -= file.write(memoryview(piece)[:left])
    return offset


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, default="20b")
    parser.add_argument("--layers", type=int, help="fewer layers than the model has")
    options = parser.parse_args()
    layers, experts = SIZES[options.size]
    layers = options.layers or layers
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "config.json").write_text(json.dumps(config_of(layers, experts), indent=1) + "\n")
    draw = random.Random(1)
    numbers = bf16(draw.gauss(0, 0.02) for _ in range(1 << 16)) * (PIECE >> 17)
    shards = [layer_tensors(layer, experts) for layer in range(layers)]
    matrix = ("BF16", [VOCABULARY, HIDDEN])
    shards.append({"model.embed_tokens.weight": matrix, "lm_head.weight": matrix,
                   "model.norm.weight": ("BF16", [HIDDEN])})
    names, total = {}, 0
    for i, tensors in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        names |= dict.fromkeys(tensors, name)
        total += write_shard(options.folder / name, tensors, os.urandom(PIECE), numbers)
    index = {"metadata": {"total_size": total}, "weight_map": names}
    (options.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    print(f"{total / 1e9:.1f} GB in {options.folder}")


if __name__ == "__main__":
    main()
