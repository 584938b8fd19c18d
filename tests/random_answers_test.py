"""Random schemas, models, drafters, temperatures and batches: every answer that ends must be valid by a
validator that knows nothing of Talon, and be the same text as without speculation.

Usage: random_answers_test.py PATH_OF_TALON [unittest arguments]
TALON_CASES: how many answers to ask for (24). TALON_SEED: where the random numbers begin (1).
TALON_BUNDLED: how many of them of the bundled model (three fifths), which is slower than the random ones.
"""

import collections
import concurrent.futures
import json
import os
import random
import shutil
import sys

import jsonschema

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import DRAFT, EAGLE3, TINY, CliTest, main, write_safetensors  # noqa: E402
from server import Server  # noqa: E402

CASES = int(os.environ.get("TALON_CASES", "24"))
SEED = int(os.environ.get("TALON_SEED", "1"))
BUNDLED = int(os.environ.get("TALON_BUNDLED", str(CASES * 3 // 5)))
AT_ONCE = 4  # requests
WORDS = ["a", "b", "name", "été", "x y", "quote\"", "1", "long_property_name"]
PATTERNS = ["^[a-c]{1,4}$", "^(yes|no)$", "b", r"^\d{2,3}-[A-F]+$", "^.{0,3}$", r"^\w+( \w+)?$"]
# Where newer versions have it, and where Debian 12's does.
FORMATS_OF_VALIDATOR = (getattr(jsonschema.Draft202012Validator, "FORMAT_CHECKER", None) or
                        jsonschema.draft202012_format_checker)
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "hostname", "duration"]


class Schemas:
    """Random schemas out of the keywords that docs/serving.md does not refuse."""

    def __init__(self, numbers):
        self.numbers = numbers

    def root(self):
        schema = self.schema(3)
        if self.numbers.random() < 0.2:
            return {"$defs": {"part": self.schema(1)}, "type": "array", "maxItems": 3,
                    "items": {"anyOf": [{"$ref": "#/$defs/part"}, schema]}}
        if self.numbers.random() < 0.1:
            return {"type": "object", "properties": {"value": schema, "next": {"$ref": "#"}},
                    "required": ["value"], "additionalProperties": False}
        return schema

    def schema(self, depth):
        kinds = [self.integer, self.number, self.string, self.enumeration, self.simple]
        if depth > 0:
            kinds += [self.array, self.tuple, self.object, self.object, self.either, self.both]
        return self.numbers.choice(kinds)(depth)

    def integer(self, _):
        low = self.numbers.randint(-1000, 1000)
        schema = {"type": "integer"}
        if self.numbers.random() < 0.8:
            schema[self.numbers.choice(["minimum", "exclusiveMinimum"])] = low
            schema[self.numbers.choice(["maximum", "exclusiveMaximum"])] = (
                low + self.numbers.randint(10, 5000))
            if self.numbers.random() < 0.3:
                schema["multipleOf"] = self.numbers.randint(2, 9)
        return schema

    def number(self, _):
        low = self.numbers.choice([-10, -1.5, 0, 0.25, 99.9])
        schema = {"type": "number"}
        if self.numbers.random() < 0.7:
            schema["minimum"] = low
        if self.numbers.random() < 0.7:
            schema["maximum"] = low + self.numbers.choice([0.5, 1, 12.75, 1000])
        return schema

    def string(self, _):
        kind = self.numbers.random()
        if kind < 0.25:
            return {"type": "string", "pattern": self.numbers.choice(PATTERNS), "maxLength": 30}
        if kind < 0.45:
            return {"type": "string", "format": self.numbers.choice(FORMATS)}
        low = self.numbers.randint(0, 4)
        return {"type": "string", "minLength": low, "maxLength": low + self.numbers.randint(0, 12)}

    def enumeration(self, _):
        values = [*WORDS, 0, -7, 1.5, True, None, [1], {"a": 2}]
        if self.numbers.random() < 0.3:
            return {"const": self.numbers.choice(values)}
        return {"enum": self.numbers.sample(values, self.numbers.randint(1, 5))}

    def simple(self, _):
        return {"type": self.numbers.choice(["boolean", "null", ["integer", "null"],
                                             ["boolean", "null"]])}

    def array(self, depth):
        low = self.numbers.randint(0, 2)
        return {"type": "array", "items": self.schema(depth - 1), "minItems": low,
                "maxItems": low + self.numbers.randint(0, 3)}

    def tuple(self, depth):
        items = [self.schema(depth - 1) for _ in range(self.numbers.randint(1, 3))]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "items": False}

    def object(self, depth):
        names = self.numbers.sample(WORDS, self.numbers.randint(1, 4))
        required = self.numbers.sample(names, self.numbers.randint(0, len(names)))
        schema = {"type": "object", "required": required,
                  "properties": {name: self.schema(depth - 1) for name in names}}
        kind = self.numbers.random()
        if kind < 0.8:
            schema["additionalProperties"] = False
        elif kind < 0.9:
            schema["additionalProperties"] = self.schema(0)
        else:
            schema["patternProperties"] = {"^p[0-9]$": self.schema(0)}
            schema["additionalProperties"] = False
        return schema

    def either(self, depth):
        if self.numbers.random() < 0.3:
            return {"oneOf": [{"type": "string", "maxLength": 5}, {"type": "boolean"},
                              {"type": "array", "items": self.schema(depth - 1), "maxItems": 2}]}
        return {"anyOf": [self.schema(depth - 1) for _ in range(self.numbers.randint(2, 3))]}

    def both(self, depth):
        def part(name):
            return {"type": "object", "properties": {name: self.schema(depth - 1)},
                    "required": [name]}
        return {"allOf": [part("a"), part("b")]}


def write_random_model(path, numbers, hidden, layers):
    """A model of random weights with the bundled model's tokenizer."""
    path.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, path)
    config = json.loads((TINY / "config.json").read_text())
    config.update(hidden_size=hidden, num_hidden_layers=layers, intermediate_size=2 * hidden,
                  head_dim=16, num_attention_heads=2, num_key_value_heads=1, dtype="bfloat16")
    (path / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden],
              "model.norm.weight": [hidden]}
    for layer in range(layers):
        for name, shape in [
                ("input_layernorm", [hidden]), ("post_attention_layernorm", [hidden]),
                ("self_attn.q_proj", [32, hidden]), ("self_attn.k_proj", [16, hidden]),
                ("self_attn.v_proj", [16, hidden]), ("self_attn.o_proj", [hidden, 32]),
                ("mlp.gate_proj", [2 * hidden, hidden]), ("mlp.up_proj", [2 * hidden, hidden]),
                ("mlp.down_proj", [hidden, 2 * hidden])]:
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        begin = len(data)
        # Bfloat16 of either sign between 1/16 and 1.
        data += b"".join(bytes((low, numbers.choice((0x3d, 0x3e, 0xbd, 0xbe))))
                         for low in numbers.randbytes(count))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(data)]}
    write_safetensors(path / "model.safetensors", header, bytes(data))
    return path


