"""Records of a few domains, with the sentences that tell them: the ground of several kinds."""

from dataclasses import dataclass

from . import pools
from .source import Source


@dataclass
class Field:
    key: str
    value: object
    clause: str  # said of the subject: "is 34 years old"

    @property
    def type(self) -> str:
        names = {bool: "boolean", int: "integer", float: "number", list: "array"}
        return names.get(type(self.value), "string")


@dataclass
class Record:
    kind: str
    subject_key: str  # "name"
    subject: str
    fields: list[Field]
    again: str  # how later sentences name the subject

    def facts(self) -> dict:
        return {self.subject_key: self.subject, **{f.key: f.value for f in self.fields}}

    def text(self, s: Source, fields: list[Field] | None = None) -> str:
        """Sentences that tell the fields, in random order, one or two a sentence."""
        clauses = [f.clause for f in s.shuffled(self.fields if fields is None else fields)]
        sentences, name = [], self.subject
        while clauses:
            part = clauses.pop()
            if clauses and s.chance(0.45):
                part += " and " + clauses.pop()
            sentence = f"{name} {part}."
            sentences.append(sentence[0].upper() + sentence[1:])
            name = self.again
        return " ".join(sentences)


def first_name(s: Source) -> str:
    if s.chance(0.2):
        return s.made_up()
    if not s.test and s.chance(0.15):
        return s.changed(s.of(pools.FIRST).lower()).capitalize()  # nearly a known one
    return s.word(s.of(pools.FIRST))


def full_name(s: Source) -> str:
    last = s.made_up() if s.chance(0.2) else s.word(s.of(pools.LAST))
    return f"{first_name(s)} {last}"


def city(s: Source) -> str:
    return s.made_up() if s.chance(0.2) else s.word(s.of(pools.CITY))


def date(s: Source) -> str:
    return f"{s.number(1, 28)} {s.any(pools.MONTH)} {s.number(1960, 2029)}"


def day(s: Source) -> str:
    return f"{s.number(1, 28)} {s.any(pools.MONTH)}"


def clock(s: Source) -> str:
    return f"{s.number(0, 23):02d}:{s.any(['00', '15', '30', '45', '10', '20', '40', '50'])}"


def price(s: Source) -> float:
    return round(s.number(1, 300) + s.any([0.5, 0.25, 0.75, 0.99, 0.95]), 2)


def email(s: Source, name: str) -> str:
    return f"{name.split()[0].lower()}@{s.word(s.of(pools.WORDS))}.{s.any(['org', 'com', 'net'])}"


def phone(s: Source) -> str:
    return f"{s.number(200, 999)}-{s.number(1000, 9999)}"


