"""Extract the asked fields of a text as JSON; fill a schema; turn JSON into text."""

from . import records
from .item import Item, ask, compact
from .source import WORDS, Source, join_words

FILLER = ["Please note that the office is closed on Sunday.", "Thank you for your message.",
          "We hope to hear from you soon.", "More news will follow next week.",
          "All details are without guarantee.", "The weather was fine that day.",
          "Nothing else is known so far.", "This note was written in a hurry.",
          "Ask at the desk if anything is unclear.", "Have a nice day."]

REQUESTS = ["Extract {fields} as JSON.", "Give me {fields} from this text as JSON.",
            "Read the text and return a JSON object with {fields}.",
            "Write {fields} of the following as a JSON object.",
            "Pull {fields} out of the text below, as JSON.",
            "Find {fields} in the text. Answer with JSON only.",
            "Return JSON with {fields}.", "I need {fields} in JSON format.",
            "Make a JSON object with {fields} from this.",
            "Answer in JSON: what are {fields} here?",
            "Convert this note to JSON with {fields}.", "What are {fields}? Use JSON.",
            "From the text, extract {fields}. JSON please.",
            "Collect {fields} in one JSON object.",
            "List {fields} from the text below as a JSON object."]

SCHEMA_REQUESTS = ["Fill this schema from the text.", "Answer with JSON that fits this schema.",
                   "Use the schema and the text to write the JSON object.",
                   "Turn the text into JSON of this schema.",
                   "Write a JSON object for the text that follows the schema.",
                   "Read the text and fill in the schema.",
                   "Extract the data into this JSON schema.", "Fill the schema below.",
                   "Produce JSON that matches the schema, with the values of the text.",
                   "Give me a JSON object with the values of the text and the form of the schema."]
MORE_SCHEMA_REQUESTS = ["Write the JSON for this schema.", "Use this schema for the text.",
                        "JSON by this schema, please.", "Read the text. Answer by the schema.",
                        "Put the values of the text into the schema.",
                        "Make a JSON object of the text. Follow the schema.",
                        "The schema says what to extract.",
                        "Give the text as JSON that obeys the schema.",
                        "Return an object that is valid for the schema.", "~ the schema ~.", "~ JSON ~.",
                        "~ a schema and a text.", "~.", "~ by the schema ~.", "~ the text ~ the schema.",
                        "~ object ~ schema ~.", "JSON ~ the keys of the schema.", "~ what the text says ~."]

# Parts of requests that training puts together, so that the fields are found in any wording.
VERBS = "Extract Get Give Show Name Tell Fetch Find Note Report Copy Take State Print Output Write".split()
SOURCES = ["", "", " from the text", " of this text", " from the note", " given here", " mentioned",
           " that you read", " from what follows"]
FORMS = ["as JSON", "in JSON", "as a JSON object", "in JSON form", "as one JSON object", "using JSON",
         "formatted as JSON", "as JSON and nothing else"]
QUESTIONS = ["what is", "which are", "what do you find for", "can you tell", "what does it say about",
             "do you see", "how would you fill in"]
OPENINGS = ["", "", "", "Please: ", "Task: ", "Now this: ", "Question: ", "Next, "]


def _order(s: Source, fields: str) -> str:
    """A request of training: parts put together, half of them any words of the corpus."""
    if s.chance(0.5):
        return f"{s.word(s.any(VERBS))} {fields}{s.any(SOURCES)}"
    before, after = s.number(0, 3), s.number(0, 4)
    words = [s.any(WORDS) for _ in range(before + after)] if WORDS else []
    return " ".join([*words[:before], fields, *words[before:]])


def request_for(s: Source, fields: str) -> str:
    if s.test or s.chance(0.4):
        return s.of(REQUESTS).format(fields=fields)
    opening, form = s.any(OPENINGS), s.any(FORMS)
    start = form[0].upper() + form[1:]
    if s.chance(0.5):
        order = _order(s, fields)
        order = order[0].upper() + order[1:]
        return opening + s.any([f"{order} {form}.", f"{order}, {form}.", f"{order}. {start}.",
                                f"{start}: {order[0].lower()}{order[1:]}.", f"{order}! Reply {form}."])
    question = f"{s.any(QUESTIONS)} {fields}{s.any(SOURCES)}?" if s.chance(0.5) else f"{_order(s, fields)}?"
    upper = question[0].upper() + question[1:]
    lead = s.any(["Reply", "Answer", "Write", "Respond", *WORDS[:200]])
    return opening + s.any([f"{upper} {start}.", f"{lead} {form}: {question}", f"{start}, {question}",
                            f"Using JSON, {question}", f"{lead.capitalize()} {form}: {question}"])


