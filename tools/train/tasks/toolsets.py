"""Exercises in choosing among tools that share words with the request; training only.

Tools are verbs and things of a small grid, any words: the thing decides, or the verb where two tools have
the thing. A request may have the verb of a wrong tool, or ask for a thing that no tool has.
"""

from .contrast import VALUES, any_word
from .item import Item
from .source import Source
from .toolcalls import (ACTION_ARGUMENTS, LOOKUP_ARGUMENTS, NO_TOOL, Argument, Tool, arguments_of, call_of,
                        opening, sentence)

LOOKS = "get find show check read fetch list tell see give name".split()
ACTS = """book send create cancel play order start stop delete add update open close move print save count call
plan buy sell test pack clean turn""".split()
DESCRIPTIONS = ["{v} the {t}", "{v}s the {t}", "To {v} the {t}", "Will {v} any {t}", "{v} a {t}", "{t}: {v}",
                "{v} {t}", "Use it to {v} the {t}", "Made to {v} a {t}", "For those who {v} the {t}",
                "~ {v} the {t}", "{v} the {t} ~", "The {t}, to {v}", "Here you {v} the {t}",
                "A tool to {v} the {t}"]
THINGS = ["The {t}", "{t}", "~ {t}", "{t} ~", "All about the {t}", "For the {t}", "Knows the {t}",
          "Works on the {t}"]
REQUESTS = ["{v} the {t}", "{v} the {t}", "{v} a {t}", "{v} my {t}", "{v} {t}", "Please {v} the {t}",
            "Can you {v} the {t}", "Could you {v} this {t}", "I want to {v} the {t}", "I have to {v} a {t}",
            "Now {v} the {t}", "~ {v} the {t}", "~ {v} {t}", "Will you {v} the {t}", "We must {v} the {t}",
            "Somebody has to {v} the {t}", "Do {v} the {t}", "My wish is to {v} the {t}"]
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
    if s.chance(0.25):
        return any_word(s)
    return s.any([f"{verb} {thing}"] * 5 + [f"{thing} {verb}", thing, f"{verb} {any_word(s)}"]).replace(" ", "_")


def _tool(s: Source, verb: str, thing: str, alone: bool) -> Tool:
    """alone: no other tool has the thing, so a description need not tell the verb."""
    form = s.any(THINGS) if alone and s.chance(0.3) else s.any(DESCRIPTIONS)
    description = _capital(s.filled(form.format(v=verb, t=thing))) + s.any(["", "", "."])
    return Tool(_name(s, verb, thing), description, "", thing, "", *_arguments(s))


def toolset_item(s: Source) -> Item:
    verbs = list(dict.fromkeys(s.any([s.any(LOOKS), s.any(ACTS), any_word(s), any_word(s)])
                               for _ in range(s.number(1, 3))))
    things = _things(s, s.number(2, 5))
    strange = things.pop()  # no tool has it
    cells = s.shuffled([(verb, thing) for verb in verbs for thing in things])[:s.number(1, 5)]
    told = [thing for _, thing in cells]
    tools = [_tool(s, verb, thing, told.count(thing) == 1) for verb, thing in cells]
    (verb, thing), used = cells[0], tools[0]
    fits = s.chance(0.8)
    thing = thing if fits else strange
    if told.count(thing) > 1:
        form = s.any(REQUESTS)
    elif verb in ACTS:
        form = s.any(REQUESTS)
    else:  # the thing decides, the verb may be that of a wrong tool
        form = s.any(QUESTIONS) if s.chance(0.4) else s.any(REQUESTS)
        verb = s.any([verb, s.any(LOOKS), s.any([v for v in verbs if v not in ACTS])])
    used.request = _capital(s.filled(form.format(v=verb, t=thing)))
    answer = call_of(used) if fits else {"role": "assistant", "content": NO_TOOL}
    tools = list({tool.name: tool for tool in reversed(tools)}.values())  # the used one, if two have a name
    messages, specs = opening(s, s.shuffled(tools))
    messages += [{"role": "user", "content": sentence(s, used)}, answer]
    return Item("tools", messages, specs, "tool_call", False)
