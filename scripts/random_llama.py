#!/usr/bin/env python3
"""Writes a Llama checkpoint of the 8B shape (but for the vocabulary, which is the tokenizer's) with random
bf16 weights, and an EAGLE-3 head for it: for tests of load and of exactness at real size (its choices are
near ties). Needs PyTorch and safetensors, better on a GPU.

    random_llama.py FOLDER HEAD --tokenizer FOLDER [--layers N]"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 4096, 14336, 32, 8, 128
SHARD_LAYERS = 8
DRAFT_VOCABULARY = 32000
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def matrix(rows, cols):
    return (torch.randn(rows, cols, device=DEVICE) * 0.02).to(torch.bfloat16).cpu()


def ones():
    return torch.ones(HIDDEN, dtype=torch.bfloat16)


def layer_tensors(prefix, inputs):
    """A decoder layer's; `inputs` of the attention are two features in a head."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {"self_attn.q_proj": (q, inputs), "self_attn.k_proj": (kv, inputs), "self_attn.v_proj": (kv, inputs),
              "self_attn.o_proj": (HIDDEN, q), "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN),
              "mlp.down_proj": (HIDDEN, FFN)}
    tensors = {f"{prefix}{name}.weight": matrix(*shape) for name, shape in shapes.items()}
    for name in ["input_layernorm", "post_attention_layernorm"]:
        tensors[f"{prefix}{name}.weight"] = ones()
    return tensors


def config_of(vocabulary, layers):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": FFN, "num_hidden_layers": layers, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": vocabulary, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "max_position_embeddings": 131072, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
    }


def write_model(folder, vocabulary, layers):
    shards = -(-layers // SHARD_LAYERS)
    names = {}
    for shard in range(shards):
        tensors = {}
        for layer in range(shard * SHARD_LAYERS, min(layers, (shard + 1) * SHARD_LAYERS)):
            tensors |= layer_tensors(f"model.layers.{layer}.", HIDDEN)
        if shard == 0:
            tensors["model.embed_tokens.weight"] = matrix(vocabulary, HIDDEN)
        if shard + 1 == shards:
            tensors |= {"lm_head.weight": matrix(vocabulary, HIDDEN), "model.norm.weight": ones()}
        name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        save_file(tensors, folder / name)
        names |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    (folder / "config.json").write_text(json.dumps(config_of(vocabulary, layers), indent=1) + "\n")


def write_head(folder, vocabulary):
    drafts = min(DRAFT_VOCABULARY, vocabulary)
    ids = torch.randperm(vocabulary)[:drafts].sort().values
    tensors = layer_tensors("midlayer.", 2 * HIDDEN) | {
        "fc.weight": matrix(HIDDEN, 3 * HIDDEN), "midlayer.hidden_norm.weight": ones(), "norm.weight": ones(),
        "lm_head.weight": matrix(drafts, HIDDEN), "d2t": ids - torch.arange(drafts),
        "t2d": torch.zeros(vocabulary, dtype=torch.bool).index_fill(0, ids, True)}
    save_file(tensors, folder / "model.safetensors")
    config = config_of(vocabulary, 1) | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": drafts}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def vocabulary_of(tokenizer):
    content = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8"))
    ids = list(content["model"]["vocab"].values()) + [token["id"] for token in content.get("added_tokens", [])]
    return max(ids) + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with tokenizer.json; copied")
    parser.add_argument("--layers", type=int, default=32)
    options = parser.parse_args()
    torch.manual_seed(1)
    vocabulary = vocabulary_of(options.tokenizer)
    for folder in [options.folder, options.head]:
        folder.mkdir(parents=True, exist_ok=True)
    for name in ["tokenizer.json", "tokenizer_config.json"]:
        if (options.tokenizer / name).exists():
            shutil.copy(options.tokenizer / name, options.folder)
    write_model(options.folder, vocabulary, options.layers)
    write_head(options.head, vocabulary)
    print(f"{options.layers} layers, {vocabulary} tokens in {options.folder}; its head in {options.head}")


if __name__ == "__main__":
    main()