def person(s: Source) -> Record:
    name, age, town, job = full_name(s), s.number(18, 95), city(s), s.word(s.of(pools.JOB))
    mail, number = email(s, name), phone(s)
    fields = [
        Field("age", age, s.of([f"is {age} years old", f"is {age}", f"turned {age} this year",
                                f"is now {age} years of age", f"has just turned {age}"],
                               [f"is aged {age}", f"is a person of {age}",
                                f"celebrated birthday number {age}", f"will be {age} soon",
                                f"gives {age} as the age", f"has lived for {age} years",
                                f"is {age} this year",
                               f"~ {age} years old", f"~ {age} years", f"~ aged {age}", f"is ~ {age}",
                               f"has {age} years behind ~", f"at {age} ~", f"~ the age of {age}",
                               f"turns {age} ~", f"is {age}, ~"])),
        Field("city", town, s.of([f"lives in {town}", f"is from {town}", f"has a flat in {town}",
                                  f"comes from {town}", f"has moved to {town}"],
                                 [f"moved to {town}", f"now lives in {town}", f"has a home in {town}",
                                  f"went to live in {town}", f"settled in {town}", f"stays in {town}",
                                  f"has left for {town}", f"calls {town} home", f"was born in {town}",
                                  f"has an office in {town}",
                                 f"~ in {town}", f"~ to {town}", f"~ from {town}", f"in {town} ~",
                                 f"has ~ near {town}", f"is at home in {town}", f"was seen in {town}",
                                 f"has a house in {town}"])),
        Field("job", job, s.of([f"works as a {job}", f"is a {job}", f"is a {job} by trade",
                                f"earns a living as a {job}", f"has worked as a {job} for years"],
                               [f"has a job as a {job}", f"became a {job}", f"worked for years as a {job}",
                                f"trained as a {job}", f"is employed as a {job}",
                                f"has been a {job} for ten years", f"makes money as a {job}",
                                f"is known as a good {job}",
                               f"~ as a {job}", f"~ a {job}", f"is a {job} ~",
                               f"has ~ the work of a {job}", f"serves as a {job}",
                               f"was hired as a {job}", f"is the {job} of ~", f"as a {job} ~"])),
        Field("email", mail, s.of([f"can be reached at {mail}", f"uses the address {mail}",
                                   f"reads mail at {mail}", f"answers letters to {mail}",
                                   f"gave us the address {mail}"],
                                  [f"writes from {mail}", f"has the email {mail}",
                                   f"left the address {mail}", f"gave the email {mail}",
                                   f"likes mail to {mail}", f"can be written to at {mail}",
                                   f"signs with {mail}",
                                  f"~ {mail}", f"~ {mail} ~", f"can ~ {mail}", f"has the mailbox {mail}",
                                  f"reads what is sent to {mail}", f"is found under {mail}"])),
        Field("phone", number, s.of([f"has the phone number {number}", f"can be called at {number}",
                                     f"answers the phone at {number}", f"left the number {number}",
                                     f"picks up when you call {number}"],
                                    [f"can be phoned at {number}", f"gave us the number {number}",
                                     f"picks up at {number}", f"wants calls to {number}",
                                     f"has {number} as a number", f"takes calls at {number}",
                                     f"answers if you dial {number}", f"is on the line at {number}",
                                    f"~ {number}", f"~ {number} ~", f"can ~ {number}",
                                    f"rings at {number}", f"is reached at {number}",
                                    f"gave {number} as the phone"])),
    ]
    return Record("person", "name", name, fields, name.split()[0])


def product(s: Source) -> Record:
    name, colour = s.word(s.of(pools.PRODUCT)), s.any(pools.COLOUR)
    material, cost, stock = s.word(s.of(pools.MATERIAL)), price(s), s.number(0, 400)
    maker = s.made_up()
    fields = [
        Field("color", colour, s.of([f"is {colour}", f"comes in {colour}", f"is painted {colour}",
                                     f"is sold in {colour}", f"has a {colour} finish"],
                                    [f"has a {colour} surface", f"was painted {colour}", f"looks {colour}",
                                     f"is available in {colour}", f"has a {colour} cover",
                                     f"shows a {colour} colour", f"is a deep {colour}", f"was dyed {colour}",
                                    f"~ {colour}", f"~ {colour} ~", f"is {colour}, ~",
                                    f"~ the colour {colour}", f"was made in {colour}",
                                    f"has a {colour} side"])),
        Field("price", cost, s.of([f"costs {cost} dollars", f"is priced at {cost} dollars",
                                   f"sells for {cost} dollars", f"can be had for {cost} dollars",
                                   f"goes for {cost} dollars"],
                                  [f"is offered for {cost} dollars", f"was bought for {cost} dollars",
                                   f"has a price of {cost} dollars", f"is yours for {cost} dollars",
                                   f"will cost {cost} dollars", f"went for {cost} dollars",
                                   f"is on sale for {cost} dollars",
                                  f"~ {cost} dollars", f"~ {cost} dollars ~", f"at {cost} dollars ~",
                                  f"~ the price of {cost} dollars", f"takes {cost} dollars to buy",
                                  f"was sold at {cost} dollars"])),
        Field("material", material, s.of([f"is made of {material}", f"is built from {material}",
                                          f"consists of {material}", f"is all {material}",
                                          f"was made from {material}"],
                                         [f"is of {material}", f"was built of {material}",
                                          f"was made out of {material}", f"has a body of {material}",
                                          f"was cut from {material}", f"is mostly {material}",
                                          f"is made out of {material}", f"was formed from {material}",
                                         f"~ made of {material}", f"~ of {material}",
                                         f"~ the material {material}", f"is {material} all over",
                                         f"~ out of {material}", f"contains {material}",
                                         f"of {material} ~"])),
        Field("maker", maker, s.of([f"is made by {maker}", f"comes from the company {maker}",
                                    f"is a product of {maker}", f"is built by {maker}",
                                    f"was designed by {maker}"],
                                   [f"was made by {maker}", f"was built by {maker}",
                                    f"is designed by {maker}", f"comes from {maker}",
                                    f"is the work of {maker}", f"was produced by {maker}",
                                    f"bears the name {maker}", f"was thought up by {maker}",
                                   f"~ by {maker}", f"~ {maker}", f"by {maker} ~",
                                   f"has the maker {maker}", f"~ from the hands of {maker}",
                                   f"was sold by {maker}"])),
        Field("stock", stock, s.of([f"is in stock {stock} times", f"has a stock of {stock} pieces",
                                    f"is there {stock} times", f"has {stock} pieces left",
                                    f"is on the shelf {stock} times"],
                                   [f"is held {stock} times", f"has {stock} copies on the shelf",
                                    f"is ready {stock} times", f"is left {stock} times",
                                    f"lies in the store {stock} times", f"stands there {stock} times",
                                    f"can be bought {stock} times",
                                   f"~ {stock} times", f"~ {stock} pieces", f"has {stock} pieces ~",
                                   f"~ a stock of {stock}", f"fills the store {stock} times",
                                   f"{stock} pieces ~"])),
    ]
    return Record("product", "product", name, fields, s.any(["it", f"the {name}"]))


