"""One conversation of a task: what a generator makes."""

import json
import re
from dataclasses import dataclass, field


@dataclass
class Item:
    """messages: the last one is the assistant's right answer. check: how a test judges it."""
    kind: str
    messages: list[dict]
    tools: list[dict] = field(default_factory=list)
    check: str = "answer"  # "answer", "json", "tool_call" or "" (no single answer)
    joinable: bool = True  # may be one turn of a longer conversation


def ask(kind: str, question: str, answer: str, system: str = "", check: str = "answer") -> Item:
    question, answer, system = (_articles(text) for text in (question, answer, system))
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return Item(kind, messages, check=check, joinable=not system)


def _articles(text: str) -> str:
    """"a owl" -> "an owl"."""
    return re.sub(r"^A (?=[aeiou])", "An ", re.sub(r"\ba (?=[aeio])", "an ", text))


def compact(value) -> str:
    return json.dumps(value, ensure_ascii=False)
