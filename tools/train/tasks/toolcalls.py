"""Choose the right tool with the right arguments; answer plainly when none fits, or after a result."""

import re
from dataclasses import dataclass

from . import pools, records
from .item import Item, compact
from .source import Source

# Things that can be looked up, with a typical value.
LOOKUPS = """weather:sunny temperature:12 humidity:40 forecast:rain tide:low sunrise:06:12 sunset:20:41
population:52000 price:19 balance:310 rating:4 address:12_Mill_Lane menu:soup_and_bread timetable:every_hour
exchange_rate:2 stock_price:87 air_quality:good traffic:heavy snow_depth:30 wind_speed:15 definition:a_small_boat
synonym:quick translation:bonjour recipe:bread_with_cheese score:3 schedule:9_to_5 distance:14 route:by_the_bridge
opening_hours:8_to_18 phone_number:555-0134 calendar:free status:ready location:north_gate owner:Mara_Holm
delay:10 fare:6 capital:Lisbon elevation:420 news:a_new_bridge water_level:high salary:2400 postcode:4021
language:Spanish currency:euro holiday:Friday pollen_count:low battery_level:80 invoice:paid discount:5
warranty:two_years""".split()
LOOKUPS = [tuple(x.split(":", 1)) for x in LOOKUPS]

# Things that can be done: tool verb, words of a request, the thing.
ACTIONS = [("book", ["book", "reserve"], "table room flight seat taxi ticket court hotel".split()),
           ("send", ["send", "write"], "message email letter reminder invoice postcard".split()),
           ("create", ["create", "make", "set up"], "event note list alarm folder account poll".split()),
           ("cancel", ["cancel", "call off"], "order meeting booking appointment delivery".split()),
           ("play", ["play", "put on"], "song video podcast album".split()),
           ("order", ["order", "get me"], "pizza coffee book flowers lunch".split()),
           ("start", ["start", "turn on"], "timer washer heater oven fan".split()),
           ("stop", ["stop", "turn off"], "music engine pump lamp alarm".split()),
           ("delete", ["delete", "remove"], "file photo contact entry backup".split()),
           ("rename", ["rename"], "file folder project channel".split()),
           ("add", ["add", "put in"], "task contact item product".split()),
           ("update", ["update", "change"], "address profile price password".split())]


@dataclass
class Argument:
    name: str
    type: str
    description: str
    value: object
    phrase: str
    enum: list | None = None
    strange: bool = False  # the name does not tell what it is, so the description has to


KEYS = {"city": ["city", "location", "town", "place"], "date": ["date", "day", "when"], "time": ["time", "hour"],
        "name": ["name", "person", "customer", "contact"], "people": ["people", "guests", "persons"],
        "id": ["id", "number", "order_id", "reference"], "to": ["to", "email", "recipient", "address"],
        "text": ["text", "message", "title", "body"], "unit": ["unit", "units"]}
LOOKUP_ARGUMENTS = "city city city date name id unit time".split()
ACTION_ARGUMENTS = "city date time name people quantity minutes id to text color level".split()