def event(s: Source) -> Record:
    name, town, when, start = s.word(s.of(pools.EVENT)), city(s), day(s), clock(s)
    guests, host = s.number(5, 500), full_name(s)
    fields = [
        Field("city", town, s.of([f"takes place in {town}", f"is held in {town}", f"is in {town}",
                                  f"happens in {town}", f"will be held in {town}"],
                                 [f"will happen in {town}", f"will be in {town}", f"was moved to {town}",
                                  f"comes to {town}", f"is to be in {town}", f"meets in {town}",
                                  f"has its place in {town}",
                                 f"~ in {town}", f"in {town} ~", f"~ to {town}", f"goes to {town}",
                                 f"brings people to {town}", f"has ~ the city of {town}"])),
        Field("date", when, s.of([f"is on {when}", f"takes place on {when}", f"is planned for {when}",
                                  f"will be on {when}", f"falls on {when}"],
                                 [f"comes on {when}", f"was set for {when}", f"happens on {when}",
                                  f"has the date {when}", f"will take place on {when}",
                                  f"was moved to {when}", f"is due on {when}",
                                  f"~ on {when}", f"on {when} ~", f"~ {when}", f"~ for {when}",
                                  f"has been set for {when}", f"is to be on {when}"])),
        Field("time", start, s.of([f"starts at {start}", f"begins at {start}", f"opens at {start}",
                                   f"will start at {start}", f"gets going at {start}"],
                                  [f"will begin at {start}", f"kicks off at {start}",
                                   f"gets started at {start}", f"sets off at {start}",
                                   f"is to start at {start}", f"opens its doors at {start}",
                                   f"goes ahead at {start}",
                                  f"~ at {start}", f"at {start} ~", f"~ {start}", f"~ from {start}",
                                  f"has its start at {start}", f"is set for {start}"])),
        Field("host", host, s.of([f"is hosted by {host}", f"is led by {host}", f"is run by {host}",
                                  f"is organised by {host}", f"was arranged by {host}"],
                                 [f"was organised by {host}", f"was set up by {host}",
                                  f"is in the hands of {host}", f"is arranged by {host}",
                                  f"was planned by {host}", f"is the idea of {host}", f"has {host} as host",
                                  f"~ by {host}", f"~ {host}", f"by {host} ~", f"~ the host {host}",
                                  f"is held by {host}", f"was called by {host}"])),
        Field("guests", guests, s.of([f"expects {guests} guests", f"has {guests} guests",
                                      f"has room for {guests} guests", f"will have {guests} guests",
                                      f"was booked by {guests} guests"],
                                     [f"was visited by {guests} guests", f"is for {guests} guests",
                                      f"will welcome {guests} guests", f"counts {guests} guests",
                                      f"is booked by {guests} guests", f"was joined by {guests} guests",
                                      f"draws {guests} guests",
                                      f"~ {guests} guests", f"{guests} guests ~",
                                      f"with {guests} guests ~", f"~ by {guests} guests",
                                      f"~ to {guests} guests", f"seats {guests} guests"])),
    ]
    return Record("event", "event", name, fields, s.any(["it", f"the {name}"]))


