"""Rewrite a sentence: case, tense, number, negation, question, politeness, replaced words."""

from . import pools, records
from .item import Item, ask
from .source import Source

# base, third person, past
VERBS = [v.split("/") for v in """walk/walks/walked open/opens/opened clean/cleans/cleaned paint/paints/painted
cook/cooks/cooked watch/watches/watched visit/visits/visited carry/carries/carried see/sees/saw
find/finds/found buy/buys/bought sell/sells/sold bring/brings/brought take/takes/took write/writes/wrote
read/reads/read make/makes/made keep/keeps/kept lose/loses/lost love/loves/loved help/helps/helped
need/needs/needed draw/draws/drew hold/holds/held""".split() if not v.startswith("walk")]
THINGS = """door window house letter picture garden table book lamp chair box boat cup bag coat flower stone
bottle song map""".split()
ADVERBS = "today|in the morning|every day|at home|after dinner|in the garden|at noon|with a friend".split("|")
PLURAL = [p.split("/") for p in """cat/cats dog/dogs house/houses box/boxes child/children foot/feet
mouse/mice baby/babies city/cities leaf/leaves man/men woman/women glass/glasses bus/buses story/stories
tooth/teeth bird/birds table/tables knife/knives wolf/wolves dish/dishes church/churches key/keys
potato/potatoes fly/flies goose/geese lamp/lamps berry/berries watch/watches sheep/sheep""".split()]


def _put(s: Source, wordings: list[str], more: list[str], sentence: str) -> str:
    form = s.any(["{q}: {t}", "{q}: {t}", '{q}: "{t}"', "{q}.\n\n{t}"])
    return form.format(q=s.of(wordings, more), t=sentence)


def _in_tense(name: str) -> list[str]:
    return [wording.format(name) for wording in (
        "Say this in the {} tense", "Use the {} tense", "Make this {} tense", "Now in the {} tense",
        "Convert to the {} tense", "Bring this into the {} tense", "{} tense, please")]


def _parts(s: Source) -> tuple[str, list[str], str]:
    thing = s.any(["the", "the", "a"]) + " " + s.word(s.any(THINGS))
    return records.first_name(s), s.any(VERBS), f"{thing} {s.any(ADVERBS)}"


def _tense(s: Source) -> tuple[str, str]:
    name, (base, third, past), rest = _parts(s)
    now, then, later = (f"{name} {v} {rest}." for v in (third, past, f"will {base}"))
    kind = s.number(0, 2)
    if kind == 0:
        return _put(s, ["Put this into the past tense", "Rewrite in the past tense", "Change to past tense",
                        "Write this in the past tense", "Turn this into past tense"], _in_tense("past"), now), then
    if kind == 1:
        return _put(s, ["Put this into the future tense", "Rewrite in the future tense",
                        "Change to future tense", "Write this in the future tense",
                        "Turn this into future tense"], _in_tense("future"), now), later
    return _put(s, ["Put this into the present tense", "Rewrite in the present tense",
                    "Change to present tense", "Write this in the present tense",
                    "Turn this into present tense"], _in_tense("present"), then), now


def _negate(s: Source) -> tuple[str, str]:
    name, (base, third, _), rest = _parts(s)
    return _put(s, ["Make this negative", "Negate the sentence", "Write the negative of this",
                    "Turn this into a negative sentence", "Make this sentence negative"],
                ["Say the opposite, with not", "Put a not into this", "Rewrite as a negative sentence",
                 "Make it negative", "Negative form", "Say that this is not so", "Give the negative form"],
                f"{name} {third} {rest}."), f"{name} does not {base} {rest}."


def _question(s: Source) -> tuple[str, str]:
    name, (base, third, _), rest = _parts(s)
    return _put(s, ["Make this a question", "Turn this into a question", "Write this as a question",
                    "Change this sentence to a question", "Turn the sentence into a question"],
                ["Ask this", "Make a question of this", "Rewrite as a question", "Put this as a question",
                 "Give this in the form of a question", "As a question"],
                f"{name} {third} {rest}."), f"Does {name} {base} {rest}?"


def _polite(s: Source) -> tuple[str, str]:
    _, (base, _, _), rest = _parts(s)
    return _put(s, ["Make this polite", "Say this politely", "Write this in a polite way",
                    "Make this sound more polite", "Rewrite this politely"],
                ["Ask for this politely", "Put this more politely", "Say it in a polite way", "More polite, please",
                 "Turn this into a polite request", "Be polite"],
                f"{base.capitalize()} {rest}."), f"Could you please {base} {rest}?"


