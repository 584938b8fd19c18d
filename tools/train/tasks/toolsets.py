"""Exercises in choosing among tools that share words with the request; training only.

Tools are verbs and things of a small grid, any words: the thing decides, or the verb where two tools have
the thing. A request may have the verb of a wrong tool, or ask for a thing that no tool has.
"""

from .contrast import VALUES, any_word
from .item import Item
from .source import Source
from .toolcalls import (ACTION_ARGUMENTS, LOOKUP_ARGUMENTS, NO_TOOL, Argument, Tool, arguments_of, call_of,
                        opening, sentence)

LOOKS = "get show check read fetch list see give lookup get_current".split()
ACTS = """book send create cancel play order start stop delete add update open close move print save count call
plan buy sell test pack clean turn""".split()
DESCRIPTIONS = ["{v} the {t}", "{v}s the {t}", "To {v} the {t}", "Will {v} any {t}", "{v} a {t}", "{t}: {v}",
                "{v} {t}", "Use it to {v} the {t}", "Made to {v} a {t}", "For those who {v} the {t}",
                "~ {v} the {t}", "{v} the {t} ~", "The {t}, to {v}", "Here you {v} the {t}",
                "A tool to {v} the {t}"]
THINGS = ["The {t}", "{t}", "~ {t}", "{t} ~", "All about the {t}", "For the {t}", "Knows the {t}",
          "Works on the {t}", "Gives the {t}", "Reports the {t}", "Has the {t}", "Says the {t}"]
REQUESTS = ["{v} the {t}", "{v} the {t}", "{v} a {t}", "{v} my {t}", "{v} {t}", "Please {v} the {t}",
            "Can you {v} the {t}", "Could you {v} this {t}", "I want to {v} the {t}", "I have to {v} a {t}",
            "Now {v} the {t}", "~ {v} the {t}", "~ {v} {t}", "Will you {v} the {t}", "We must {v} the {t}",
            "Somebody has to {v} the {t}", "Do {v} the {t}", "My wish is to {v} the {t}"]
# Parts of a request for something to be looked up.
OPENINGS = ["", "", "", "Please", "Can you", "Could you", "Would you", "Will you", "I want you to", "Try to",
            "You may", "It is time to", "Let us", "I want to", "Do", "Now", "~", "Maybe you can",
            "Somebody must", "Would you mind to"]
LOOKING = ["discover", "look into", "report", "have a look at", "inform me of", "bring me", "get hold of",
           "work out", "ask for", "search for", "learn", "see", "tell us", "say", "figure out", "look at",
           "hear", "announce", "state", "return", "explain", "call up", "pull up", "share", "give us",
           "send me", "spell out", "~"]
QUESTIONS = ["What is the {t}", "How is the {t}", "What about the {t}", "~ the {t}", "~ {t}", "The {t}",
             "I need the {t}", "Let me see the {t}", "Give me the {t}", "I ask for the {t}",
             "It is about the {t}", "Tell me the {t}"]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _things(s: Source, count: int) -> list[str]:
    """Different things, some of which share a word."""
    things: list[str] = []
    while len(things) < count:
        thing = any_word(s)
        if s.chance(0.35):
            other = s.any(s.any(things).split()) if things and s.chance(0.6) else any_word(s)
            thing = s.any([f"{other} {thing}", f"{thing} {other}"])
        if thing not in things:
            things.append(thing)
    return things


def _labelled(s: Source) -> Argument:
    """An argument that the request names."""
    name = any_word(s)
    if s.chance(0.15):
        choices = list(dict.fromkeys(any_word(s) for _ in range(s.number(2, 4))))
        value = s.any(choices)
        return Argument(name, "string", f"The {name}", value, s.any([f"{name} {value}", f"with {value} {name}",
                                                                     f"as {value} {name}"]), choices)
    value = s.any(VALUES)(s)
    kind = {int: "integer", float: "number"}.get(type(value), "string")
    quoted = f'"{value}"' if kind == "string" else value
    phrase = s.any([f"with {name} {value}", f"with the {name} {value}", f"{name}: {value}", f"({name} {value})",
                    f"where the {name} is {value}", f"with {value} as {name}", f"{name} = {value}",
                    f"of {name} {value}", f"with {name} {quoted}", f"whose {name} is {value}"])
    about = s.any([f"The {name}", f"{_capital(name)} to use", f"{_capital(any_word(s))} {name}"])
    return Argument(name, kind, about, value, phrase)