def book(s: Source) -> Record:
    title = f"The {s.word(s.of(pools.TITLE_FIRST))} {s.word(s.of(pools.TITLE_SECOND))}"
    author, year, pages, shelf = full_name(s), s.number(1850, 2024), s.number(60, 900), s.code()
    fields = [
        Field("author", author, s.of([f"was written by {author}", f"is by {author}",
                                      f"is a book by {author}", f"is a novel of {author}",
                                      f"has the author {author}"],
                                     [f"comes from the pen of {author}", f"was the first book of {author}",
                                      f"bears the name of {author}", f"has {author} as its author",
                                      f"was penned by {author}", f"is the work of {author}",
                                      f"~ by {author}", f"~ {author}", f"by {author} ~",
                                      f"~ the author {author}", f"was the idea of {author}",
                                      f"is from the hand of {author}"])),
        Field("year", year, s.of([f"came out in {year}", f"was published in {year}",
                                  f"appeared in {year}", f"is from {year}",
                                  f"was printed in {year}"],
                                 [f"was first printed in {year}", f"was released in {year}",
                                  f"dates from {year}", f"was first sold in {year}",
                                  f"came to the shops in {year}", f"was written in {year}",
                                    f"~ in {year}", f"in {year} ~", f"~ the year {year}",
                                    f"~ since {year}", f"came to readers in {year}",
                                    f"is of the year {year}"])),
        Field("pages", pages, s.of([f"has {pages} pages", f"is {pages} pages long",
                                    f"runs to {pages} pages", f"counts {pages} pages",
                                    f"fills {pages} pages"],
                                   [f"is told on {pages} pages", f"takes {pages} pages",
                                    f"needs {pages} pages", f"contains {pages} pages",
                                    f"comes with {pages} pages", f"was printed on {pages} pages",
                                   f"~ {pages} pages", f"~ {pages} pages ~", f"of {pages} pages ~",
                                   f"~ on {pages} pages", f"has {pages} pages ~",
                                   f"is as long as {pages} pages"])),
        Field("shelf", shelf, s.of([f"stands on shelf {shelf}", f"is on shelf {shelf}",
                                    f"belongs on shelf {shelf}", f"is kept on shelf {shelf}",
                                    f"can be found on shelf {shelf}"],
                                   [f"is found on shelf {shelf}", f"lies on shelf {shelf}",
                                    f"has its place on shelf {shelf}", f"waits on shelf {shelf}",
                                    f"was put on shelf {shelf}", f"can be seen on shelf {shelf}",
                                   f"~ shelf {shelf}", f"~ on shelf {shelf}", f"on shelf {shelf} ~",
                                   f"~ shelf {shelf} ~", f"is filed on shelf {shelf}",
                                   f"went to shelf {shelf}"])),
    ]
    return Record("book", "title", title, fields, s.any(["it", "the book"]))


