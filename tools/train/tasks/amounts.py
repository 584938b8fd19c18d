"""Arithmetic with steps, and conversion of units, dates and numbers."""

from . import pools, records
from .item import Item, ask
from .source import Source


def add_steps(a: int, b: int) -> tuple[str, int]:
    """Adds the hundreds, tens and ones of b one after the other."""
    steps, total = [], a
    for part in parts_of(b):
        steps.append(f"{total} + {part} = {total + part}")
        total += part
    return "; ".join(steps), total


def subtract_steps(a: int, b: int) -> tuple[str, int]:
    steps, total = [], a
    for part in parts_of(b):
        steps.append(f"{total} - {part} = {total - part}")
        total -= part
    return "; ".join(steps), total


def times_steps(a: int, b: int) -> tuple[str, int]:
    """a has one digit, b up to two."""
    tens, ones = b // 10 * 10, b % 10
    if not tens or not ones:
        return f"{a} x {b} = {a * b}", a * b
    return (f"{a} x {tens} = {a * tens}; {a} x {ones} = {a * ones}; "
            f"{a * tens} + {a * ones} = {a * b}"), a * b


def parts_of(number: int) -> list[int]:
    """347 -> [300, 40, 7]."""
    parts = [number // 100 * 100, number % 100 // 10 * 10, number % 10]
    return [p for p in parts if p] or [0]


def _finish(steps: str, total) -> str:
    return f"{steps}. The answer is {total}."


SUMS = ["What is {}?", "Compute {}.", "Calculate {}.", "How much is {}?", "Work out {}.", "{} = ?",
        "Please solve {}.", "Solve: {}", "Can you tell me what {} is?", "Find {}.", "{}",
        "Tell me {}.", "What does {} make?", "What do you get for {}?", "Give me the value of {}."]
MORE_SUMS = ["Evaluate {}.", "I need the result of {}.", "Do you know {}?", "The value of {}?", "Result of {}?",
             "Give me {}.", "Please give the result of {}.", "Add it up: {}", "Let me have {}.", "Reckon {}.",
             "What value has {}?", "And {}?", "What is the value of {}?", "Say what {} is."]


def _plain(s: Source) -> tuple[str, str, int]:
    """The expression, its steps, its value."""
    kind = s.number(0, 4)
    if kind <= 1:
        high = s.any([99, 99, 999])
        a, b = s.number(2, high), s.number(2, high)
        return (s.any([f"{a} + {b}", f"{a} plus {b}"]), *add_steps(a, b))
    if kind == 2:
        high = s.any([99, 99, 999])
        a, b = sorted((s.number(2, high), s.number(2, high)), reverse=True)
        return (s.any([f"{a} - {b}", f"{a} minus {b}"]), *subtract_steps(a, b))
    if kind == 3:
        a, b = s.number(2, 9), s.number(2, 99)
        return (s.any([f"{a} x {b}", f"{a} times {b}", f"{a} * {b}"]), *times_steps(a, b))
    a, b = s.number(2, 9), s.number(2, 12)
    return s.any([f"{a * b} / {a}", f"{a * b} divided by {a}"]), f"{a} x {b} = {a * b}", b


def _story(s: Source) -> tuple[str, str]:
    name, goods = records.first_name(s), s.any(pools.GOODS)
    kind = s.number(0, 3)
    a, b = s.number(2, 99), s.number(2, 99)
    if kind == 0:
        question = s.of([f"{name} has {a} {goods} and buys {b} more. How many {goods} does {name} have now?",
                         f"{name} has {a} {goods} and gets {b} more. How many are there in all?",
                         f"There are {a} {goods} in one box and {b} in another. How many are there together?",
                         f"{name} found {a} {goods} yesterday and {b} today. How many is that in total?",
                         f"{name} had {a} {goods} and was given {b} more. How many does {name} have in total?"],
                        [f"{name} owns {a} {goods} and is handed {b} more. How many are there now?",
                         f"{name} had {a} {goods}. Then {name} received {b} more. How many now?",
                         f"{name} collected {a} {goods} and then {b} more. What is the total?",
                         f"A shop has {a} {goods} and orders {b} more. How many {goods} will it have?",
                         f"{name} starts with {a} {goods} and earns {b} more. How many in the end?",
                         f"{a} {goods} lie on the table and {b} in a bag. How many {goods} in total?",
                         f"{name} got {a} {goods} first and {b} later. How many does {name} have?",
                         f"After {a} {goods}, {name} made {b} more. How many {goods} did {name} make in total?"])
        return question, _finish(*add_steps(a, b))
    if kind == 1:
        a, b = max(a, b), min(a, b)
        question = s.of([f"{name} has {a} {goods} and gives away {b}. How many are left?",
                         f"There were {a} {goods}. {name} took {b}. How many {goods} are left?",
                         f"{name} had {a} {goods} but lost {b} of them. How many does {name} still have?",
                         f"Of {a} {goods}, {b} were sold. How many are left?",
                         f"{name} owned {a} {goods} and sold {b} of them. How many are left?"],
                        [f"{name} had {a} {goods} and sold {b}. How many remain?",
                         f"{name} bought {a} {goods} and used {b} of them. How many remain?",
                         f"A shop had {a} {goods} and sold {b} of them today. How many are still there?",
                         f"{name} kept {a} {goods}, then threw away {b}. What is left?",
                         f"From {a} {goods}, {name} gave {b} to a friend. How many did {name} keep?",
                         f"{b} of {name}'s {a} {goods} broke. How many are whole?",
                         f"{name} carried {a} {goods} and dropped {b}. How many are left?",
                         f"There are {a} {goods}, and {b} of them are taken. How many stay?"])
        return question, _finish(*subtract_steps(a, b))
    if kind == 2:
        a, b = s.number(2, 9), s.number(2, 99)
        question = s.of([f"There are {a} boxes with {b} {goods} each. How many {goods} is that?",
                         f"{name} buys {a} bags of {b} {goods}. How many {goods} are there in all?",
                         f"{a} friends have {b} {goods} each. How many {goods} do they have together?",
                         f"Each of {a} shelves holds {b} {goods}. How many {goods} is that in total?",
                         f"{name} fills {a} baskets with {b} {goods} each. How many {goods} is that?"],
                        [f"{name} packs {a} crates with {b} {goods} in each. How many {goods} in total?",
                         f"{a} rows of {b} {goods}: how many {goods}?",
                         f"Every one of {a} rooms has {b} {goods}. How many {goods} are there?",
                         f"{name} makes {b} {goods} a day for {a} days. How many {goods} is that?",
                         f"{a} trucks bring {b} {goods} each. How many {goods} arrive?"])
        return question, _finish(*times_steps(a, b))
    a, b = s.number(2, 9), s.number(2, 12)
    question = s.of([f"{name} shares {a * b} {goods} among {a} friends. How many does each get?",
                     f"{a * b} {goods} are put into {a} equal boxes. How many are in each box?",
                     f"{a} children share {a * b} {goods}. How many does each child get?",
                     f"{name} splits {a * b} {goods} into {a} equal parts. How big is each part?",
                     f"{name} divides {a * b} {goods} among {a} people. How many does each get?"],
                    [f"{name} hands out {a * b} {goods} to {a} people evenly. How many for each?",
                     f"{a * b} {goods} go into {a} bags, the same number in each. How many in a bag?",
                     f"If {a} people split {a * b} {goods}, how many does one get?",
                     f"{name} puts {a * b} {goods} into {a} equal rows. How many are in a row?"])
    return question, _finish(f"{a} x {b} = {a * b}", b)


def arithmetic_item(s: Source) -> Item:
    if s.chance(0.4):
        return ask("arithmetic", *_story(s))
    expression, steps, value = _plain(s)
    return ask("arithmetic", s.of(SUMS, MORE_SUMS).format(expression), _finish(steps, value))


UNITS = [("km", "m", 1000), ("m", "cm", 100), ("kg", "g", 1000), ("cm", "mm", 10), ("l", "ml", 1000),
         ("tonnes", "kg", 1000), ("euros", "cents", 100), ("hours", "minutes", 60),
         ("minutes", "seconds", 60), ("weeks", "days", 7), ("days", "hours", 24), ("dozens", "pieces", 12),
         ("years", "months", 12)]
ASKS = ["Convert {a} {x} to {y}.", "How many {y} are {a} {x}?", "What is {a} {x} in {y}?",
        "Express {a} {x} in {y}.", "Change {a} {x} into {y}.", "{a} {x} in {y}?", "Give {a} {x} in {y}.",
        "How much is {a} {x} in {y}?", "Turn {a} {x} into {y}.", "Please convert {a} {x} into {y}."]
MORE_ASKS = ["Say {a} {x} in {y}.", "I have {a} {x}. How many {y} is that?", "Write {a} {x} as {y}.",
             "How many {y} make {a} {x}?", "{a} {x} are how many {y}?", "Calculate {a} {x} in {y}.",
             "Tell me {a} {x} in {y}.", "How many {y} do {a} {x} have?"]


def _unit(s: Source) -> tuple[str, str]:
    big, small, factor = s.any(UNITS)
    high = 90 if factor in (10, 100, 1000) else 12
    n = s.number(2, high)
    if s.chance(0.6):
        return s.of(ASKS, MORE_ASKS).format(a=n, x=big, y=small), f"{n} {big} is {n * factor} {small}."
    return s.of(ASKS, MORE_ASKS).format(a=n * factor, x=small, y=big), f"{n * factor} {small} is {n} {big}."


DATE_FORMS = [("YYYY-MM-DD", lambda d, m, y: f"{y}-{m:02d}-{d:02d}"),
              ("DD/MM/YYYY", lambda d, m, y: f"{d:02d}/{m:02d}/{y}"),
              ("day month year", lambda d, m, y: f"{d} {pools.MONTH[m - 1]} {y}"),
              ("month day, year", lambda d, m, y: f"{pools.MONTH[m - 1]} {d}, {y}")]


def _date(s: Source) -> tuple[str, str]:
    d, m, y = s.number(1, 28), s.number(1, 12), s.number(1950, 2030)
    (_, write), (name, target) = s.r.sample(DATE_FORMS, 2)
    given = write(d, m, y)
    question = s.of([f"Write {given} as {name}.", f"Convert the date {given} to {name}.",
                     f"Change {given} to the form {name}.", f"Give the date {given} as {name}.",
                     f"Please write the date {given} in the form {name}.",
                     f"What is {given} as {name}?", f"Date: {given}. Write it as {name}.",
                     f"Turn {given} into {name}.", f"{given} as {name}?",
                     f"Put the date {given} into the form {name}."],
                    [f"Rewrite {given} in the form {name}.", f"Show the date {given} in the format {name}.",
                     f"Please give {given} as {name}.", f"How do you write {given} as {name}?",
                     f"I need the date {given} as {name}.", f"Format {given} as {name}.",
                     f"Express the date {given} in the form {name}.", f"Say {given} in the form {name}."])
    return question, target(d, m, y)


def _time(s: Source) -> tuple[str, str]:
    hour, minute = s.number(0, 23), s.number(0, 59)
    long = f"{hour:02d}:{minute:02d}"
    short = f"{hour % 12 or 12}:{minute:02d} {'am' if hour < 12 else 'pm'}"
    if s.chance(0.5):
        return s.of([f"What is {long} on a 12-hour clock?", f"Write {long} with am or pm.",
                     f"Convert {long} to 12-hour time.", f"Give {long} in am or pm form.",
                     f"Change {long} to 12-hour time."],
                    [f"Turn {long} into 12-hour time.", f"Say {long} with am or pm.", f"{long} in 12-hour time?",
                     f"Express {long} on a 12-hour clock."]), short
    return s.of([f"What is {short} on a 24-hour clock?", f"Write {short} as 24-hour time.",
                 f"Convert {short} to 24-hour time.", f"Give {short} in 24-hour form.",
                 f"Change {short} to 24-hour time."],
                [f"Turn {short} into 24-hour time.", f"Say {short} in 24-hour time.", f"{short} in 24-hour time?",
                 f"Express {short} on a 24-hour clock."]), long


ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen""".split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(n: int) -> str:
    if n < 20:
        return ONES[n]
    return TENS[n // 10] + (f"-{ONES[n % 10]}" if n % 10 else "")


def _words(s: Source) -> tuple[str, str]:
    n = s.number(1, 99)
    if s.chance(0.5):
        return s.of([f"Write {n} in words.", f"Spell the number {n}.", f"How do you write {n} in words?",
                     f"Give {n} as a word.", f"Write the number {n} in words."],
                    [f"{n} in words?", f"Put {n} in words.", f"Express {n} in words.", f"What is {n} in words?",
                     f"Spell out {n}."]), in_words(n)
    w = in_words(n)
    return s.of([f"Write {w} in digits.", f"Give {w} as a number.", f"What is {w} in digits?",
                 f"Write the number {w} with digits.", f"Put {w} in digits."],
                [f"{w.capitalize()} in digits?", f"Turn {w} into a number.", f"Express {w} in digits.",
                 f"Which number is {w}?"]), str(n)


def _weekday(s: Source) -> tuple[str, str]:
    i = s.number(0, 6)
    if s.chance(0.5):
        return s.of([f"Which day comes after {pools.DAY[i]}?", f"What day follows {pools.DAY[i]}?",
                     f"Today is {pools.DAY[i]}. What day is tomorrow?",
                     f"What is the day after {pools.DAY[i]}?",
                     f"If today is {pools.DAY[i]}, what day is tomorrow?"],
                    [f"It is {pools.DAY[i]}. Which day is tomorrow?", f"Tell me the day after {pools.DAY[i]}.",
                     f"If it is {pools.DAY[i]} now, which day comes next?", f"What comes after {pools.DAY[i]}?",
                     f"Say today is {pools.DAY[i]}. What will tomorrow be?",
                     f"When today is {pools.DAY[i]}, what is tomorrow?", f"Name the day after {pools.DAY[i]}.",
                     f"Tomorrow is what day if it is {pools.DAY[i]} today?"]), f"{pools.DAY[(i + 1) % 7]}."
    return s.of([f"Which day comes before {pools.DAY[i]}?", f"What day is before {pools.DAY[i]}?",
                 f"Today is {pools.DAY[i]}. What day was yesterday?",
                 f"What is the day before {pools.DAY[i]}?",
                 f"If today is {pools.DAY[i]}, what day was yesterday?"],
                [f"It is {pools.DAY[i]}. Which day was yesterday?", f"Tell me the day before {pools.DAY[i]}.",
                 f"If it is {pools.DAY[i]} now, which day came before?", f"What comes before {pools.DAY[i]}?",
                 f"Say today is {pools.DAY[i]}. What was yesterday?",
                 f"When today is {pools.DAY[i]}, what was yesterday?", f"Name the day before {pools.DAY[i]}.",
                 f"Yesterday was what day if it is {pools.DAY[i]} today?"]), f"{pools.DAY[i - 1]}."


def convert_item(s: Source) -> Item:
    make = s.any([_unit, _unit, _date, _date, _time, _words, _weekday])
    return ask("convert", *make(s))
