"""`talon serve` with answers that must match a grammar: always right, the same with and without drafts.

Usage: serve_grammar_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import sys

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import TINY, CliTest, main  # noqa: E402
from server import Server  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 20},
        "pages": {"type": "integer", "minimum": 1, "maximum": 999},
        "kind": {"enum": ["novel", "play", "poem"]},
        "authors": {"type": "array", "items": {"type": "string", "maxLength": 8},
                    "minItems": 1, "maxItems": 2},
    },
    "required": ["title", "pages", "kind", "authors"],
    "additionalProperties": False,
}
ASK = {"prompt": "A book as JSON:", "max_tokens": 200}
OFF = {"speculative": {"off": True}}


class Grammar(CliTest):
    def setUp(self):
        super().setUp()
        self.server = self.enterContext(
            Server("--model", TINY, "--speculative-algorithm", "SUFFIX"))

    def check_book(self, text):
        book = json.loads(text)
        self.assertEqual(list(book), ["title", "pages", "kind", "authors"])
        self.assertLessEqual(len(book["title"]), 20)
        self.assertIn(book["pages"], range(1, 1000))
        self.assertIn(book["kind"], ["novel", "play", "poem"])
        self.assertIn(len(book["authors"]), (1, 2))

    def test_json_schema_with_and_without_drafts(self):
        form = {"type": "json_schema", "json_schema": {"name": "book", "schema": SCHEMA}}
        for temperature in (0, 0.9):
            ask = {**ASK, "response_format": form, "temperature": temperature, "seed": 5}
            choice = self.server.complete(**ask)["choices"][0]
            self.assertEqual(choice["finish_reason"], "stop", choice)
            self.check_book(choice["text"])
            self.assertEqual(self.server.complete(**ask, **OFF)["choices"][0]["text"],
                             choice["text"])
            events = self.server.stream(**ask)[:-1]
            self.assertEqual("".join(e["choices"][0]["text"] for e in events), choice["text"])

    def test_several_choices_each_have_their_own(self):
        answer = self.server.complete(**ASK, n=4, temperature=1.2, seed=3, guided_json=SCHEMA)
        texts = [choice["text"] for choice in answer["choices"]]
        for text in texts:
            self.check_book(text)
        self.assertGreater(len(set(texts)), 1)

    def test_the_names_that_other_servers_have(self):
        schema = json.dumps({"type": "array", "items": {"type": "boolean"}, "maxItems": 3})
        cases = [
            ({"regex": "[0-9]{3}-[a-f]{2}"}, r"[0-9]{3}-[a-f]{2}"),
            ({"guided_regex": "(yes|no)!"}, r"(yes|no)!"),
            ({"guided_choice": ["red", "green"]}, r"red|green"),
            ({"structured_outputs": {"choice": ["up", "down"]}}, r"up|down"),
            ({"grammar": 'root ::= "<" [a-z]{2,4} ">"'}, r"<[a-z]{2,4}>"),
            ({"json_schema": json.loads(schema)}, r"\[.*\]"),
            ({"structured_outputs": {"json": schema, "whitespace": "compact"}},
             r"\[(true|false)?(,(true|false)){0,2}\]"),
        ]
        for fields, expected in cases:
            with self.subTest(fields):
                choice = self.server.complete(**ASK, temperature=1, seed=9, **fields)["choices"][0]
                self.assertEqual(choice["finish_reason"], "stop")
                self.assertRegex(choice["text"], f"^(?s:{expected})$")

    def test_json_object_in_a_chat(self):
        answer = self.server.chat("Say something.", max_tokens=60, temperature=0,
                                  response_format={"type": "json_object"})
        text = answer["choices"][0]["message"]["content"]
        self.assertTrue(text.startswith("{"), text)

    def test_what_cannot_be_enforced_is_refused_with_its_place(self):
        for fields, why in [
                ({"guided_json": {"properties": {"a": {"uniqueItems": True}}}},
                 "#/properties/a/uniqueItems"),
                ({"guided_json": {"properties": {"a": {"type": "string", "pattern": "(?=b)"}}}},
                 "#/properties/a/pattern: regex: look-around"),
                ({"choice": [f"v{i}" for i in range(10_001)]}, "10001 texts, limit 10000"),
                ({"guided_choice": ["a" * 262_000, "b" * 145]}, "262145 bytes, limit 262144"),
                ({"regex": "(?=a)b"}, "look-around"),
                ({"grammar": "root ::= x"}, "'x' is not defined"),
                ({"regex": "a", "guided_choice": ["b"]}, "one grammar only"),
                ({"response_format": {"type": "xml"}}, "must be text, json_object or json_schema"),
                ({"response_format": {"type": "json_schema", "json_schema": {
                    "schema": {"type": "strange"}}}}, "strange"),
                ({"ebnf": "root ::= x"}, "not supported")]:
            with self.subTest(fields):
                answer = self.server.post("/v1/completions", {**ASK, **fields})
                self.assertEqual(answer.status, 400)
                self.assertIn(why, answer.error["message"])
                self.assertEqual(answer.error["param"], list(fields)[-1])


if __name__ == "__main__":
    main()