def trip(s: Source) -> Record:
    number, start, end, when = s.code(), city(s), city(s), day(s)
    seat, gate = f"{s.number(1, 40)}{s.any('ABCDEF')}", s.number(1, 60)
    fields = [
        Field("from", start, s.of([f"leaves from {start}", f"starts in {start}",
                                   f"sets off in {start}", f"takes off in {start}",
                                   f"departs from {start}"],
                                  [f"begins in {start}", f"goes from {start}", f"has its start in {start}",
                                   f"will leave from {start}", f"comes from {start}",
                                   f"rolls out of {start}",
                                  f"~ from {start}", f"from {start} ~", f"~ out of {start}",
                                  f"has {start} as its start", f"is from {start}",
                                  f"sets out from {start}", f"leaves {start} ~", f"starts ~ {start}"])),
        Field("to", end, s.of([f"ends in {end}", f"arrives in {end}", f"is bound for {end}",
                               f"lands in {end}", f"goes to {end}"],
                              [f"runs to {end}", f"takes you to {end}", f"heads for {end}",
                               f"stops in {end} at last", f"brings you to {end}", f"will arrive in {end}",
                               f"flies to {end}",
                              f"~ to {end}", f"to {end} ~", f"~ ends ~ {end}", f"has {end} as its end",
                              f"is for {end}", f"reaches {end} ~", f"arrives ~ {end}",
                              f"~ bound for {end}", f"lands ~ {end}"])),
        Field("date", when, s.of([f"leaves on {when}", f"is booked for {when}", f"is on {when}",
                                  f"departs on {when}", f"runs on {when}"],
                                 [f"goes on {when}", f"will leave on {when}", f"is planned for {when}",
                                  f"sets off on {when}", f"was moved to {when}", f"has the date {when}",
                                 f"~ on {when}", f"on {when} ~", f"~ {when}", f"is set for {when}",
                                 f"~ for {when}", f"comes on {when}"])),
        Field("seat", seat, s.of([f"has seat {seat} for you", f"is booked with seat {seat}",
                                  f"comes with seat {seat}", f"has you in seat {seat}",
                                  f"gives you seat {seat}"],
                                 [f"puts you in seat {seat}", f"holds seat {seat} for you",
                                  f"has seat {seat}", f"offers you seat {seat}",
                                  f"keeps seat {seat} for you", f"lets you sit in {seat}",
                                 f"~ seat {seat}", f"~ seat {seat} ~", f"~ the seat {seat}",
                                 f"with seat {seat} ~", f"~ in seat {seat}", f"lets you have seat {seat}"])),
        Field("gate", gate, s.of([f"uses gate {gate}", f"leaves at gate {gate}",
                                  f"boards at gate {gate}", f"is at gate {gate}",
                                  f"waits at gate {gate}"],
                                 [f"starts at gate {gate}", f"stands at gate {gate}", f"has gate {gate}",
                                  f"can be boarded at gate {gate}", f"was moved to gate {gate}",
                                  f"is ready at gate {gate}",
                                 f"~ gate {gate}", f"~ at gate {gate}", f"at gate {gate} ~",
                                 f"~ from gate {gate}", f"goes from gate {gate}",
                                 f"has moved to gate {gate}"])),
    ]
    return Record("trip", "number", number, fields, "it")


def pet(s: Source) -> Record:
    name, kind, age, owner = first_name(s), s.any(pools.ANIMAL), s.number(1, 20), full_name(s)
    weight, colour = s.number(1, 60), s.any(pools.COLOUR)
    fields = [
        Field("animal", kind, f"is a {kind}"),
        Field("age", age, s.of([f"is {age} years old", f"is {age}", f"turned {age} in spring",
                                f"has reached the age of {age}", f"is about {age} years old"],
                               [f"is nearly {age} years old", f"has lived for {age} years",
                                f"will be {age} soon", f"is {age} years of age", f"is already {age}",
                                f"became {age} last week",
                               f"~ {age} years old", f"~ {age} years", f"~ aged {age}", f"is {age}, ~",
                               f"~ the age of {age}", f"turns {age} ~", f"is {age} by now",
                               f"was {age} ~", f"~ {age} years ~"])),
        Field("owner", owner, s.of([f"belongs to {owner}", f"lives with {owner}",
                                    f"is owned by {owner}", f"stays with {owner}",
                                    f"has the owner {owner}"],
                                   [f"is the pet of {owner}", f"is kept by {owner}", f"was given to {owner}",
                                    f"is cared for by {owner}", f"was bought by {owner}",
                                    f"is walked by {owner}",
                                   f"~ by {owner}", f"~ {owner}", f"~ to {owner}", f"~ with {owner}",
                                   f"has its home with {owner}", f"follows {owner} ~", f"by {owner} ~",
                                   f"was found by {owner}"])),
        Field("weight", weight, s.of([f"weighs {weight} kg", f"has a weight of {weight} kg",
                                      f"brings {weight} kg to the scales", f"is {weight} kg heavy",
                                      f"now weighs {weight} kg"],
                                     [f"has grown to {weight} kg", f"comes to {weight} kg",
                                      f"weighs about {weight} kg", f"is at {weight} kg",
                                      f"weighed {weight} kg last time", f"is as heavy as {weight} kg",
                                     f"~ {weight} kg", f"~ {weight} kg ~", f"~ with {weight} kg",
                                     f"is {weight} kg ~", f"~ at {weight} kg", f"{weight} kg ~",
                                     f"~ a weight of {weight} kg", f"has reached {weight} kg",
                                     f"weighs ~ {weight} kg"])),
        Field("color", colour, s.of([f"is {colour}", f"has {colour} fur", f"looks {colour}",
                                     f"is mostly {colour}", f"has a {colour} coat"],
                                    [f"has a {colour} tail", f"is all {colour}", f"wears a {colour} coat",
                                     f"was born {colour}", f"has {colour} hair", f"is of a {colour} colour",
                                    f"~ {colour}", f"is {colour} ~", f"has a {colour} ~",
                                    f"~ {colour} hair", f"~ the colour {colour}", f"shows {colour} fur"])),
    ]
    return Record("pet", "name", name, fields, name)


