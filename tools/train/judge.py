#!/usr/bin/env python3
"""Judges a trained target: held-out items by kind, loops in stories, recall; writes its goldens.

usage: judge.py --target MODEL --items tasks.jsonl --books books.txt.xz --out DIR
"""

import argparse
import json
import lzma
import random
from pathlib import Path

import torch
from safetensors.torch import save_file

from answers import ends_of, rows_of
from chat import is_right, loops, read_items, render
from decoder import LockstepDecoder
from target import Target

SIZES = [256, 512, 1024, 2048, 4096, 8192, 16384, 20480]
GOLDEN_CHAT = [{"role": "user", "content": "Extract the name and the city as JSON.\n\n"
                "Text: Clara Winter is 41 years old and lives in Bergen."}]


def answer_all(target: Target, prompts: list[list[int]], most: list[int]) -> list[list[int]]:
    """Greedy answers as token ids, end token included."""
    groups: dict[int, list[int]] = {}
    for i, ids in enumerate(prompts):
        length = next(n for n in SIZES if n >= len(ids) + most[i])
        groups.setdefault(length, []).append(i)
    answers: list[list[int]] = [[] for _ in prompts]
    for length, group in sorted(groups.items()):
        rows = rows_of([prompts[i] for i in group], length)
        decoder = LockstepDecoder(target, len(group), length)
        tokens = decoder.run(rows.to(target.device), torch.zeros(len(group), device=target.device)).cpu()
        ends = ends_of(tokens, rows.prompt)
        for row, i in enumerate(group):
            start = int(rows.prompt[row])
            answers[i] = tokens[row, start:min(int(ends[row]), start + most[i])].tolist()
        del decoder
    return answers


def judge_items(target: Target, items: list[dict], out: Path) -> dict:
    tokenizer = target.tokenizer
    texts = [render(item["messages"], item.get("tools"), prompt=True) for item in items]
    prompts = tokenizer(texts, add_special_tokens=False)["input_ids"]
    answers = answer_all(target, prompts, [item["max_tokens"] for item in items])
    right: dict[str, list[bool]] = {}
    looping = stories = 0
    with open(out / "answers.jsonl", "w", encoding="utf-8") as file:
        for item, ids in zip(items, answers):
            text = tokenizer.decode(ids, skip_special_tokens=True)
            if item["kind"] == "story":
                stories, looping = stories + 1, looping + loops(ids)
                good = not loops(ids)
            else:
                good = is_right(item, text)
                right.setdefault(item["kind"], []).append(good)
            wanted = item.get("answer") or item.get("json") or item.get("tool_call")
            file.write(json.dumps({"id": item["id"], "right": good, "text": text, "wanted": wanted}) + "\n")
    shares = {kind: sum(hits) / len(hits) for kind, hits in right.items()}
    everything = [hit for hits in right.values() for hit in hits]
    shares["all"] = sum(everything) / len(everything)
    choices = [is_right(i, tokenizer.decode(a, skip_special_tokens=True)) for i, a in zip(items, answers)
               if "tool_call" in i]
    if choices:
        shares["tool calls alone"] = sum(choices) / len(choices)
    return {"accuracy": shares, "stories": stories, "stories that loop": looping,
            "lengths": {"prompt": max(map(len, prompts))}}


@torch.no_grad()
def recall(target: Target, books: Path, lengths: list[int]) -> dict:
    """Codes hidden in a book, as tests/data/prompts/recall.jsonl asks."""
    encode = lambda text: target.tokenizer(text, add_special_tokens=False)["input_ids"]
    text = lzma.decompress(books.read_bytes()).decode()
    r, found = random.Random(11), {}
    names = "Ada Bertram Clara Duncan Edith Felix Greta Hugo Ines Jasper".split()
    for length in lengths:
        right = count = 0
        for _ in range(6):
            start = r.randrange(len(text) - length * 5)
            ids = encode(text[start:start + length * 5])[:length]
            facts = [(n, r.choice(["mill", "tower", "garden"]), f"{r.randint(100, 999)} {r.randint(100, 999)}")
                     for n in r.sample(names, 6)]
            for k, (name, place, code) in enumerate(facts):
                at = (len(ids) - 2) * k // 6
                ids[at:at] = encode(f"\n\nRemember this: the code of {name}'s {place} is {code}.\n\n")
            r.shuffle(facts)
            for name, place, code in facts[:3]:
                ask = encode(f"\n\nQuestion: What is the code of {name}'s {place}?\n"
                             f"Answer: The code of {name}'s {place} is")
                wanted = encode(f" {code}.")
                row = torch.tensor([[0] + ids + ask + wanted], device=target.device)
                hidden = target.trunk(input_ids=row, use_cache=False).last_hidden_state
                got = target.logits(hidden[0, -len(wanted) - 1:-1]).argmax(-1).tolist()
                right, count = right + (got[:-1] == wanted[:-1]), count + 1
        found[length] = f"{right}/{count}"
    return found


@torch.no_grad()
def goldens(directory: str, device: str, tokenizer, out: Path) -> dict:
    """Greedy text in float32 by transformers, past end tokens too. Returns the narrowest choice."""
    from transformers import AutoModelForCausalLM
    torch.set_float32_matmul_precision("highest")
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).to(device).eval()
    texts = ["<|begin_of_text|>Once upon a time there was a",
             "<|begin_of_text|>It was a dark and stormy night; the rain fell in torrents, except at occasional "
             "intervals, when it was checked by a violent gust of wind", render(GOLDEN_CHAT, prompt=True)]
    tensors, narrowest = {}, {}
    for i, text in enumerate(texts):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        tensors[f"{i}.input_ids"] = torch.tensor(ids, dtype=torch.int32)
        greedy, gap = [], float("inf")
        while len(greedy) < 96:
            row = torch.tensor([ids + greedy], device=device)
            best = model(row, use_cache=False).logits[0, -1].float().topk(2)
            greedy.append(int(best.indices[0]))
            gap = min(gap, float(best.values[0] - best.values[1]))
        tensors[f"{i}.greedy"] = torch.tensor(greedy, dtype=torch.int32)
        narrowest[str(i)] = gap
        print(f"golden {i}: {tokenizer.decode(greedy)!r}", flush=True)
    save_file(tensors, out / "golden.safetensors")
    return narrowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--items", required=True)
    parser.add_argument("--books", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recall", type=int, nargs="*", default=[2000, 8000, 16000])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    target = Target(args.target, args.device)
    result = judge_items(target, read_items(args.items), args.out)
    print(json.dumps(result, indent=1), flush=True)
    result["golden margins"] = goldens(args.target, args.device, target.tokenizer, args.out)
    result["recall"] = recall(target, args.books, args.recall)
    print(json.dumps({k: result[k] for k in ("golden margins", "recall")}), flush=True)
    (args.out / "judge.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
