"""Exercises in reading by grammar: which value belongs to which key; training only.

The values of a text are of one kind here, its names and verbs may be any words, and the same words with the
roles turned give another answer. So the order of the words, a unit or a preposition has to decide.
"""

import re

from . import pools, records
from .extract import array_request, listed, place, request_for, schema_of
from .item import Item, ask, compact
from .source import Source, join_words

# What a number N measures.
MEASURES = {key: forms.split("|") for key, forms in (line.split(": ") for line in """\
weight: N kg|N kilos|N kg in weight|a weight of N kg|N kg on the scale|weighs N kg|weight N
age: N years|N years old|aged N|the age of N|N years of age|is N|turned N|past the age of N|N years behind
height: N cm|N cm tall|N cm high|a height of N cm|N cm from the floor|height N cm
length: N metres|N metres long|a length of N metres|N metres from end to end
distance: N km|N km away|a distance of N km|N km by road
speed: N km/h|a speed of N km/h|N km an hour
price: N dollars|a price of N dollars|N dollars each|costs N|N dollars to buy|price N
rent: N euros a month|a rent of N euros|N euros monthly
wage: N dollars an hour|a wage of N dollars|N dollars for each hour
stock: N pieces|N pieces left|a stock of N|N in store|N copies left|N more in the back
guests: N guests|room for N guests|a list of N guests|N invited guests
pages: N pages|N printed pages|N pages of text
chapters: N chapters|chapters 1 to N
minutes: N minutes|N minutes long|N minutes in all
days: N days|N days off|N days in a row
rooms: N rooms|a flat of N rooms
floor: floor N|floor number N|on floor N
gate: gate N|at gate N|from gate N
seats: N seats|places for N
temperature: N degrees|a temperature of N degrees|N degrees inside
points: N points|a result of N points|made N points
votes: N votes|the votes of N people
children: N children|N sons and daughters
brothers: N brothers
eggs: N eggs|N eggs in a box
litres: N litres|N litres of water
watts: N watts|a power of N watts
year: the year N|since N|in N
percent: N percent|a share of N percent""".splitlines())}

# Who does what: the keys, then sentences in which A, B and C stand for their values.
ROLES = [(block[0].split(), "|".join(block[1:]).split("|")) for block in (b.splitlines() for b in """\
giver receiver gift
A gave B the C|A gave the C to B|B got the C from A|B was given the C by A|the C was given to B by A
the C came to B from A|from A, B has the C|to B, A handed the C|it was A who gave B the C
it was B who got the C from A

seller buyer item
A sold B the C|A sold the C to B|B bought the C from A|the C was sold to B by A|the C was bought from A by B
for the C, B paid A|A took the money of B for the C|what B bought from A is the C|to B the C was sold by A

sender receiver object
A sent B the C|A sent the C to B|B received the C from A|the C from A arrived at the house of B
to B went the C that A sent|B opened the C that A sent|A posted the C for B|the C was posted to B by A
B has the C that came from A

lender borrower thing
A lent B the C|A lent the C to B|B borrowed the C from A|B still owes A the C|B has to bring the C back to A
A waits for the C that B borrowed|the C was lent to B by A|from A came the C that B has borrowed

teacher student topic
A teaches B C|B learns C from A|B is taught C by A|C is what A teaches B|A has B in the lessons of C
B sits in the C lesson of A|in the C lesson B listens to A|A shows B how C is done

winner loser
A beat B|B was beaten by A|B lost to A|A won against B|against A, B had no chance|A defeated B
B had to give up against A|after the game with B, A took the cup|A was better than B|B was not as good as A
A left B behind|it was B who lost to A

older younger
A is older than B|B is younger than A|A was born before B|B was born after A|B is not as old as A
than A, B is younger

taller shorter
A is taller than B|B is shorter than A|A looks down on B|B looks up at A|B is not as tall as A|A stands above B

boss employee
A is the boss of B|B works for A|B reports to A|A hired B|B was hired by A|the boss of B is A
B takes orders from A|A has B on the team|under A works B|A pays B every month|B is paid by A

parent child
A is the parent of B|B is the child of A|A raised B|B was raised by A|the parent of B is A|the child of A is B
B was born to A

author reader
A wrote to B|B read what A wrote|A wrote the letter that B read|B has a letter by A|what A wrote was read by B

from to
it goes from A to B|it goes to B from A|it leaves A for B|it goes to B and comes from A|out of A it came to B
it starts in A and stops in B|it stops in B and starts in A|on to B it went, out of A|it reaches B after A

old new
A was replaced by B|B replaced A|instead of A there is now B|what was A is now B|B took the place of A
A became B|A gave way to B|it changed from A to B|it changed to B from A|B is the new A

first last
A comes first and B last|B comes last and A first|B is at the end, A at the beginning|A opens and B closes
B closes, A opens

cause effect
A led to B|B came of A|because of A there was B|there was B because of A|B was caused by A|A caused B
B followed from A

owner property
A owns B|B belongs to A|B is owned by A|the owner of B is A|B is in the hands of A|A has bought B
B was bought by A

doctor patient
A treats B|B is treated by A|B went to see A about the pain|B is in the care of A|A gave B a pill
B took the pill of A

host guest
A invited B|B was invited by A|B stays at the house of A|B is the guest of A|to B, A opened the door
A has B to stay""".split("\n\n"))]