def _argument(s: Source, kind: str) -> Argument:
    key = usual = s.any(KEYS.get(kind, [kind]))
    if not s.test and s.chance(0.4):
        key = s.word(key)
    enum = None
    type_ = "integer" if kind in ("people", "quantity", "minutes") else "string"
    if kind == "city":
        v = records.city(s)
        about, phrase = "Name of the city", s.any([f"in {v}", f"in {v}", f"for {v}", f"at {v}"])
    elif kind == "date":
        v = s.any([records.day(s), records.date(s), s.any(["today", "tomorrow"]), s.any(pools.DAY)])
        about, phrase = "The day", v if v in ("today", "tomorrow") else f"on {v}"
    elif kind == "time":
        v = records.clock(s)
        about, phrase = "Time of day", f"at {v}"
    elif kind == "name":
        v = records.full_name(s) if s.chance(0.6) else records.first_name(s)
        about, phrase = f"The {usual}", f"for {v}"
    elif kind == "people":
        v = s.number(1, 12)
        about, phrase = "Number of people", s.any([f"for {v} people", f"with {v} guests"])
    elif kind == "quantity":
        v = s.number(2, 40)
        about, phrase = "Number of pieces", s.any([f"({v} pieces)", f"{v} times"])
    elif kind == "minutes":
        v = s.number(1, 90)
        about, phrase = "Length in minutes", f"for {v} minutes"
    elif kind == "unit":
        v, enum = s.any(["metric", "imperial"]), ["metric", "imperial"]
        about, phrase = "System of units", f"in {v} units"
    elif kind == "id":
        v = s.code()
        about, phrase = "The number", s.any([f"with number {v}", f"number {v}", f"{v}"])
    elif kind == "to":
        v = records.email(s, records.first_name(s))
        about, phrase = "Email of the receiver", f"to {v}"
    elif kind == "text":
        v = " ".join(s.word(s.of(pools.WORDS)) for _ in range(s.number(1, 4)))
        if not s.test and s.chance(0.2):  # a word may come twice
            v = " ".join(s.any(v.split()) for _ in range(s.number(2, 4)))
        about, phrase = "The text", s.any([f'saying "{v}"', f'with the text "{v}"'])
    elif kind == "color":
        v = s.any(pools.COLOUR)
        about, phrase = "The color", f"in {v}"
    else:
        v, enum = s.any(["low", "medium", "high"]), ["low", "medium", "high"]
        about, phrase = "How strong", f"at {v} level"
    return Argument(key, type_, about, v, phrase, enum, key != usual)


@dataclass
class Tool:
    name: str
    description: str
    request: str  # what a user says, without the arguments
    thing: str
    result: str  # result of a lookup; empty for an action
    arguments: list[Argument]
    optional: list[Argument]

    def spec(self, s: Source, plain: bool) -> dict:
        properties = {}
        for a in self.arguments + self.optional:
            properties[a.name] = {"type": a.type}
            if not plain or a.strange:
                properties[a.name]["description"] = a.description
            if a.enum:
                properties[a.name]["enum"] = a.enum
        parameters = {"type": "object", "properties": properties}
        if self.optional or s.chance(0.7):
            parameters["required"] = [a.name for a in self.arguments]
        return {"type": "function", "function": {"name": self.name, "description": self.description,
                                                 "parameters": parameters}}


def arguments_of(s: Source, kinds: list[str]) -> tuple[list[Argument], list[Argument]]:
    """Arguments that the request gives, and optional ones that it does not."""
    chosen = list(dict.fromkeys(s.shuffled(kinds)))[:s.number(1, 3)]
    made = {a.name: a for a in (_argument(s, kind) for kind in chosen)}
    if "city" in chosen and "name" in chosen:  # "for X for Y" would not tell them apart
        for a in made.values():
            if a.description == "Name of the city":
                a.phrase = f"in {a.value}"
    arguments = list(made.values())
    if len(arguments) > 1 and s.chance(0.25):
        return arguments[:-1], arguments[-1:]
    return arguments, []


def _lookup(s: Source, entry) -> Tool:
    key, value = s.word(entry[0]), entry[1]
    if not s.test and s.chance(0.25):
        key += "_" + s.word("level")
    thing, the = key.replace("_", " "), "the" if s.test else s.any(["the", "the", "the", "my", "this"])
    verb = s.word(s.any(["get", "get", "find", "lookup", "check", "show", "get_current", "fetch", "read"]))
    description = s.of([f"Get the {thing}", f"Returns the {thing}", f"Look up the {thing}",
                        f"Find the {thing}", f"Tells the {thing}", f"Shows the {thing}.",
                        f"Read the {thing}", f"Gives the current {thing}",
                        f"Fetch the {thing}", f"Finds out the {thing}"],
                       [f"{s.words(1, 2).capitalize()} the {thing}", f"{s.words(1, 2).capitalize()} {thing}",
                        f"{thing.capitalize()}", f"The {thing}, {s.words(1, 2)}", f"Checks the {thing}",
                        f"Use this to learn the {thing}", f"Answers with the {thing}", f"For questions on {thing}"])
    request = s.of([f"What is the {thing}", f"Tell me the {thing}", f"Show me the {thing}",
                    f"Look up the {thing}", f"Find the {thing}", f"I want to know the {thing}",
                    f"Check the {thing}", f"Please get the {thing}", f"Do you know the {thing}",
                    f"Can you find out the {thing}", f"Give me the {thing}",
                    f"I need the {thing}", f"Could you check the {thing}",
                    f"What's the {thing}", f"Let me know the {thing}"],
                   [f"{s.words(1, 3).capitalize()} {the} {thing}", f"{s.words(1, 3).capitalize()} {the} {thing}",
                    f"How is {the} {thing}", f"I would like to see {the} {thing}", f"Let me see {the} {thing}",
                    f"Tell me about {the} {thing}", f"Let us look at {the} {thing}", f"How about {the} {thing}",
                    f"Can you look at {the} {thing}", f"Say what {the} {thing} is", f"{thing.capitalize()}"])
    return Tool(_opaque(s, f"{verb}_{key}"), description, request, thing, value.replace("_", " "),
                *arguments_of(s, LOOKUP_ARGUMENTS))


