"""Tables into sentences and back, into JSON, and questions about a cell."""

from . import pools, records
from .item import Item, ask, compact
from .source import Source

COLUMNS = [("age", lambda s: s.number(1, 90)), ("city", records.city),
           ("job", lambda s: s.word(s.of(pools.JOB))),
           ("color", lambda s: s.any(pools.COLOUR)), ("score", lambda s: s.number(1, 100)),
           ("team", lambda s: s.any(["A", "B", "C", "D"])), ("price", lambda s: s.number(1, 300)),
           ("country", lambda s: s.any(pools.COUNTRY_CAPITAL)[0]), ("pet", lambda s: s.any(pools.ANIMAL)),
           ("room", lambda s: s.number(1, 60)), ("day", lambda s: s.any(pools.DAY)),
           ("points", lambda s: s.number(1, 40))]


def _table(s: Source) -> tuple[list[str], list[list]]:
    columns = s.r.sample(COLUMNS, s.number(1, 3))
    rows: dict[str, list] = {}
    for _ in range(s.number(2, 4)):
        name = records.first_name(s)
        rows[name] = [name] + [make(s) for _, make in columns]
    return ["name"] + [c for c, _ in columns], list(rows.values())


def markdown(columns: list[str], rows: list[list]) -> str:
    lines = [columns, ["---"] * len(columns)] + rows
    return "\n".join("| " + " | ".join(str(x) for x in line) + " |" for line in lines)


def csv(columns: list[str], rows: list[list]) -> str:
    return "\n".join(",".join(str(x) for x in line) for line in [columns] + rows)


def sentences(columns: list[str], rows: list[list]) -> str:
    out = []
    for name, *values in rows:
        parts = [f"{c} {v}" for c, v in zip(columns[1:], values)]
        text = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
        out.append(f"{name} has {text}.")
    return " ".join(out)


TO_SENTENCES = ["Turn this table into sentences.", "Write the table as sentences.",
                "Describe each row of the table in a sentence.", "Put this table into words.",
                "Write one sentence for each row of this table.", "Say this table in sentences.",
                "Make sentences out of the table.", "Tell me the rows of the table as sentences.",
                "Convert the table to sentences.", "Turn the rows of this table into sentences."]
TO_TABLE = ["Make a table of this.", "Turn these sentences into a table.", "Write this as a table.",
            "Put this into a Markdown table.", "Make a Markdown table out of these sentences.",
            "Convert the sentences to a table.", "Show this as a table.", "Create a table from the text.",
            "Arrange this in a table.", "Turn this text into a table."]
TO_CSV = ["Write this table as CSV.", "Convert the table to CSV.", "Turn the table into CSV.",
          "Give me this table in CSV format.", "Change this table to CSV.", "CSV, please.", "As CSV.",
          "Make CSV of this table.", "Rewrite the table as CSV."]
FROM_CSV = ["Make a Markdown table of this CSV.", "Turn the CSV into a table.", "Show this CSV as a table.",
            "Convert this CSV to a Markdown table.", "Turn this CSV into a Markdown table.",
            "Write the CSV as a table.", "Give me a table of this CSV.", "Change the CSV to a table.",
            "CSV to Markdown, please."]
TO_JSON = ["Write this table as JSON.", "Convert the table to a JSON array.", "Turn the table into JSON.",
           "Give me the rows as a JSON array.", "Change this table to JSON.", "Make JSON of this table.",
           "The table as JSON, please.", "Rewrite the table as a JSON array.", "Table to JSON."]


def tables_item(s: Source) -> Item:
    columns, rows = _table(s)
    table = markdown(columns, rows)
    kind = s.number(0, 6)
    check = "answer"
    if kind <= 1:
        request, given, answer = s.of(TO_SENTENCES), table, sentences(columns, rows)
    elif kind == 2:
        request, given, answer = s.of(TO_TABLE), sentences(columns, rows), table
    elif kind == 3:
        request, given, answer = s.of(TO_CSV), table, csv(columns, rows)
    elif kind == 4:
        request, given, answer = s.of(FROM_CSV), csv(columns, rows), table
    elif kind == 5:
        request, given, check = s.of(TO_JSON), table, "json"
        answer = compact([dict(zip(columns, row)) for row in rows])
    else:
        row, column = s.any(rows), s.number(1, len(columns) - 1)
        name, what = row[0], columns[column]
        request = s.of([f"What is the {what} of {name}?", f"Which {what} does {name} have?",
                        f"Look up the {what} of {name}.", f"Find {name}'s {what}.",
                        f"What {what} does {name} have?"])
        given, answer = table, f"{row[column]}"
    form = s.any(["{q}\n\n{t}", "{t}\n\n{q}", "{q}\n{t}"])
    return ask("tables", form.format(q=request, t=given), answer, check=check)
