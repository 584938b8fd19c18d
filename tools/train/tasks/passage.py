"""Answer from a given text: facts in prose, short or up to 16K tokens, the answer anywhere."""

from . import pools, records, stories
from .item import Item, ask
from .source import Source

PEOPLE = "keeper owner captain teacher gardener manager founder cook painter guard doctor mayor".split()
PLACES = """lighthouse mill library harbour chapel school hotel bakery museum station castle theatre garden
farm bridge tower market""".split()
THINGS = """box drawer bag basket chest jar cupboard crate bucket case shed barrel""".split()


def fact(s: Source) -> tuple[str, list[str], str, str]:
    """Key, sentences that tell it (one is picked), a question, the short answer."""
    kind = s.number(0, 5)
    if kind == 0:
        role, place, name = s.of(PEOPLE), s.of(PLACES), records.full_name(s)
        return (role + place, f"The {role} of the {place} is {name}.",
                s.of([f"Who is the {role} of the {place}?", f"What is the name of the {place}'s {role}?",
                      f"Name the {role} of the {place}.", f"Which person is the {role} of the {place}?",
                      f"What is the {role} of the {place} called?"]), f"{name}.")
    if kind == 1:
        thing, colour, goods = s.of(THINGS), s.any(pools.COLOUR), s.any(pools.GOODS)
        n = s.number(2, 99)
        return (thing + colour, f"The {colour} {thing} holds {n} {goods}.",
                s.of([f"What does the {colour} {thing} hold?", f"What is in the {colour} {thing}?",
                      f"Tell me what the {colour} {thing} holds.",
                      f"What can be found in the {colour} {thing}?",
                      f"What is kept in the {colour} {thing}?"]), f"{n} {goods}.")
    if kind == 2:
        place, code = s.of(PLACES), f"{s.number(100, 999)} {s.number(100, 999)}"
        name = records.first_name(s)
        return ("code" + name + place, f"The code of {name}'s {place} is {code}.",
                s.of([f"What is the code of {name}'s {place}?", f"Which code opens {name}'s {place}?",
                      f"Give me the code of {name}'s {place}.", f"I need the code for {name}'s {place}.",
                      f"Tell me the code of {name}'s {place}."]), f"{code}.")
    if kind == 3:
        name, town = records.full_name(s), records.city(s)
        return ("town" + name, f"{name} was born in {town}.",
                s.of([f"Where was {name} born?", f"In which town was {name} born?",
                      f"What is the birthplace of {name}?", f"Which town is {name} from?",
                      f"In what place was {name} born?"]), f"{town}.")
    if kind == 4:
        place, when = s.of(PLACES), records.date(s)
        return ("open" + place, f"The {place} was opened on {when}.",
                s.of([f"When was the {place} opened?", f"On which day did the {place} open?",
                      f"What day was the {place} opened?", f"When did the {place} open?",
                      f"On what date was the {place} opened?"]), f"{when}.")
    name, job = records.full_name(s), s.word(s.of(pools.JOB))
    return ("job" + name, f"{name} works as a {job}.",
            s.of([f"What does {name} do for a living?", f"What is the job of {name}?",
                  f"As what does {name} work?", f"What is {name}'s job?", f"What work does {name} do?"]),
            f"A {job}.")


def _facts(s: Source, count: int) -> list[tuple]:
    facts: dict[str, tuple] = {}
    while len(facts) < count:
        made = fact(s)
        facts.setdefault(made[0], made)
    return list(facts.values())


ASKS = ["Read the text and answer the question.", "Answer from the text.",
        "Use the text to answer.", "Here is a text. Answer the question about it.",
        "Answer the question with the help of the text."]
NOT_TOLD = "The text does not say."


def _ask(s: Source, text: str, question: str, answer: str) -> Item:
    form = s.any(["{a}\n\nText: {t}\n\nQuestion: {q}", "{t}\n\n{q}", "{a}\n\n{t}\n\n{q}",
                  "Text: {t}\n\nQuestion: {q}", "{a}\n\nQuestion: {q}\n\nText: {t}"])
    return ask("passage", form.format(a=s.of(ASKS), t=text, q=question), answer)


def hide(s: Source, paragraphs: list[str], facts: list[tuple]) -> str:
    """Puts each fact's sentence into or between paragraphs."""
    for _, sentence, _, _ in facts:
        place = s.number(0, len(paragraphs) - 1)
        if s.chance(0.4):
            paragraphs.insert(place, sentence)
        elif s.chance(0.5):
            paragraphs[place] = sentence + " " + paragraphs[place]
        else:
            paragraphs[place] += " " + sentence
    return "\n\n".join(paragraphs)


def short_item(s: Source) -> Item:
    facts = _facts(s, s.number(2, 7))
    told, (_, _, question, answer) = facts, facts[0]
    if s.chance(0.08):
        told, answer = facts[1:], NOT_TOLD
    told = s.shuffled(told)
    if s.chance(0.5):
        text = " ".join(f[1] for f in told)
    else:
        text = hide(s, stories.prose(s, s.number(1, 4)), told)
    return _ask(s, text, question, answer)


def record_item(s: Source) -> Item:
    """A question about one field of a record."""
    rec = records.person(s)
    asked = s.any(rec.fields)
    first = rec.subject.split()[0]
    question = {"age": f"How old is {first}?", "city": f"Where does {first} live?",
                "job": f"What is {first}'s job?", "email": f"What is {first}'s email address?",
                "phone": f"What is {first}'s phone number?"}[asked.key]
    answer = {"age": f"{asked.value}.", "job": f"A {asked.value}."}.get(asked.key, f"{asked.value}.")
    other = records.person(s)
    parts = [rec.text(s)] + ([other.text(s)] if other.subject.split()[0] != first else [])
    return _ask(s, " ".join(s.shuffled(parts)), question, answer)


def long_item(s: Source, paragraphs: list[str], questions: int = 1) -> Item:
    """Facts in a long text; several questions are asked turn by turn (a text is expensive)."""
    facts = _facts(s, s.number(max(3, questions), 3 + questions))
    text = hide(s, list(paragraphs), facts)
    item = _ask(s, text, facts[0][2], facts[0][3])
    for _, _, question, answer in facts[1:questions]:
        item.messages += [{"role": "user", "content": question},
                          {"role": "assistant", "content": answer}]
    item.joinable = False
    return item


def passage_item(s: Source) -> Item:
    share = s.r.random()
    if share < 0.75:
        return short_item(s)
    if share < 0.9:
        return record_item(s)
    return long_item(s, stories.prose(s, s.number(4, 14)), 1 if s.test else s.number(1, 3))