def _opaque(s: Source, name: str) -> str:
    """In training a name may say nothing, so that descriptions are read."""
    return s.words(1, 2).replace(" ", "_") or name if not s.test and s.chance(0.12) else name


def _action(s: Source) -> Tool:
    verb, words, things = s.any(ACTIONS)
    thing, word = s.word(s.of(things)), s.any(words)
    if not s.test and s.chance(0.5):  # a verb to be copied
        word = verb = s.word(verb)
    article = "some" if thing in ("flowers", "music", "lunch") else \
        "an" if thing[0] in "aeiou" else "a"
    if verb in ("cancel", "stop", "delete", "rename", "update"):
        article = "the"
    description = s.of([f"{verb.capitalize()} {article} {thing}", f"{verb.capitalize()}s {article} {thing}",
                        f"Use this to {verb} {article} {thing}", f"Lets you {verb} {article} {thing}",
                        f"Can {verb} {article} {thing}"],
                       [f"{s.words(1, 2).capitalize()} {verb} {article} {thing}", f"To {verb} {article} {thing}",
                        f"Helps to {verb} {article} {thing}", f"Will {verb} {article} {thing}",
                        f"{verb.capitalize()} {thing}", f"{thing.capitalize()}: {verb}"])
    request = s.of([f"{word.capitalize()} {article} {thing}", f"Please {word} {article} {thing}",
                    f"Can you {word} {article} {thing}", f"I want you to {word} {article} {thing}",
                    f"I would like to {word} {article} {thing}", f"Could you {word} {article} {thing}",
                    f"I need to {word} {article} {thing}", f"Help me {word} {article} {thing}",
                    f"Would you {word} {article} {thing}", f"Let's {word} {article} {thing}"],
                   [f"{s.words(1, 3).capitalize()} {word} {article} {thing}", f"We should {word} {article} {thing}",
                    f"Let us {word} {article} {thing}", f"Let me {word} {article} {thing}",
                    f"Now {word} {article} {thing}", f"It is time to {word} {article} {thing}",
                    f"Will you {word} {article} {thing}", f"Do {word} {article} {thing}",
                    f"I must {word} {article} {thing}", f"Go and {word} {article} {thing}"])
    return Tool(_opaque(s, f"{verb}_{thing}"), description, request, thing, "", *arguments_of(s, ACTION_ARGUMENTS))


def _tools(s: Source, count: int) -> list[Tool]:
    tools: dict[str, Tool] = {}
    while len(tools) < count:
        tool = _lookup(s, s.of(LOOKUPS)) if s.chance(0.55) else _action(s)
        if all(tool.thing != other.thing for other in tools.values()):
            tools[tool.name] = tool
    return list(tools.values())