class RandomAnswers(CliTest):
    def setUp(self):
        super().setUp()
        self.numbers = random.Random(SEED)
        self.seen = collections.Counter()

    def case(self):
        """A request, without what it says of speculation."""
        prompt = [self.numbers.randrange(300, 8000) for _ in range(self.numbers.randint(1, 40))]
        return {"prompt": prompt, "max_tokens": 100, "seed": self.numbers.randrange(1 << 30),
                "temperature": self.numbers.choice([0, 0, 0.7, 1, 1.5]),
                "structured_outputs": {
                    "json": Schemas(self.numbers).root(),
                    "whitespace": self.numbers.choice(["compact", "flexible"])}}

    def check(self, case, drafted, plain):
        about = json.dumps(case)
        self.assertEqual(drafted.status, plain.status, about)
        if plain.status != 200:
            self.assertEqual(plain.status, 400, about)
            self.assertIn("not supported", plain.error["message"], about)
            self.seen["refused"] += 1
            return
        one, other = drafted.json["choices"][0], plain.json["choices"][0]
        self.assertEqual((one["text"], one["finish_reason"]),
                         (other["text"], other["finish_reason"]), about)
        self.seen["accepted drafts"] += drafted.json["usage"]["spec"]["accepted"]
        self.assertEqual(plain.json["usage"]["spec"]["drafted"], 0)
        if one["finish_reason"] != "stop":
            self.assertEqual(one["finish_reason"], "length", about)
            self.seen["cut"] += 1
            return
        validator = jsonschema.Draft202012Validator(
            case["structured_outputs"]["json"], format_checker=FORMATS_OF_VALIDATOR)
        # Python's calendar begins with the year 1, that of RFC 3339 with 0; both here are leap years.
        value = json.loads(one["text"].replace('"0000-', '"0004-'))
        errors = list(validator.iter_errors(value))
        self.assertEqual(errors, [], f"{about}\n{one['text']}")
        self.seen["valid"] += 1

    def ask(self, drafters, count, *flags):
        """Cases at one server, several at once, each with some of its drafters and with none."""
        every = ",".join(drafters)
        with Server("--speculative-algorithm", every, *flags) as server, \
                concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            def answer(request):
                return server.post("/v1/completions", request)
            cases = [self.case() for _ in range(count)]
            requests = []
            for case in cases:
                some = self.numbers.sample(drafters, self.numbers.randint(1, len(drafters)))
                requests += [{**case, "speculative": {"algorithm": ",".join(some)}},
                             {**case, "speculative": {"off": True}}]
            answers = list(pool.map(answer, requests))
        for case, drafted, plain in zip(cases, answers[::2], answers[1::2]):
            self.check(case, drafted, plain)

    def test_answers_are_valid_and_the_same_without_drafts(self):
        small = write_random_model(self.path / "small", self.numbers, hidden=32, layers=2)
        other = write_random_model(self.path / "other", self.numbers, hidden=48, layers=1)
        free = ["SUFFIX", "NGRAM", "GRAMMAR"]
        partial = ["--enable-specpv", "--specpv-partial-threshold", 16, "--specpv-n-sink-blocks", 1,
                   "--specpv-n-retrieval-blocks", 1, "--specpv-n-window-blocks", 1]
        share, others = BUNDLED // 3, CASES - BUNDLED
        self.ask(["EAGLE3", *free], share, "--model", TINY, "--speculative-draft-model-path", EAGLE3)
        self.ask(["STANDALONE", *free], share, "--model", TINY,
                 "--speculative-draft-model-path", DRAFT)
        self.ask(["EAGLE3", *free], BUNDLED - 2 * share, "--model", TINY,
                 "--speculative-draft-model-path", EAGLE3, *partial)
        self.ask(free, others // 4, "--model", other, "--max-sequences", 2)
        self.ask(["STANDALONE", *free], others // 4, "--model", small,
                 "--speculative-draft-model-path", other, *partial)
        self.ask(["STANDALONE", *free], others - 2 * (others // 4), "--model", small,
                 "--speculative-draft-model-path", other)
        print(f"random answers: {dict(self.seen)}")
        self.assertEqual(self.seen["valid"] + self.seen["cut"] + self.seen["refused"], CASES)
        self.assertGreater(self.seen["valid"], CASES // 2)
        self.assertGreater(self.seen["accepted drafts"], CASES // 2)


if __name__ == "__main__":
    main()
