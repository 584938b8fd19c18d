"""Simple SQL and shell commands from a description."""

from . import pools
from .item import Item, ask
from .source import Source

TABLES = """customers orders products books students teachers cities films songs players employees invoices
hotels flights rooms recipes animals tickets users cars""".split()
NUMBERS = "age price year pages weight score stock salary rating points quantity height".split()
TEXTS = "name city country color title author type status email team".split()
MORE = [("greater than", ">"), ("more than", ">"), ("above", ">"), ("less than", "<"), ("below", "<"),
        ("at least", ">="), ("at most", "<="), ("equal to", "=")]


def _condition(s: Source) -> tuple[str, str]:
    if s.chance(0.6):
        column, (words, sign) = s.any(NUMBERS), s.any(MORE)
        value = s.number(1, 999)
        return f"with {column} {words} {value}", f"{column} {sign} {value}"
    column = s.any(TEXTS)
    value = s.made_up() if s.chance(0.3) else s.word(s.of(pools.CITY + pools.FIRST))
    return f"where the {column} is {value}", f"{column} = '{value}'"


def _sql(s: Source) -> tuple[str, str]:
    table = s.any(TABLES)
    kind = s.number(0, 6)
    words, condition = _condition(s)
    where = f" WHERE {condition}"
    if s.chance(0.2):
        words2, condition2 = _condition(s)
        words, where = f"{words} and {words2}", f"{where} AND {condition2}"
    opener = s.of(["Write SQL: {}", "SQL for: {}", "Write an SQL query for this: {}", "Give me the SQL: {}",
                   "Write a query in SQL: {}", "SQL query: {}", "How do I say this in SQL: {}",
                   "I need an SQL query: {}", "Write the SQL for: {}", "Please write SQL: {}"])
    if kind == 0:
        body, query = f"all {table} {words}", f"SELECT * FROM {table}{where};"
    elif kind == 1:
        column = s.any(TEXTS + NUMBERS)
        body, query = f"the {column} of all {table} {words}", f"SELECT {column} FROM {table}{where};"
    elif kind == 2:
        body, query = f"count the {table} {words}", f"SELECT COUNT(*) FROM {table}{where};"
    elif kind == 3:
        column, down = s.any(NUMBERS + TEXTS), s.chance(0.4)
        body = f"all {table} sorted by {column}" + (" descending" if down else "")
        query = f"SELECT * FROM {table} ORDER BY {column}" + (" DESC;" if down else ";")
    elif kind == 4:
        column, (name, function) = s.any(NUMBERS), s.any([("average", "AVG"), ("sum of the", "SUM"),
                                                         ("largest", "MAX"), ("smallest", "MIN")])
        body, query = f"the {name} {column} of all {table}", f"SELECT {function}({column}) FROM {table};"
    elif kind == 5:
        body, query = f"delete the {table} {words}", f"DELETE FROM {table}{where};"
    else:
        column, count = s.any(NUMBERS), s.number(1, 20)
        body = f"the {count} {table} with the highest {column}"
        query = f"SELECT * FROM {table} ORDER BY {column} DESC LIMIT {count};"
    return opener.format(body + "."), query


def _file(s: Source) -> str:
    return f"{s.word(s.of(pools.WORDS))}.{s.any(['txt', 'log', 'csv', 'md', 'py', 'json'])}"


def _shell(s: Source) -> tuple[str, str]:
    a, b = _file(s), _file(s)
    folder, folder2 = s.word(s.of(pools.WORDS)), s.word(s.of(pools.WORDS))
    n, word = s.number(2, 50), s.word(s.of(pools.WORDS))
    end = s.any(["txt", "log", "csv", "md", "py", "json"])
    body, command = s.any([
        (f"list all files of the folder {folder}", f"ls {folder}"),
        (f"list all {end} files", f"ls *.{end}"),
        (f"count the lines of {a}", f"wc -l {a}"),
        (f"count the words of {a}", f"wc -w {a}"),
        (f"show the first {n} lines of {a}", f"head -n {n} {a}"),
        (f"show the last {n} lines of {a}", f"tail -n {n} {a}"),
        (f"copy {a} to {b}", f"cp {a} {b}"),
        (f"copy the folder {folder} to {folder2}", f"cp -r {folder} {folder2}"),
        (f"rename {a} to {b}", f"mv {a} {b}"),
        (f"move {a} into the folder {folder}", f"mv {a} {folder}/"),
        (f"delete {a}", f"rm {a}"),
        (f"delete the folder {folder} with everything in it", f"rm -r {folder}"),
        (f"make a folder named {folder}", f"mkdir {folder}"),
        (f"find all lines with {word} in {a}", f"grep {word} {a}"),
        (f"count the lines with {word} in {a}", f"grep -c {word} {a}"),
        (f"find all {end} files under {folder}", f"find {folder} -name '*.{end}'"),
        (f"sort the lines of {a}", f"sort {a}"),
        (f"show the size of the folder {folder}", f"du -sh {folder}"),
        (f"go to the folder {folder}", f"cd {folder}"),
        (f"print the file {a}", f"cat {a}"),
        (f"replace {word} by {folder} in {a}", f"sed -i 's/{word}/{folder}/g' {a}"),
        (f"make {a} executable", f"chmod +x {a}"),
        (f"show the difference between {a} and {b}", f"diff {a} {b}"),
    ])
    opener = s.of(["Shell command: {}.", "How do I {} in the shell?", "Give me a shell command to {}.",
                   "Write a shell command to {}.", "Which command can {}?", "What is the command to {}?",
                   "Command to {}", "In a terminal, how do I {}?", "I want to {} on the command line.",
                   "Which shell command do I need to {}?"])
    return opener.format(body), command


def commands_item(s: Source) -> Item:
    return ask("commands", *(_sql(s) if s.chance(0.5) else _shell(s)))
