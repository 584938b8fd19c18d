"""`talon serve` with tools: calls that match their schemas, whole and streamed, drafted or not.

Usage: serve_tools_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import os
import re
import sys

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import TINY, CliTest, main  # noqa: E402
from server import Server  # noqa: E402


def tool(name, properties):
    return {"type": "function", "function": {
        "name": name, "description": f"The tool {name}.", "strict": True,
        "parameters": {"type": "object", "properties": properties,
                       "required": list(properties), "additionalProperties": False}}}


TOOLS = [
    tool("get_weather", {"city": {"type": "string", "maxLength": 12},
                         "unit": {"enum": ["celsius", "kelvin"]}}),
    tool("add", {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "boolean"}}),
]
MESSAGES = [{"role": "user", "content": "How is the weather in Paris?"}]
OFF = {"speculative": {"off": True}}
NAMED = {"type": "function", "function": {"name": "add"}}

MARKERS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>",
           "<|return|>")
HARMONY = (  # as gpt-oss's, but short
    "{%- for tool in tools or [] %}"
    "{{- '<|start|>developer<|message|>' + tool.function|tojson + '<|end|>' }}{%- endfor %}"
    "{%- for message in messages %}"
    "{{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}{%- endfor %}"
    "{{- '<|start|>assistant' }}"
    "{#- answers: <|channel|>final<|message|>...<|return|> #}")
EARLIER = r"<\|channel\|>(?:analysis|commentary)<\|message\|>.*?<\|end\|><\|start\|>assistant"
CALL = (r"<\|channel\|>commentary to=functions\.(\w+) <\|constrain\|>json<\|message\|>(\{.*\})"
        r"<\|call\|>")


def write_harmony_model(path):
    """The bundled model with harmony's markers as special tokens and a template of that format."""
    path.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer_config.json"):
        os.symlink(TINY / name, path / name)
    tokenizer = json.loads((TINY / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for i, marker in enumerate(MARKERS):
        token = next(each for each in tokenizer["added_tokens"]
                     if each["content"] == f"<|reserved_special_token_{i}|>")
        vocabulary.pop(token["content"], None)
        token["content"] = marker
        vocabulary[marker] = token["id"]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "chat_template.jinja").write_text(HARMONY)
    return path, vocabulary


def merge(events):
    """The message that the deltas of a stream's chunks make."""
    message = {"content": "", "tool_calls": []}
    for event in events:
        delta = event["choices"][0]["delta"]
        message["content"] += delta.get("content") or ""
        for part in delta.get("tool_calls", []):
            if part["index"] == len(message["tool_calls"]):
                message["tool_calls"].append(
                    {"id": part["id"], "name": part["function"]["name"], "arguments": ""})
            message["tool_calls"][part["index"]]["arguments"] += part["function"]["arguments"]
    return message


class Tools(CliTest):
    def check_call(self, call):
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "add":
            self.assertEqual(list(arguments), ["a", "b"])
            self.assertIn(arguments["a"], range(100))
            self.assertIsInstance(arguments["b"], bool)
        else:
            self.assertEqual(call["function"]["name"], "get_weather")
            self.assertEqual(list(arguments), ["city", "unit"])
            self.assertLessEqual(len(arguments["city"]), 12)
            self.assertIn(arguments["unit"], ["celsius", "kelvin"])

    def ask(self, server, **fields):
        answer = server.post("/v1/chat/completions",
                             {"messages": MESSAGES, "max_tokens": 300, **fields})
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json["choices"][0]

    def test_calls_in_every_format(self):
        for form in ("hermes", "llama3", "mistral", "mistral_args"):
            with self.subTest(form), Server(
                    "--model", TINY, "--chat-template", "chatml", "--tool-call-parser", form,
                    "--speculative-algorithm", "SUFFIX") as server:
                for choice in ("required", NAMED):
                    fields = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False,
                              "temperature": 0.9, "seed": 4}
                    whole = self.ask(server, **fields)
                    self.assertEqual(whole["finish_reason"], "tool_calls", whole)
                    calls = whole["message"]["tool_calls"]
                    self.assertEqual(len(calls), 1)
                    self.check_call(calls[0])
                    if choice is NAMED:
                        self.assertEqual(calls[0]["function"]["name"], "add")
                    plain = self.ask(server, **fields, **OFF)
                    self.assertEqual([call["function"] for call in plain["message"]["tool_calls"]],
                                     [call["function"] for call in calls])
                    events = server.stream("/v1/chat/completions", messages=MESSAGES,
                                           max_tokens=300, **fields)[:-1]
                    self.assertEqual(events[-1]["choices"][0]["finish_reason"], "tool_calls")
                    streamed = merge(events)
                    self.assertEqual(streamed["tool_calls"][0]["arguments"],
                                     calls[0]["function"]["arguments"])
                    self.assertEqual(streamed["content"], whole["message"]["content"] or "")

    def test_required_calls_of_harmony(self):
        """The model is found to write harmony by its template, and its markers are tokens."""
        model, vocabulary = write_harmony_model(self.path / "harmony")
        # The bundled model never learnt the markers: thoughts end at once, and a message on the
        # channel "final" would be likely, were it allowed.
        bias = {"<|end|>": 100, "<|call|>": 100, "Ġto": 14, "f": 14}
        fields = {"tools": TOOLS, "logprobs": True, "temperature": 0.9, "max_tokens": 300,
                  "logit_bias": {vocabulary[token]: value for token, value in bias.items()}}
        names = set()
        with Server("--model", model, "--speculative-algorithm", "SUFFIX,GRAMMAR") as server:
            for seed, choice in enumerate(["required"] * 4 + [NAMED]):
                fields.update(tool_choice=choice, seed=seed)
                whole = self.ask(server, **fields)
                self.assertEqual(whole["finish_reason"], "tool_calls", whole)
                [call] = whole["message"]["tool_calls"]
                self.check_call(call)
                names.add(call["function"]["name"])
                text = "".join(token["token"] for token in whole["logprobs"]["content"])
                matched = re.fullmatch(f"(?s)(?:{EARLIER})*{CALL}", text)
                self.assertTrue(matched, text)
                self.assertEqual(matched.groups(),
                                 (call["function"]["name"], call["function"]["arguments"]))
                self.assertFalse(whole["message"]["content"])
                plain = self.ask(server, **fields, **OFF)
                self.assertEqual(plain["logprobs"], whole["logprobs"])
                self.assertEqual(plain["message"]["tool_calls"][0]["function"], call["function"])
                events = server.stream("/v1/chat/completions", messages=MESSAGES, **fields)[:-1]
                self.assertEqual(events[-1]["choices"][0]["finish_reason"], "tool_calls")
                streamed = merge(events)
                self.assertEqual(streamed["content"], "")
                [part] = streamed["tool_calls"]
                self.assertEqual({key: part[key] for key in ("name", "arguments")},
                                 call["function"])
        self.assertEqual(call["function"]["name"], "add")
        self.assertEqual(names, {"add", "get_weather"})

    def test_calls_of_responses(self):
        flat = [{"type": "function", **each["function"]} for each in TOOLS]
        ask = {"input": MESSAGES, "tools": flat, "tool_choice": {"type": "function", "name": "add"},
               "parallel_tool_calls": False, "max_output_tokens": 300, "seed": 4}
        with Server("--model", TINY, "--speculative-algorithm", "SUFFIX") as server:
            def output(**fields):
                answer = server.post("/v1/responses", {**ask, **fields})
                self.assertEqual(answer.status, 200, answer.body)
                self.assertEqual(answer.json["status"], "completed")
                return answer.json["output"]
            [call] = output()
            self.assertEqual(call["type"], "function_call")
            self.check_call({"function": call})
            [plain] = output(**OFF)
            self.assertEqual(plain["arguments"], call["arguments"])
            events = server.stream("/v1/responses", **ask)
            self.assertEqual(events[-1]["response"]["output"][0]["arguments"], call["arguments"])
            self.assertEqual("".join(event.get("delta", "") for event in events),
                             call["arguments"])
            gave = {"type": "function_call_output", "call_id": call["call_id"], "output": "42"}
            messages = output(input=[*MESSAGES, call, gave], tool_choice="none")
            self.assertEqual([item["type"] for item in messages], ["message"])
            chat = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [
                        {"id": call["call_id"], "type": "function",
                         "function": {"name": "add", "arguments": call["arguments"]}}]},
                    {"role": "tool", "tool_call_id": call["call_id"], "content": "42"}]
            same = server.post("/v1/chat/completions",
                               {"messages": chat, "tools": TOOLS, "tool_choice": "none", "seed": 4})
            self.assertEqual(messages[0]["content"][0]["text"],
                             same.json["choices"][0]["message"]["content"])

    def test_thoughts_are_reasoning(self):
        """The bundled model does not think, so what it writes after <think> never ends."""
        template = (TINY / "chat_template.jinja").read_text()
        header = "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'"
        self.assertEqual(template.count(header), 1)
        path = self.file("thinking.jinja", template.replace(header, header + " + '<think>\\n'"))
        with Server("--model", TINY, "--chat-template", path) as server:
            fields = {"temperature": 0, "max_tokens": 12}
            whole = self.ask(server, **fields)["message"]
            self.assertEqual(whole["content"], "")
            self.assertTrue(whole["reasoning_content"])
            events = server.stream("/v1/chat/completions", messages=MESSAGES, **fields)[:-1]
            deltas = [event["choices"][0]["delta"] for event in events]
            self.assertEqual("".join(delta.get("reasoning_content", "") for delta in deltas),
                             whole["reasoning_content"])
            self.assertEqual("".join(delta.get("content", "") for delta in deltas), "")
            item = server.post("/v1/responses", {"input": MESSAGES, "temperature": 0,
                                                 "max_output_tokens": 12}).json["output"][0]
            self.assertEqual(item["content"][0]["text"], whole["reasoning_content"])
        with Server("--model", TINY) as server:  # without the tags all is content
            self.assertNotIn("reasoning_content", self.ask(server, **fields)["message"])

    def test_auto_none_and_messages_of_tools(self):
        with Server("--model", TINY) as server:
            greeting = [{"role": "user", "content": "Hello!"}]
            text = self.ask(server, messages=greeting, tools=TOOLS, temperature=0, max_tokens=24)
            self.assertNotIn("tool_calls", text["message"])
        with Server("--model", TINY, "--chat-template", "chatml") as server:
            self.assertEqual(self.ask(server, tools=TOOLS, tool_choice="none", temperature=0,
                                      max_tokens=24)["message"],
                             self.ask(server, temperature=0, max_tokens=24)["message"])
            call = {"id": "call_1", "type": "function",
                    "function": {"name": "add", "arguments": '{"a": 1, "b": true}'}}
            history = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]},
                       {"role": "tool", "tool_call_id": "call_1", "content": "42"}]
            answer = server.post("/v1/chat/completions",
                                 {"messages": history, "tools": TOOLS, "max_tokens": 8})
            self.assertEqual(answer.status, 200, answer.body)

    def test_tokenize_shows_the_tools_to_the_template(self):
        with Server("--model", TINY, "--chat-template", "chatml") as server:
            counts = []
            for more in ({}, {"tools": TOOLS}):
                chat = {"messages": MESSAGES, **more}
                answer = server.post("/v1/chat/completions", {**chat, "max_tokens": 1}).json
                tokens = server.post("/tokenize", chat).json
                self.assertEqual(tokens["count"], answer["usage"]["prompt_tokens"])
                counts.append(tokens["count"])
            self.assertGreater(counts[1], counts[0])

    def test_text_outside_of_channels_is_content(self):
        with Server("--model", TINY, "--chat-template", "chatml") as server:
            expected = self.ask(server, temperature=0, max_tokens=24)["message"]
        with Server("--model", TINY, "--chat-template", "chatml",
                    "--tool-call-parser", "harmony") as server:
            self.assertEqual(self.ask(server, temperature=0, max_tokens=24)["message"], expected)
            message = self.ask(server, tools=TOOLS, tool_choice=NAMED, max_tokens=40,
                               seed=1)["message"]
            self.assertNotIn("<|channel|>", json.dumps(message))

    def test_a_cut_call_says_length(self):
        with Server("--model", TINY, "--chat-template", "chatml") as server:
            choice = self.ask(server, tools=TOOLS, tool_choice="required", max_tokens=9, seed=1)
            self.assertEqual(choice["finish_reason"], "length")

    def test_what_is_refused(self):
        hard = tool("hard", {"a": {"type": "array", "uniqueItems": True}})
        with Server("--model", TINY, "--chat-template", "chatml") as server:
            for fields, why in [
                    ({"tools": [hard]}, "tools[0].function.parameters"),
                    ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
                    ({"tool_choice": "required"}, "no tools"),
                    ({"tools": TOOLS, "regex": "a"}, "only a JSON schema")]:
                with self.subTest(fields):
                    answer = server.post("/v1/chat/completions", {"messages": MESSAGES, **fields})
                    self.assertEqual(answer.status, 400)
                    self.assertIn(why, answer.error["message"])
            del hard["function"]["strict"]  # then best effort will do
            self.ask(server, tools=[hard], max_tokens=4)
        with Server("--model", TINY, "--chat-template", "plain") as server:
            answer = server.post("/v1/chat/completions", {"messages": MESSAGES, "tools": TOOLS})
            self.assertEqual(answer.status, 400)
            self.assertIn("takes none", answer.error["message"])


if __name__ == "__main__":
    main()