LABELS = """colour size number owner city street level rating limit weight age kind maker room code gate
title host state rank result model phone class route total price seat floor goal""".split()
VERBS = ["has", "has", "is", "shows", "comes to", "reached", "with", "got", "takes", "~", "~", "~"]
SUBJECTS = "It He She This One They We".split()


def any_word(s: Source) -> str:
    return s.made_up().lower() if s.chance(0.1) else s.words(1, 1) or s.of(pools.WORDS)


def phrase(s: Source) -> str:
    """A value of a few words, some with signs in them."""
    first, second = any_word(s), any_word(s)
    return s.any([f"{first} {second}", f"{first}-{second}", f"{first}'s {second}", f"{first} & {second}",
                  f"{second} {s.number(2, 99)}", f"{first.capitalize()} {second.capitalize()}",
                  f"O'{first.capitalize()}", f"{first.upper()}", f"{first} of {any_word(s)} {second}",
                  f"{first.capitalize()}-{second.capitalize()}", f"{s.number(2, 99)}{first[0].upper()}",
                  f"{first}_{second}", f"{first}.{second}", f"{s.number(1, 99)}/{s.number(1, 99)}",
                  f"Dr. {first.capitalize()}", f"{first.capitalize()} {second[0].upper()}. {first.capitalize()}"])


VALUES = [lambda s: s.number(1, 2000), lambda s: s.number(1, 99), Source.code, records.full_name,
          records.first_name, records.city, records.day, records.date, records.clock, records.price, any_word,
          phrase, phrase, records.phone, lambda s: records.email(s, records.first_name(s)),
          lambda s: s.any(pools.COLOUR)]


def _values(s: Source, count: int) -> list:
    """Different values, mostly of one kind."""
    make, values = s.any(VALUES), {}
    mixed = s.chance(0.3)
    for _ in range(3 * count):
        value = s.any(VALUES)(s) if mixed else make(s)
        values[str(value)] = value
        if len(values) == count:
            break
    return list(values.values())


def _key(s: Source) -> str:
    word = any_word(s) if s.chance(0.6) else s.any(LABELS)
    return f"{word}_{any_word(s)}" if s.chance(0.3) else word


def _keys(s: Source, count: int) -> list[str]:
    return list(dict.fromkeys(_key(s) for _ in range(count)))


def _name(s: Source) -> str:
    kind = s.r.random()
    if kind < 0.35:
        return s.any([records.full_name, records.first_name, records.city])(s)
    if kind < 0.5:
        return s.code()
    return f"The {any_word(s)}" if kind < 0.7 else f"{any_word(s).capitalize()} {s.code()}"


def _sentences(s: Source, subject: str, clauses: list[str]) -> str:
    """The clauses in sentences of one to three, with one word for "and" in all of them."""
    link = s.any([" and ", " and ", ", ", ", and ", " but ", "; "])
    again = s.any([*SUBJECTS, subject, subject])
    text, rest = [], list(clauses)
    while rest:
        count = s.any([1, 1, 2, 2, 3])
        part, rest = rest[:count], rest[count:]
        text.append(f"{subject} {link.join(part)}.")
        subject = again
    return " ".join(text)


def _bound(s: Source) -> tuple[dict, str]:
    """Keys and values of any kind in one grammar."""
    values = _values(s, s.number(2, 7))
    facts = dict(zip(_keys(s, len(values)), values))
    say = records.wording(s, 0.5)
    subject = s.any(["", _name(s), s.any(SUBJECTS)])
    kind, number = any_word(s), s.code()
    if kind not in facts and s.chance(0.4):  # told as of a form
        subject = s.any(["", "The "]) + f"{kind} {number}"
        subject = subject[0].upper() + subject[1:]
    if subject:
        clauses = [say(key.replace("_", " "), value) for key, value in facts.items()]
        if subject.endswith(number):
            facts[kind] = number
        return facts, _sentences(s, subject, clauses)
    verb = s.any(["is", "was", "for", "as", "stands for", "makes", "=", "means", "(", any_word(s)])
    form = s.any(["{v} {verb} the {k}", "{v} {verb} {k}", "the {k} {verb} {v}", "{k} {verb} {v}"])
    if verb == "(":
        form = form.replace("the ", "").replace(" {verb} ", " (") + ")"
    told = [form.format(k=k.replace("_", " "), v=v, verb=verb) for k, v in facts.items()]
    text = s.any([", ".join(told), "; ".join(told), join_words(told), ". ".join(told)])
    return facts, s.any(["", "", s.words(1, 4) + ": "]).lstrip(": ") + text + "."


