#!/usr/bin/env python3
"""Writes the held-out items, and proves that training does not make one of them.

usage: make_items.py OUT.jsonl [--per-kind N] [--train-check N]
"""

import argparse
import json
import random

import tasks
from chat import context_key
from tasks import passage, stories
from tasks.source import Source

MAX_TOKENS = {"story": 256, "tables": 160, "json": 160, "schema": 160, "tools": 128}
LONG = [(40, 2), (90, 2), (430, 2)]  # paragraphs of a long text, number of such items


def as_line(kind: str, number: int, item: tasks.Item) -> dict:
    *before, last = item.messages
    line = {"id": f"{kind}-{number}", "kind": kind, "messages": before}
    if item.tools:
        line["tools"] = item.tools
    line["max_tokens"] = MAX_TOKENS.get(kind, 96)
    if item.check == "answer":
        line["answer"] = last["content"]
    elif item.check == "json":
        line["json"] = json.loads(last["content"])
    elif item.check == "tool_call":
        line["tool_call"] = last["tool_calls"][0]["function"]
    return line


def items(per_kind: int) -> list[dict]:
    lines, seen = [], set()
    for kind in tasks.KINDS:
        number = seed = 0
        while number < per_kind:
            line = as_line(kind, number, tasks.make(kind, f"test {kind} {seed}", test=True))
            seed += 1
            key = context_key(line["messages"], line.get("tools"))
            if key not in seen:
                seen.add(key)
                lines.append(line)
                number += 1
    number = per_kind
    for paragraphs, count in LONG:
        for i in range(count):
            s = Source(f"test long {paragraphs} {i}", test=True)
            item = passage.long_item(s, stories.prose(s, paragraphs))
            lines.append(as_line("passage", number, item))
            number += 1
    return lines


def check_training(lines: list[dict], count: int) -> None:
    held_out = {context_key(line["messages"], line.get("tools")) for line in lines}
    r = random.Random("training check")
    for _ in range(count):
        item = tasks.conversation(r)
        for end, message in enumerate(item.messages):
            if message["role"] == "assistant":
                assert context_key(item.messages[:end], item.tools) not in held_out, item.messages
    print(f"{count} training conversations: none has a held-out prompt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--per-kind", type=int, default=20)
    parser.add_argument("--train-check", type=int, default=100000)
    args = parser.parse_args()
    lines = items(args.per_kind)
    with open(args.out, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{args.out}: {len(lines)} items")
    check_training(lines, args.train_check)


if __name__ == "__main__":
    main()