def _arguments(s: Source) -> tuple[list[Argument], list[Argument]]:
    """Those that the request gives, and those that it leaves out."""
    if s.chance(0.5):
        return arguments_of(s, s.any([ACTION_ARGUMENTS, LOOKUP_ARGUMENTS]))
    made = list({a.name: a for a in (_labelled(s) for _ in range(s.number(1, 4)))}.values())
    told = s.number(1, len(made)) if s.chance(0.3) else len(made)
    return made[:told], made[told:]


def _name(s: Source, verb: str, thing: str) -> str:
    if s.chance(0.15):
        return any_word(s)
    return s.any([f"{verb} {thing}"] * 9 + [f"{thing} {verb}", thing, f"{verb} {any_word(s)}"]).replace(" ", "_")


def _tool(s: Source, verb: str, thing: str, form: str) -> Tool:
    description = _capital(s.filled(form.format(v=verb, t=thing))) + s.any(["", "", "."])
    return Tool(_name(s, verb, thing), description, "", thing, "", *_arguments(s))


def _request(s: Source, verb: str, verbs: list[str], thing: str) -> str:
    """In words that need not be the tool's where only the thing decides."""
    if verb in ACTS or s.chance(0.25):
        return s.any(REQUESTS)
    if s.chance(0.4):
        looking = s.any([s.any(LOOKING), s.any(LOOKING), s.any([v for v in verbs if v not in ACTS])])
        return f"{s.any(OPENINGS)} {looking} {s.any(['the', 'the', 'my', 'this'])} {{t}}"
    return s.any(QUESTIONS)


def toolset_item(s: Source) -> Item:
    verbs = list(dict.fromkeys(s.any([s.any(LOOKS), s.any(LOOKS), s.any(ACTS), any_word(s)])
                               for _ in range(s.number(1, 4))))
    things = _things(s, s.number(2, 6))
    strange = things.pop()  # no tool has it
    cells = s.shuffled([(verb, thing) for verb in verbs for thing in things])
    if s.chance(0.6):  # a tool for each thing
        cells = list({thing: (verb, thing) for verb, thing in cells}.values())
    cells = s.shuffled(cells)[:s.number(1, 5)]
    told = [thing for _, thing in cells]
    alone = len(set(told)) == len(told)  # so that a description need not tell the verb
    forms = THINGS if alone and s.chance(0.6) else DESCRIPTIONS
    if s.chance(0.5):  # nothing but the thing differs
        forms = [s.any(forms)]
    tools = [_tool(s, verb, thing, s.any(forms)) for verb, thing in cells]
    (verb, thing), used = cells[0], tools[0]
    for other in tools[1:]:
        if s.chance(0.3):  # nor may the arguments decide
            other.arguments, other.optional = used.arguments, used.optional
    fits = s.chance(0.85)
    thing = thing if fits else strange
    form = s.any(REQUESTS) if told.count(thing) > 1 else _request(s, verb, verbs, thing)
    used.request = _capital(s.filled(form.format(v=verb, t=thing)).strip())
    answer = call_of(used) if fits else {"role": "assistant", "content": NO_TOOL}
    tools = list({tool.name: tool for tool in reversed(tools)}.values())  # the used one, if two have a name
    messages, specs = opening(s, s.shuffled(tools))
    messages += [{"role": "user", "content": sentence(s, used)}, answer]
    return Item("tools", messages, specs, "tool_call", False)