def _text(s: Source, rec: records.Record) -> str:
    if s.chance(0.2):
        return records.lines(rec, s)
    parts = [records.subject_text(rec, s)]
    if s.chance(0.3):
        place, filler = s.number(0, 1), s.of(FILLER)
        if not s.test and s.chance(0.6):
            filler = s.words(3, 7).capitalize() + "."
        parts.insert(place, filler)
    return " ".join(parts)


def _asked(s: Source, rec: records.Record) -> dict:
    facts = s.shuffled(rec.facts().items())
    chosen = dict(facts[:s.number(min(2, len(facts)), len(facts))])
    if s.chance(0.06):
        chosen[s.any(["height", "country", "nickname"])] = None
    return chosen


def place(s: Source, request: str, text: str) -> str:
    if "\n" in text:
        return s.any(["{q}\n\n{t}", "{t}\n\n{q}"]).format(q=request, t=text)
    form = s.any(["{q}\n\n{t}", "{q}\n\nText: {t}", "{t}\n\n{q}", "{q}\n{t}", "{q} {t}",
                  'Text: "{t}"\n\n{q}'])
    return form.format(q=request, t=text)


def listed(s: Source, keys: list[str]) -> str:
    if s.chance(0.2):
        return "the fields " + ", ".join(keys)
    if s.chance(0.3):
        return join_words(keys)
    return "the " + join_words(keys)


def extract(s: Source) -> Item:
    rec = records.record(s)
    asked = _asked(s, rec)
    request = request_for(s, listed(s, list(asked)))
    if None in asked.values():
        request += " Use null for what is missing."
    return ask("json", place(s, request, _text(s, rec)), compact(asked), check="json")


def array_request(s: Source, fields: str) -> str:
    each = s.any(["for each", "of each", "of every one", "for all of them", "one by one", "each time", ""])
    array = s.any(["as a JSON array", "as an array in JSON", "in one JSON array", "as JSON, one array"])
    order = _order(s, s.any([fields, "the " + fields]))
    return s.any([f"{order} {each} {array}.", f"{array[0].upper()}{array[1:]}: {order} {each}.",
                  f"{order} {each}, {array}.", f"{order}. {array[0].upper()}{array[1:]} {each}."]).replace(" .", ".")


def _several(s: Source) -> Item:
    """A JSON array of two or three records of one domain."""
    maker = s.any([records.person, records.book, records.pet])
    recs = [maker(s) for _ in range(s.number(2, 3))]
    key = recs[0].subject_key
    keys = [f.key for f in s.shuffled(recs[0].fields)[:s.number(1, 2)]]
    rows = []
    for rec in recs:
        rec.fields = [f for f in rec.fields if f.key in keys]
        rows.append({key: rec.subject, **{k: rec.facts()[k] for k in keys}})
    text = " ".join(rec.text(s) for rec in recs)
    fields = join_words([key] + keys)
    if not s.test and s.chance(0.6):
        request = array_request(s, fields)
    else:
        request = s.of([f"List the {fields} of each as a JSON array.",
                        f"Return a JSON array with the {fields} of every one.",
                        f"For each, give the {fields}, as a JSON array.",
                        f"Make a JSON array of objects with {fields}.",
                        f"Write a JSON array: the {fields} for each one named."])
    return ask("json", place(s, request, text), compact(rows), check="json")


def json_item(s: Source) -> Item:
    return _several(s) if s.chance(0.15) else extract(s)


def schema_item(s: Source) -> Item:
    rec = records.record(s)
    asked = {k: v for k, v in s.shuffled(rec.facts().items())}
    types = {f.key: f.type for f in rec.fields}
    properties = {key: {"type": types.get(key, "string")} for key in asked}
    text = _text(s, rec)
    if s.chance(0.35):
        key, truth = _flag(s, rec)
        properties[key], asked[key] = {"type": "boolean"}, truth
    return schema_of(s, properties, asked, text)


def schema_of(s: Source, properties: dict, asked: dict, text: str) -> Item:
    schema = {"type": "object", "properties": properties}
    if s.chance(0.6):
        schema["required"] = list(asked)
    request = s.of(SCHEMA_REQUESTS, MORE_SCHEMA_REQUESTS)
    form = s.any(["{q}\n\nSchema: {s}\n\nText: {t}", "{q}\n\n{s}\n\n{t}",
                  "{q}\nSchema: {s}\nText: {t}", "Text: {t}\n\n{q}\n\nSchema: {s}"])
    question = form.format(q=request, s=compact(schema), t=text)
    return ask("schema", question, compact(asked), check="json")


def _flag(s: Source, rec: records.Record) -> tuple[str, bool]:
    """A boolean that the values decide: has_X is true when X is told."""
    told = [f.key for f in rec.fields]
    missing = [k for k in ("phone", "email", "price", "host", "gate", "owner") if k not in told]
    if s.chance(0.5):
        return "has_" + s.any(told), True
    return "has_" + s.any(missing), False