def _alike(s: Source, tool: Tool, others: list[Tool]) -> None:
    """In training a wrong tool may share words with the request: its verb, or a part of the thing."""
    for other in others:
        if s.test or other is tool or not s.chance(0.4):
            continue
        thing = other.thing.replace(" ", "_")
        verb = s.any(re.findall("[a-z]+", tool.request[:-len(tool.thing)].lower()) or ["do"])
        if s.chance(0.25):
            other.thing = s.any(tool.thing.split()) + " " + s.words(1, 1)
            thing = other.thing.replace(" ", "_")
        other.name = f"{verb}_{thing}"
        other.description = s.any([f"{verb.capitalize()}s the {other.thing}", f"Will {verb} the {other.thing}",
                                   f"{verb.capitalize()} {s.words(1, 1)} the {other.thing}"])


def sentence(s: Source, tool: Tool) -> str:
    phrases = [a.phrase for a in s.shuffled(tool.arguments)]
    text = " ".join([tool.request] + phrases)
    asks = tool.request.startswith(("What", "How", "Do ", "Can ", "Could", "Would", "Will"))
    return text + ("?" if asks else s.any([".", ".", "", " please.", "!"]))


def call_of(tool: Tool) -> dict:
    arguments = {a.name: a.value for a in tool.arguments}
    return {"role": "assistant", "content": "",
            "tool_calls": [{"type": "function",
                            "function": {"name": tool.name, "arguments": arguments}}]}


NO_TOOL = "None of my tools can do that."
SYSTEMS = ["You are a helpful assistant.", "You are an assistant with tools.",
           "Use the tools when they fit.", "Help the user.", "You help people with small jobs.",
           "You are a friendly helper.", "Be kind and short.", "You work for a small office.",
           "Answer the user's requests."]


def opening(s: Source, tools: list[Tool]) -> tuple[list[dict], list[dict]]:
    messages = []
    if s.chance(0.35):
        messages.append({"role": "system", "content": s.of(SYSTEMS)})
    plain = s.chance(0.4)
    return messages, [t.spec(s, plain) for t in tools]


def choose(s: Source) -> Item:
    tools = _tools(s, s.number(1, 5) if s.chance(0.7) else s.number(2, 3))
    used = s.any(tools)
    _alike(s, used, tools)
    messages, specs = opening(s, tools)
    messages += [{"role": "user", "content": sentence(s, used)}, call_of(used)]
    return Item("tools", messages, specs, "tool_call", False)


def no_tool(s: Source) -> Item:
    tools = _tools(s, s.number(2, 4))
    used = tools.pop()
    messages, specs = opening(s, tools)
    if s.chance(0.3):
        question, answer = s.of([("Hello!", "Hello! How can I help you?"),
                                 ("Good morning.", "Good morning! How can I help you?"),
                                 ("Thank you!", "You are welcome!"), ("Hi", "Hello! How can I help you?"),
                                 ("Hello there.", "Hello! How can I help you?")])
    else:
        question, answer = sentence(s, used), NO_TOOL
    messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return Item("tools", messages, specs, "answer", False)


def after_result(s: Source) -> Item:
    tools = _tools(s, s.number(1, 3))
    used = s.any(tools)
    messages, specs = opening(s, tools)
    messages += [{"role": "user", "content": sentence(s, used)}, call_of(used)]
    if used.result:
        value: object = s.any([used.result, s.number(1, 900), s.any(pools.WORDS), s.made_up()])
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        key = used.thing.replace(" ", "_") if s.chance(0.6) else "result"
        result, answer = {key: value}, f"The {used.thing} is {value}."
    elif s.chance(0.75):
        code = s.code()
        result, answer = {"status": "ok", "id": code}, f"Done. The id is {code}."
    else:
        reason = s.of(["nothing is free", "the service is closed", "it was not found",
                       "the address is wrong", "there is no connection", "it is too late",
                       "the limit is reached", "access is denied", "it is sold out",
                       "it already exists"])
        if not s.test and s.chance(0.5):
            reason = s.words(2, 6) or reason
        result, answer = {"status": "error", "reason": reason}, f"Sorry, that did not work: {reason}."
    messages += [{"role": "tool", "content": compact(result)},
                 {"role": "assistant", "content": answer}]
    return Item("tools", messages, specs, "answer", False)


def tools_item(s: Source) -> Item:
    share = s.r.random()
    return choose(s) if share < 0.65 else no_tool(s) if share < 0.82 else after_result(s)