def _in_order(s: Source) -> tuple[dict, str]:
    """All keys, then all values."""
    values = _values(s, s.number(2, 4))
    facts = dict(zip(_keys(s, len(values)), values))
    keys, told = join_words([k.replace("_", " ") for k in facts]), join_words([str(v) for v in facts.values()])
    return facts, s.any([f"The {keys} are {told}.", f"{told} are the {keys}, in this order.",
                         f"{_name(s)} has {told} as {keys}.", f"The {keys} of {_name(s)} are {told}."])


def _measured(s: Source) -> tuple[dict, str]:
    """Numbers that only their units, or the want of one, tell apart."""
    keys = s.r.sample(list(MEASURES), s.number(2, 5))
    if s.chance(0.3):
        keys = list(dict.fromkeys(["age", "weight", "height", *keys]))[:4]
    most, facts, clauses = s.any([20, 60, 99, 400]), {}, []
    for key in s.shuffled(keys):
        number = s.number(1850, 2029) if key == "year" else s.number(2, most)
        facts[key] = number
        told = s.any(MEASURES[key]).replace("N", str(number))
        if not re.match("is |turned|weighs|costs|made", told):
            verb = s.filled(s.any(VERBS))
            told = f"{verb} {told}"
        clauses.append(s.filled(told + " ~") if s.chance(0.15) else told)
    return facts, _sentences(s, _name(s), clauses)


def _played(s: Source) -> tuple[dict, str]:
    """Who did what, and to which other one."""
    keys, sentences = s.any(ROLES)
    sentence = s.any(sentences)
    if s.chance(0.25):  # any verb
        verb = any_word(s)
        keys = [f"{verb}_by", f"{verb}_to"]
        sentence = s.any([f"A did {verb} B", f"B was {verb} by A", f"A {verb} B", f"by A, B was {verb}",
                          f"it was A who did {verb} B", f"it was B that A did {verb}"])
    make = s.any([records.full_name, records.first_name, records.first_name, records.city, Source.made_up])
    values = [make(s), make(s), any_word(s)]
    if values[0] == values[1] or len(set(keys)) < len(keys):
        return _played(s)
    if sentence[1] != " ":  # not a value, which must stay as it is
        sentence = sentence[0].upper() + sentence[1:]
    text = re.sub(r"\b[ABC]\b", lambda m: values["ABC".index(m[0])], sentence) + "."
    return dict(zip(keys, values)), text


def _roles(s: Source) -> tuple[dict, str]:
    facts, text = _played(s)
    for _ in range(s.any([0, 1, 1, 2])):
        more, sentence = _played(s)
        if not facts.keys() & more.keys():
            facts, text = facts | more, f"{text} {sentence}"
    return facts, text


def _asked(s: Source, facts: dict) -> dict:
    keys = s.shuffled(facts)[:s.number(1, len(facts)) if s.chance(0.6) else len(facts)]
    return {key: facts[key] for key in keys}


def _json(s: Source, facts: dict, text: str) -> Item:
    asked = _asked(s, facts)
    missing = _key(s)
    if s.chance(0.08) and missing not in facts:
        asked = {k: asked.get(k) for k in s.shuffled([*asked, missing])}
    request = request_for(s, listed(s, list(asked)))
    if None in asked.values():
        request += " Use null for what is missing."
    return ask("json", place(s, request, text), compact(asked), check="json")


def _schema(s: Source, facts: dict, text: str) -> Item:
    asked = _asked(s, facts)
    types = {bool: "boolean", int: "integer", float: "number"}
    properties = {key: {"type": types.get(type(value), "string")} for key, value in asked.items()}
    if s.chance(0.35):
        told, other = s.any(list(facts)), _key(s)
        flag = told if s.chance(0.5) or other in facts else other
        asked[f"has_{flag}"] = flag in facts
        properties[f"has_{flag}"] = {"type": "boolean"}
    return schema_of(s, properties, asked, text)


def _rows(s: Source) -> Item:
    """An array of a few subjects with the same keys, told in one grammar."""
    subject = s.any(["name", "name", _key(s)])
    keys = [key for key in _keys(s, s.number(1, 2)) if key != subject] or ["rank"]
    count, say = s.number(2, 4), records.wording(s, 0.4)
    names = list(dict.fromkeys(_name(s) for _ in range(count)))
    columns = [_values(s, count) * count for _ in keys]
    rows = [{subject: name, **{k: column[i] for k, column in zip(keys, columns)}} for i, name in enumerate(names)]
    text = " ".join(_sentences(s, name, [say(k.replace("_", " "), row[k]) for k in s.shuffled(keys)])
                    for name, row in zip(names, rows))
    request = array_request(s, join_words([subject] + keys))
    return ask("json", place(s, request, text), compact(rows), check="json")


def contrast_item(s: Source) -> Item:
    if s.chance(0.08):
        return _rows(s)
    facts, text = s.any([_bound, _bound, _bound, _measured, _measured, _roles, _roles, _in_order])(s)
    if s.chance(0.15):
        text = s.filled(s.any(["~. ", "~: ", "~, ~. "])).capitalize() + text
    return (_json if s.chance(0.55) else _schema)(s, facts, text)
