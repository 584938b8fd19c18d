"""Generators of conversations that have a right answer, by kind.

`make(seed, test)` gives one item; train and test sides never share wordings (see source.py).
"""

import random

from . import (amounts, commands, extract, lists, passage, rewriting, spelling, stories, tables, talk,
               toolcalls)
from .item import Item
from .source import Source

# Kind -> (generator, share of the training conversations).
KINDS = {
    "json": (extract.json_item, 20),
    "schema": (extract.schema_item, 9),
    "tools": (toolcalls.tools_item, 14),
    "passage": (passage.passage_item, 9),
    "arithmetic": (amounts.arithmetic_item, 12),
    "convert": (amounts.convert_item, 6),
    "lists": (lists.lists_item, 12),
    "tables": (tables.tables_item, 6),
    "commands": (commands.commands_item, 7),
    "rewrite": (rewriting.rewrite_item, 8),
    "talk": (talk.talk_item, 5),
    "system": (talk.system_item, 6),
    "story": (stories.story_item, 5),
}
# Exercises that no test asks for, in training only.
EXERCISES = {"spelling": (spelling.spelling_item, 12)}
_MAKERS = [maker for maker, _ in (KINDS | EXERCISES).values()]
_SHARES = [share for _, share in (KINDS | EXERCISES).values()]


def make(kind: str, seed, test: bool = False) -> Item:
    return KINDS[kind][0](Source(seed, test))


def conversation(r: random.Random) -> Item:
    """A training conversation: one item, or a few joined."""
    item = r.choices(_MAKERS, _SHARES)[0](Source(r.getrandbits(64)))
    turns = 1
    while item.joinable and turns < 4 and r.random() < 0.2:
        more = r.choices(_MAKERS, _SHARES)[0](Source(r.getrandbits(64)))
        if not more.joinable:
            break
        item.messages += more.messages
        item.kind = more.kind
        turns += 1
    return item
