"""Generators of conversations that have a right answer, by kind.

`make(seed, test)` gives one item; train and test sides never share wordings (see source.py).
"""

import random

from . import (amounts, commands, contrast, everyday, extract, lists, passage, rewriting, spelling, stories,
               tables, talk, toolcalls, toolsets)
from .item import Item
from .source import Source

# Kind -> (generator, share of the training conversations).
KINDS = {
    "json": (extract.json_item, 22),
    "schema": (extract.schema_item, 15),
    "tools": (toolcalls.tools_item, 22),
    "passage": (passage.passage_item, 9),
    "arithmetic": (amounts.arithmetic_item, 12),
    "convert": (amounts.convert_item, 7),
    "lists": (lists.lists_item, 15),
    "tables": (tables.tables_item, 6),
    "commands": (commands.commands_item, 7),
    "rewrite": (rewriting.rewrite_item, 9),
    "talk": (talk.talk_item, 7),
    "system": (talk.system_item, 7),
    "story": (stories.story_item, 8),
}
# Exercises that no test asks for, in training only.
EXERCISES = {"spelling": (spelling.spelling_item, 12), "everyday json": (everyday.json_item, 10),
             "everyday tools": (everyday.tools_item, 10), "contrast": (contrast.contrast_item, 18),
             "toolsets": (toolsets.toolset_item, 17)}
_MAKERS = [maker for maker, _ in (KINDS | EXERCISES).values()]
_SHARES = [share for _, share in (KINDS | EXERCISES).values()]


def make(kind: str, seed, test: bool = False) -> Item:
    return KINDS[kind][0](Source(seed, test))


# What people say around a request; training only.
OPENINGS = ["Hi! ", "Hello. ", "Please help: ", "A small job: ", "Next: ", "Could you help me? ", "Another one: ",
            "I have a task for you. ", "OK, ", "Now "]
CLOSINGS = ["Thanks!", "Thank you.", "Please.", "That is all.", "I am in a hurry."]


def add_courtesies(item: Item, r: random.Random) -> None:
    """To some of the requests. After it is known that none of them is held out."""
    s = Source(r.getrandbits(64))
    for message in item.messages:
        if message["role"] != "user":
            continue
        if s.chance(0.12):
            opening = f"{s.words(1, 4).capitalize()}: " if s.chance(0.3) else s.any(OPENINGS)
            message["content"] = opening + message["content"]
        elif s.chance(0.05):
            message["content"] += "\n\n" + s.any(CLOSINGS)


def _drawn(r: random.Random) -> Item:
    return r.choices(_MAKERS, _SHARES)[0](Source(r.getrandbits(64)))


def conversation(r: random.Random) -> Item:
    """A training conversation: one item, or a few joined."""
    item, turns = _drawn(r), 1
    while item.joinable and turns < 4 and r.random() < 0.2:
        more = _drawn(r)
        if not more.joinable:
            break
        item.messages += more.messages
        item.kind = more.kind
        turns += 1
    return item