LABELS = """company amount invoice total department model version size language engine floor deadline
supplier manager branch budget reference tax discount subject sender receiver priority category genre
director capacity speed length width brand origin customer account serial_number due_date unit_price
order_number street postcode region state route platform driver vehicle license room course grade""".split()


def _said(s: Source, label: str, value: object) -> str:
    """What a form says of a label, in one wording or another."""
    return s.of([f"has the {label} {value}", f"lists {value} as the {label}", f"gives {value} as the {label}",
                 f"shows the {label} {value}", f"names {value} as the {label}"],
                [f"{s.words(1, 2)} the {label} {value}", f"{s.words(1, 2)} {value} as the {label}",
                 f"has {value} for the {label}", f"puts the {label} at {value}",
                 f"says that the {label} is {value}", f"has {label} {value}", *(
                     [] if s.test else [wording(s, 0.3)(label, value) for _ in range(3)])])


LINKS = ["as", "as", "as", "for", "under", "in", "by", "where it says", "in place of", "next to", "in the field"]
SIGNS = ["", "", "to be", "with", "at", "of", "is", "=", "to"]
TELLS = """has carries enters quotes states marks writes prints notes stores keeps registers takes uses sets
declares records reports holds offers uses needs wants got received mentions includes knows""".split()


def wording(s: Source, words: float = 0.5):
    """One wording of training: clause(label, value). As often with the value first: then only the grammar
    tells which value belongs to a label, for another stands as near. A share `words` has any verb."""
    any_words = s.chance(words)
    verb = s.words(1, 1) + s.any(["s", "s", "", "ed"]) if any_words else s.any(TELLS)
    the = s.any(["the ", "the ", "the ", "", "its "])
    link = s.words(1, 1) if any_words and s.chance(0.2) else s.any(LINKS)
    if s.chance(0.65):
        return lambda label, value: f"{verb} {value} {link} {the}{label}"
    if link != "as" and s.chance(0.15):
        return lambda label, value: f"{verb} {link} {the}{label} {value}"
    sign = s.words(1, 1) if any_words and s.chance(0.2) else s.any(SIGNS)
    return lambda label, value: " ".join(f"{verb} {the}{label} {sign} {value}".split())


def form(s: Source) -> Record:
    """A form with labels of any kind."""
    fields, say = [], None if s.test or s.chance(0.3) else wording(s)
    for label in dict.fromkeys(s.word(x) for x in s.some(LABELS, s.number(3, 6))):
        value = s.any([s.number(1, 2000), s.code(), full_name(s), city(s), day(s),
                       s.word(s.of(pools.WORDS)), price(s)])
        if not s.test and s.chance(0.2):
            label += "_" + s.word("number")
        said = label.replace("_", " ")
        fields.append(Field(label, value, say(said, value) if say else _said(s, said, value)))
    return Record("form", "form", s.code(), fields, "it")


def lines(rec: Record, s: Source) -> str:
    """Label: value, a line each."""
    form = s.any(["{}: {}", "{}: {}", "{} = {}", "{} - {}"])
    facts = s.shuffled(rec.facts().items())
    name = s.any([str, str.capitalize, str.upper])
    return "\n".join(form.format(name(key.replace("_", " ")), value) for key, value in facts)


MAKERS = [person, product, event, book, trip, pet, form]
HARD = [form, form, pet]  # more of these in training


def record(s: Source) -> Record:
    made = s.any(MAKERS if s.test else MAKERS + HARD)(s)
    made.fields = s.shuffled(made.fields)[:s.number(2, len(made.fields))]
    return made


def subject_text(rec: Record, s: Source) -> str:
    """The record's text, with an article before a common noun."""
    text = rec.text(s)
    if rec.kind in ("product", "event"):
        return "The " + text[0].lower() + text[1:]
    if rec.kind == "form":
        return s.any(["Form ", "The form ", "Sheet "]) + text
    if rec.kind == "trip":
        return s.any(["Flight ", "Trip ", "Train "]) + text
    return text
