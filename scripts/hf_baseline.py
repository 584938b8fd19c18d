#!/usr/bin/env python3
"""Milliseconds of one decoding step with Hugging Face transformers (eager, bf16) on a GPU.

The shape is that of `talon bench gpu` (llama-8b, random weights), so that both can be compared on
one card. Needs torch with CUDA and transformers.

  scripts/hf_baseline.py [--contexts 1024,65536] [--repeats 20] [--json OUT]
"""

import argparse
import json
import statistics

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM


def make_model() -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        intermediate_size=14336, vocab_size=128256, max_position_embeddings=262144,
        rope_theta=500000.0, tie_word_embeddings=False, attn_implementation="eager")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        return LlamaForCausalLM(config).eval()


def filled_cache(config: LlamaConfig, context: int) -> DynamicCache:
    cache = DynamicCache()
    head_dim = config.hidden_size // config.num_attention_heads
    shape = (1, config.num_key_value_heads, context, head_dim)
    for layer in range(config.num_hidden_layers):
        keys = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        cache.update(keys, torch.randn_like(keys), layer)
    return cache


@torch.no_grad()
def step_milliseconds(model: LlamaForCausalLM, context: int, repeats: int) -> float:
    cache = filled_cache(model.config, context)
    token = torch.zeros((1, 1), dtype=torch.long, device="cuda")
    times = []
    for i in range(repeats + 3):  # the first three warm up
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        logits = model(input_ids=token, past_key_values=cache, use_cache=True).logits
        token = logits[:, -1].argmax(-1, keepdim=True)
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", default="1024,65536")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json")
    options = parser.parse_args()
    model = make_model()
    figures = {}
    for context in map(int, options.contexts.split(",")):
        figures[context] = step_milliseconds(model, context, options.repeats)
        print(f"transformers, eager, bf16: {figures[context]:8.2f} ms a token at {context} tokens")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"milliseconds": figures}, file, indent=2)


if __name__ == "__main__":
    main()
