"""Words written where no space stands before them: in quotes, at the start of a line, in capitals.

A byte-level vocabulary has " house" as one token and "house" in pieces, so that copying a word into JSON
means to spell it. These conversations are full of such words, any of the corpus and the vocabulary; training only.
"""

from . import pools, source
from .item import Item, ask, compact
from .source import Source


def _words(s: Source, low: int, high: int) -> list[str]:
    known = source.SPELLED or pools.WORDS
    words = []
    for _ in range(s.number(low, high)):
        frequent = known[:len(known) // s.any([1, 2, 4])]
        word = s.any(frequent)
        words.append(s.made_up() if s.chance(0.1) else s.changed(word) if s.chance(0.2) else word)
    return words


def _names(s: Source) -> str:
    return " ".join(w.capitalize() for w in _words(s, 1, 2))


def _list(s: Source) -> tuple[str, str]:
    words = _words(s, 6, 30)
    return s.any(["Write these words as a JSON list: ", "As a JSON array: ", "Put each word in quotes, as "
                  "JSON: "]) + ", ".join(words), compact(words)


def _pairs(s: Source) -> tuple[str, str]:
    keys = list(dict.fromkeys(_words(s, 4, 12)))
    values = [_names(s) if s.chance(0.3) else " ".join(_words(s, 1, 2)) for _ in keys]
    link = s.any([" is ", ": ", " = ", " was ", " -> "])
    text = s.any([", ", "; ", "\n"]).join(f"{k}{link}{v}" for k, v in zip(keys, values))
    return s.any(["As a JSON object: ", "Write this as JSON: ", "Turn this into one JSON object: "]) + text, \
        compact(dict(zip(keys, values)))


def _chosen(s: Source) -> tuple[str, str]:
    """Some of the pairs, in the order asked for."""
    keys = list(dict.fromkeys(_words(s, 4, 10)))
    values = {k: _names(s) if s.chance(0.3) else s.any(_words(s, 1, 1)) for k in keys}
    wanted = s.shuffled(keys)[:s.number(1, max(1, len(keys) - 1))]
    text = ". ".join(f"The {k} is {values[k]}" for k in keys)
    return f"{text}. {s.any(['Give', 'Write', 'Extract'])} {', '.join(wanted)} as JSON.", \
        compact({k: values[k] for k in wanted})


def _lines(s: Source) -> tuple[str, str]:
    words = _words(s, 5, 20)
    return s.any(["One word per line: ", "Write each of these on its own line: "]) + ", ".join(words), \
        "\n".join(words)


def _capitals(s: Source) -> tuple[str, str]:
    words = _words(s, 3, 10)
    return s.any(["In capital letters: ", "Write in upper case: "]) + " ".join(words), " ".join(words).upper()


def _addresses(s: Source) -> tuple[str, str]:
    """Names that are written small in their addresses."""
    names = list(dict.fromkeys(w.capitalize() for w in _words(s, 2, 6)))
    mails = {n: f"{n.lower()}@{s.any(_words(s, 1, 1)).lower()}.{s.any(['org', 'com', 'net'])}" for n in names}
    link = s.any([": ", " has ", " reads ", " writes from ", " is at ", " - "])
    text = s.any([", ", "; ", ". ", "\n"]).join(f"{n}{link}{mails[n]}" for n in names)
    return s.any(["The addresses as JSON: ", "Who has which address? Use JSON. ", "As a JSON object: "]) + text, \
        compact(mails)


def spelling_item(s: Source) -> Item:
    make = s.any([_list, _pairs, _pairs, _chosen, _chosen, _lines, _capitals, _addresses])
    return ask("spelling", *make(s))