def _replace(s: Source) -> tuple[str, str]:
    name, (_, third, _), rest = _parts(s)
    sentence = f"{name} {third} {rest}."
    if s.chance(0.5):
        old, new = name, records.first_name(s)
    else:
        old = rest.split()[1]
        new = s.word(s.of(pools.WORDS))
    request = s.of([f"Replace {old} with {new}", f'Change "{old}" to "{new}"', f"Put {new} in place of {old}",
                    f"Write {new} instead of {old}", f"Swap {old} for {new}", f"Use {new} for {old}",
                    f'Replace the word "{old}" by "{new}"', f"Exchange {old} for {new}",
                    f"Rewrite with {new} instead of {old}", f'Replace "{old}" with "{new}"'],
                   [f"Trade {old} for {new}", f'Exchange "{old}" for "{new}"', f"Change {old} for {new}",
                    f"Take {new} in place of {old}", f"Change {old} into {new}", f"Replace {old} by {new}",
                    f"Switch {old} for {new}", f"Turn {old} into {new}", f"Let {new} stand for {old}",
                    f"{s.word('Give').capitalize()} {old} for {new}", f"{old} becomes {new}"])
    return f"{request}: {sentence}", sentence.replace(old, new, 1)


def _case(s: Source) -> tuple[str, str]:
    words = " ".join(s.word(s.any(pools.WORDS)) for _ in range(s.number(1, 5)))
    if s.chance(0.5):
        return _put(s, ["Write this in upper case", "Convert to upper case", "Put this in capital letters",
                        "Change to upper case", "Make this upper case"],
                    ["Upper case", "In capitals", "Turn this into upper case", "All capitals, please",
                     "Write it all in capitals", "Make all letters capital", "Make it upper case",
                     "Give this in upper case"], words), words.upper()
    return _put(s, ["Write this in lower case", "Convert to lower case", "Put this in small letters",
                    "Change to lower case", "Make this lower case"],
                ["Lower case", "In small letters", "Turn this into lower case", "No capitals, please",
                 "Write it all in small letters", "Make all letters small", "Make it lower case",
                 "Give this in lower case"], words.upper()), words


def _plural(s: Source) -> tuple[str, str]:
    one, many = s.any(PLURAL)
    if s.chance(0.6):
        return s.of([f"What is the plural of {one}?", f"Plural of {one}?", f"Give the plural of {one}.",
                     f"Write the plural of {one}.", f'What is the plural of "{one}"?'],
                    [f'Plural of "{one}"?', f'Give the plural of "{one}".', f"Tell me the plural of {one}.",
                     f'The plural of "{one}" is?', f"More than one {one}?", f"One {one}, two ...?",
                     f'Write the plural: "{one}"']), many
    return s.of([f"What is the singular of {many}?", f"Singular of {many}?", f"Give the singular of {many}.",
                 f"Write the singular of {many}.", f'What is the singular of "{many}"?'],
                [f'Singular of "{many}"?', f'Give the singular of "{many}".', f"Tell me the singular of {many}.",
                 f'The singular of "{many}" is?', f"Two {many}, one ...?", f'Write the singular: "{many}"']), one


def _person(s: Source) -> tuple[str, str]:
    name, (base, third, _), rest = _parts(s)
    return s.of([f"Write this about {name}", f"Put {name} in place of I", f"Rewrite with {name} instead of I",
                 f"Change I to {name}", f"Write {name} instead of I"],
                [f"Say this of {name}", f"Take {name} for I",
                 f"Tell it about {name}", f"Make it about {name}"]) + f": I {base} {rest}.", \
        f"{name} {third} {rest}."


def _repeat(s: Source) -> tuple[str, str]:
    name, (_, third, _), rest = _parts(s)
    sentence = f"{name} {third} {rest}."
    return _put(s, ["Repeat this", "Say this again", "Copy this sentence", "Write this sentence again",
                    "Repeat the sentence"],
                ["Repeat", "Copy this", "Say it once more", "Write this once more", "Say the sentence again",
                 "Repeat after me", "Repeat what I say", "Copy the sentence", "The same sentence again",
                 "Echo this"], sentence), sentence


def rewrite_item(s: Source) -> Item:
    make = s.any([_tense, _tense, _negate, _question, _polite, _replace, _replace, _case, _plural,
                  _person, _repeat])
    return ask("rewrite", *make(s))
