"""`talon serve` as its clients meet it: every route, every parameter.

Usage: serve_test.py PATH_OF_TALON [unittest arguments]
"""

import base64
import re
import struct
import sys

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import CliTest, main, talon  # noqa: E402
from server import Server  # noqa: E402

PROMPT = "Once upon a time there was a"


class Routes(CliTest):
    """One server for all tests of the class."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--speculative-algorithm", "SUFFIX")

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    # ---- Completions ----

    def test_text_equals_talon_run(self):
        for sampling in [
            {"temperature": 0},
            {"temperature": 0.9, "seed": 7, "top_p": 0.95, "top_k": 50, "min_p": 0.01},
            {"temperature": 0.7, "seed": 3, "repetition_penalty": 1.2, "frequency_penalty": 0.5},
        ]:
            flags = [
                part for k, v in sampling.items() for part in ("--" + k.replace("_", "-"), str(v))
            ]
            run = self.run_json("--prompt", PROMPT, "--max-tokens", "24", *flags)
            choice = self.server.complete(prompt=PROMPT, max_tokens=24, **sampling)["choices"][0]
            self.assertEqual(choice["text"], run["text"], sampling)
            self.assertEqual(choice["finish_reason"], run["finish_reason"])

    def test_usage(self):
        answer = self.server.complete(prompt=PROMPT, max_tokens=12, temperature=0)
        count = self.server.post("/tokenize", {"prompt": PROMPT}).json["count"]
        usage = answer["usage"]
        self.assertEqual(usage["prompt_tokens"], count)
        self.assertEqual(usage["completion_tokens"], 12)
        self.assertEqual(usage["total_tokens"], count + 12)
        self.assertIn("cached_tokens", usage["prompt_tokens_details"])
        spec = usage["spec"]
        self.assertGreater(spec["passes"], 0)
        self.assertAlmostEqual(spec["tau"] * spec["passes"], 12)
        self.assertEqual(answer["object"], "text_completion")
        self.assertEqual(answer["model"], "tiny")

    def test_speculation_of_a_request(self):
        text = "one two three one two three one two"
        on = self.server.complete(prompt=text, max_tokens=16, temperature=0)
        off = self.server.complete(
            prompt=text, max_tokens=16, temperature=0, speculative={"off": True}
        )
        none = self.server.complete(
            prompt=text, max_tokens=16, temperature=0, speculative={"algorithm": "NONE"}
        )
        self.assertEqual(on["choices"], off["choices"])
        self.assertEqual(on["choices"], none["choices"])
        self.assertGreater(on["usage"]["spec"]["drafted"], 0)
        self.assertEqual(off["usage"]["spec"]["drafted"], 0)
        self.assertEqual(none["usage"]["spec"]["drafted"], 0)
        few = self.server.complete(
            prompt=text, max_tokens=16, temperature=0, speculative={"nodes": 2}
        )
        self.assertEqual(on["choices"], few["choices"])
        spec = few["usage"]["spec"]
        self.assertGreater(spec["drafted"], 0)
        self.assertLessEqual(spec["drafted"], spec["passes"])  # one draft below each root
        self.assertEqual(off["usage"]["spec"]["passes"], 16)

    def test_prompts_of_every_kind(self):
        tokens = self.server.post("/tokenize", {"prompt": PROMPT}).json["tokens"]
        one = self.server.complete(prompt=PROMPT, max_tokens=5, temperature=0)["choices"][0]["text"]
        by_ids = self.server.complete(prompt=tokens, max_tokens=5, temperature=0)
        self.assertEqual(by_ids["choices"][0]["text"], one)
        two = self.server.complete(prompt=[PROMPT, "The sea"], max_tokens=5, temperature=0)
        self.assertEqual([choice["index"] for choice in two["choices"]], [0, 1])
        self.assertEqual(two["choices"][0]["text"], one)
        lists = self.server.complete(prompt=[tokens, tokens], max_tokens=5, temperature=0)
        self.assertEqual([choice["text"] for choice in lists["choices"]], [one, one])
        self.assertEqual(lists["usage"]["prompt_tokens"], 2 * len(tokens))

    def test_choices_differ_and_repeat(self):
        ask = {"prompt": PROMPT, "max_tokens": 12, "n": 3, "seed": 5, "temperature": 1}
        first, again = self.server.complete(**ask), self.server.complete(**ask)
        texts = [choice["text"] for choice in first["choices"]]
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(texts, [choice["text"] for choice in again["choices"]])
        alone = self.server.complete(**{**ask, "n": 1})
        self.assertEqual(alone["choices"][0]["text"], texts[0])
        count = self.server.post("/tokenize", {"prompt": PROMPT}).json["count"]
        self.assertEqual(first["usage"]["prompt_tokens"], count)
        self.assertEqual(first["usage"]["completion_tokens"], 36)

    def test_stop(self):
        whole = self.server.complete(prompt=PROMPT, max_tokens=24, temperature=0)
        text = whole["choices"][0]["text"]
        word = text.split()[3]
        for stop in (word, ["never there", word]):
            choice = self.server.complete(prompt=PROMPT, max_tokens=24, temperature=0, stop=stop)
            choice = choice["choices"][0]
            self.assertEqual(choice["text"], text[: text.index(word)])
            self.assertEqual(choice["finish_reason"], "stop")

    def test_bad_words_are_those_of_talon_run(self):
        ask = {"prompt": PROMPT, "max_tokens": 60, "temperature": 0}
        text = self.server.complete(**ask)["choices"][0]["text"]
        words = re.findall(r"(?<= )[a-z]{4,}(?=[ .,])", text)
        word = max(words, key=words.count)
        without = self.server.complete(**ask, bad_words=[word])["choices"][0]["text"]
        self.assertNotRegex(without, rf"\b{word}\b")
        report = self.run_json("--prompt", PROMPT, "--max-tokens", 60, "--bad-words", word)
        self.assertEqual(without, report["text"])

    def test_names_of_llama_cpp(self):
        ask = {"prompt": PROMPT, "temperature": 0, "ignore_eos": True}
        theirs = self.server.complete(**ask, n_predict=9, repeat_penalty=1.5)
        ours = self.server.complete(**ask, max_tokens=9, repetition_penalty=1.5)
        self.assertEqual(theirs["usage"]["completion_tokens"], 9)
        self.assertEqual(theirs["choices"], ours["choices"])

    def test_logit_bias_and_limits(self):
        tokens = self.server.post(
            "/tokenize", {"prompt": " the", "add_special_tokens": False}
        ).json["tokens"]
        answer = self.server.complete(
            prompt=PROMPT, max_tokens=4, temperature=0, logit_bias={str(tokens[0]): 100}
        )
        text = self.server.post("/detokenize", {"tokens": tokens[:1]}).json["prompt"]
        self.assertEqual(answer["choices"][0]["text"], text * 4)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        default = self.server.complete(prompt=PROMPT, temperature=0, ignore_eos=True)
        self.assertEqual(default["usage"]["completion_tokens"], 16)
        least = self.server.complete(prompt=PROMPT, max_tokens=9, min_tokens=9, temperature=1)
        self.assertEqual(least["usage"]["completion_tokens"], 9)

    def test_completion_logprobs(self):
        answer = self.server.complete(prompt=PROMPT, max_tokens=6, temperature=0, logprobs=3)
        choice = answer["choices"][0]
        logprobs = choice["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), choice["text"])
        self.assertEqual(len(logprobs["token_logprobs"]), 6)
        self.assertEqual(logprobs["text_offset"][0], 0)
        for i, (token, top) in enumerate(zip(logprobs["tokens"], logprobs["top_logprobs"])):
            self.assertEqual(len(top), 3)
            self.assertEqual(top[token], max(top.values()))
            self.assertEqual(choice["text"][logprobs["text_offset"][i] :][: len(token)], token)
        parts = self.server.stream(prompt=PROMPT, max_tokens=6, temperature=0, logprobs=3)
        streamed = [
            token
            for part in parts[:-1]
            if part["choices"][0]["logprobs"]
            for token in part["choices"][0]["logprobs"]["tokens"]
        ]
        self.assertEqual(streamed, logprobs["tokens"])

    # ---- Streams ----

    def test_echo_scores_the_prompt(self):
        """Log-probs of a prompt are those that its tokens had when they were generated."""
        ask = {"max_tokens": 12, "temperature": 0, "logprobs": 2}
        before = self.server.complete(prompt=PROMPT, **ask)["choices"][0]
        tokens = self.server.post("/tokenize", {"prompt": PROMPT}).json["tokens"]
        ids = self.run_json("--prompt", PROMPT, "--max-tokens", "12")["tokens"]
        scoring = {"prompt": tokens + ids, "max_tokens": 0, "echo": True, "logprobs": 2}
        answer = self.server.complete(**scoring)
        scored = answer["choices"][0]
        self.assertEqual(answer["usage"]["completion_tokens"], 0)
        self.assertEqual(scored["finish_reason"], "length")
        self.assertEqual(scored["text"], PROMPT + before["text"])
        logprobs = scored["logprobs"]
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertIsNone(logprobs["top_logprobs"][0])
        for key in ["tokens", "token_logprobs", "top_logprobs"]:
            self.assertEqual(logprobs[key][-12:], before["logprobs"][key], key)
        again = self.server.complete(**scoring)  # the prefix cache knows the prompt now
        self.assertEqual(again["choices"], answer["choices"])
        self.assertEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_echo_before_an_answer(self):
        ask = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, "logprobs": 1}
        plain = self.server.complete(**ask)["choices"][0]
        echoed = self.server.complete(**ask, echo=True, n=2)["choices"]
        for choice in echoed:
            self.assertEqual(choice["text"], PROMPT + plain["text"])
            offset = choice["logprobs"]["text_offset"][-8]
            self.assertEqual(choice["text"][offset:], plain["text"])
        events = self.server.stream(**ask, echo=True)[:-1]
        self.assertEqual(
            "".join(e["choices"][0]["text"] for e in events), PROMPT + plain["text"]
        )
        token_logprobs = []
        for event in events:
            token_logprobs += (event["choices"][0]["logprobs"] or {}).get("token_logprobs", [])
        self.assertEqual(token_logprobs, echoed[0]["logprobs"]["token_logprobs"])
        only = self.server.complete(prompt=PROMPT, echo=True, max_tokens=0)["choices"][0]
        self.assertEqual((only["text"], only["logprobs"]), (PROMPT, None))

    def test_prompt_logprobs(self):
        echoed = self.server.complete(prompt=PROMPT, echo=True, max_tokens=0, logprobs=0)
        expected = echoed["choices"][0]["logprobs"]["token_logprobs"]
        answer = self.server.complete(prompt=PROMPT, max_tokens=2, prompt_logprobs=1)
        tokens = self.server.post("/tokenize", {"prompt": PROMPT}).json["tokens"]
        rows = answer["choices"][0]["prompt_logprobs"]
        self.assertIsNone(rows[0])
        found = [row[str(token)]["logprob"] for row, token in zip(rows[1:], tokens[1:])]
        self.assertEqual(found, expected[1:])

    # ---- Parameters of other servers ----

    def test_parameters_without_effect_are_told(self):
        ask = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0}
        answer = self.server.post("/v1/completions", {**ask, "priority": 2, "verbosity": "low"})
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["X-Talon-Warning"], "ignored: priority, verbosity")
        plain = self.server.post("/v1/completions", {**ask, "store": False, "tool_choice": "auto"})
        self.assertIsNone(plain.headers["X-Talon-Warning"])
        self.assertEqual(answer.json["choices"], plain.json["choices"])
        connection, response = self.server.open_stream("/v1/completions", **ask, cache_prompt=False)
        self.assertEqual(response.headers["X-Talon-Warning"], "ignored: cache_prompt")
        response.read()
        connection.close()
        unknown = self.server.post("/v1/completions", {**ask, "prioritty": 2})
        self.assertEqual(unknown.status, 400)
        self.assertIn("did you mean 'priority'?", unknown.error["message"])

    def test_stop_text_and_special_tokens(self):
        ask = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
        text = self.server.complete(**ask)["choices"][0]["text"]
        word = text.split()[3]
        cut = self.server.complete(**ask, stop=word)["choices"][0]["text"]
        kept = self.server.complete(**ask, stop=word, include_stop_str_in_output=True)
        self.assertEqual(kept["choices"][0]["text"], cut + word)
        eos = 1  # id of models/tiny's end token
        only = {"logit_bias": {str(eos): 100}, "ignore_eos": True, "max_tokens": 2}
        self.assertEqual(self.server.complete(**{**ask, **only})["choices"][0]["text"], "")
        shown = self.server.complete(**{**ask, **only}, skip_special_tokens=False)
        name = self.server.post("/detokenize", {"tokens": [eos]}).json["prompt"]
        self.assertTrue(name)
        self.assertEqual(shown["choices"][0]["text"], 2 * name)

    # ---- Embeddings and responses ----

    def test_embeddings(self):
        tokens = self.server.post("/tokenize", {"prompt": PROMPT}).json["tokens"]
        ask = {"input": [PROMPT, tokens, "The sea"], "model": "tiny"}
        answer = self.server.post("/v1/embeddings", ask)
        self.assertEqual(answer.status, 200, answer.body)
        vectors = [each["embedding"] for each in answer.json["data"]]
        self.assertEqual([each["index"] for each in answer.json["data"]], [0, 1, 2])
        self.assertEqual(vectors[0], vectors[1])
        self.assertNotEqual(vectors[0], vectors[2])
        for vector in vectors:
            self.assertAlmostEqual(sum(x * x for x in vector), 1, places=4)
        coded = self.server.post("/v1/embeddings", {**ask, "encoding_format": "base64"}).json
        raw = base64.b64decode(coded["data"][2]["embedding"])
        self.assertEqual(list(struct.unpack(f"<{len(raw) // 4}f", raw)), vectors[2])
        mean = self.server.post("/v1/embeddings", {**ask, "pooling": "mean"}).json
        self.assertNotEqual(mean["data"][0]["embedding"], vectors[0])
        refused = self.server.post("/v1/embeddings", {"input": []})
        self.assertEqual((refused.status, refused.error["param"]), (400, "input"))

    def test_responses(self):
        ask = {"input": "Tell me a story", "instructions": "Be brief", "max_output_tokens": 12}
        ask["temperature"] = 0
        answer = self.server.post("/v1/responses", ask)
        self.assertEqual(answer.status, 200, answer.body)
        text = answer.json["output"][0]["content"][0]["text"]
        messages = [
            {"role": "system", "content": "Be brief"},
            {"role": "user", "content": "Tell me a story"},
        ]
        chat = {"messages": messages, "max_tokens": 12, "temperature": 0}
        chat = self.server.post("/v1/chat/completions", chat).json
        self.assertEqual(text, chat["choices"][0]["message"]["content"])
        self.assertEqual(answer.json["usage"]["output_tokens"], 12)
        self.assertEqual(answer.json["status"], "incomplete")
        self.assertEqual(answer.json["incomplete_details"], {"reason": "max_output_tokens"})
        refused = self.server.post("/v1/responses", {**ask, "previous_response_id": "resp_1"})
        self.assertEqual((refused.status, refused.error["param"]), (400, "previous_response_id"))

    # ---- Streams ----

    def test_stream_equals_the_whole(self):
        ask = {"prompt": PROMPT, "max_tokens": 20, "seed": 1, "temperature": 0.8}
        whole = self.server.complete(**ask)
        events = self.server.stream(**ask)
        self.assertEqual(events[-1], "[DONE]")
        chunks = events[:-1]
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        self.assertEqual(text, whole["choices"][0]["text"])
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "length")
        self.assertTrue(all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1]))
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)
        self.assertTrue(all("usage" not in chunk for chunk in chunks))

    def test_stream_with_usage(self):
        ask = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0}
        events = self.server.stream(**ask, stream_options={"include_usage": True})
        usage = self.server.complete(**ask)["usage"]
        self.assertEqual(events[-2]["choices"], [])
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(events[-2]["usage"][name], usage[name])
        self.assertTrue(all(event["usage"] is None for event in events[:-2]))

    def test_stream_of_many_choices(self):
        ask = {"prompt": [PROMPT, "The sea"], "n": 2, "max_tokens": 8, "seed": 2}
        whole = self.server.complete(**ask)
        texts = [""] * 4
        for event in self.server.stream(**ask)[:-1]:
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
        self.assertEqual(texts, [choice["text"] for choice in whole["choices"]])

    def test_trace(self):
        events = self.server.stream(
            prompt="one two three one two three one two",
            max_tokens=16,
            temperature=0,
            speculative={"trace": True},
        )
        traces = [event["talon"] for event in events[:-1] if "talon" in event]
        text = "".join(event["choices"][0]["text"] for event in events[:-1])
        pieces = "".join(token["text"] for trace in traces for token in trace["tokens"])
        self.assertEqual(pieces, text)
        trees = [trace["tree"] for trace in traces if "tree" in trace]
        self.assertTrue(trees)
        for tree in trees:
            self.assertEqual(tree["parents"][0], -1)
            self.assertEqual(len(tree["tokens"]), len(tree["parents"]))
            self.assertEqual(len(tree["tokens"]), len(tree["texts"]))
            self.assertEqual(tree["accepted"][0], 0)
        self.assertEqual(traces[-1]["stats"]["emitted"], 16)

    # ---- Chat ----

    def test_chat(self):
        answer = self.server.chat("Tell me a story", max_tokens=10, temperature=0)
        self.assertEqual(answer["object"], "chat.completion")
        message = answer["choices"][0]["message"]
        self.assertEqual(message["role"], "assistant")
        self.assertEqual(answer["usage"]["completion_tokens"], 10)
        parts = [{"type": "text", "text": "Tell me a story"}]
        again = self.server.post(
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": parts}],
                "max_completion_tokens": 10,
                "temperature": 0,
            },
        ).json
        self.assertEqual(again["choices"][0]["message"], message)
        messages = [{"role": "user", "content": "Tell me a story"}]
        tokens = self.server.post("/tokenize", {"messages": messages}).json["tokens"]
        text = self.server.complete(prompt=tokens, max_tokens=10, temperature=0)
        self.assertEqual(text["choices"][0]["text"], message["content"])

    def test_chat_stream_and_logprobs(self):
        ask = {"max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 2}
        whole = self.server.chat("Hello", **ask)["choices"][0]
        content = whole["logprobs"]["content"]
        self.assertEqual(len(content), 8)
        joined = b"".join(bytes(token["bytes"]) for token in content)
        self.assertEqual(joined.decode(), whole["message"]["content"])
        self.assertTrue(all(len(token["top_logprobs"]) == 2 for token in content))
        events = self.server.stream(
            "/v1/chat/completions", messages=[{"role": "user", "content": "Hello"}], **ask
        )
        self.assertEqual(
            events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""}
        )
        self.assertEqual(events[0]["object"], "chat.completion.chunk")
        deltas = [event["choices"][0]["delta"].get("content", "") for event in events[:-1]]
        self.assertEqual("".join(deltas), whole["message"]["content"])
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")

    # ---- The other routes ----

    def test_models(self):
        models = self.server.get("/v1/models").json
        self.assertEqual([model["id"] for model in models["data"]], ["tiny"])
        self.assertEqual(self.server.get("/v1/models/tiny").json["object"], "model")
        missing = self.server.get("/v1/models/other")
        self.assertEqual((missing.status, missing.error["code"]), (404, "model_not_found"))

    def test_tokenize_and_detokenize(self):
        tokens = self.server.post("/tokenize", {"prompt": "The café"}).json
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        plain = self.server.post(
            "/tokenize", {"prompt": "The café", "add_special_tokens": False}
        ).json
        self.assertEqual(plain["tokens"], tokens["tokens"][1:])
        text = self.server.post("/detokenize", {"tokens": plain["tokens"]}).json
        self.assertEqual(text, {"prompt": "The café"})

    def test_health_version_and_metrics(self):
        self.assertEqual(self.server.get("/health").json, {"status": "ok"})
        self.assertRegex(self.server.get("/version").json["version"], r"^\d+\.\d+\.\d+$")
        self.server.complete(prompt="x", max_tokens=2)
        metrics = self.server.get("/metrics")
        self.assertIn("text/plain", metrics.headers["Content-Type"])
        self.assertIn(b"talon_request_generated_tokens_total", metrics.body)

    def test_status(self):
        status = self.server.status()
        self.assertEqual((status["model"], status["drafter"]), ("tiny", "SUFFIX"))
        kv = status["kv"]
        self.assertEqual(kv["block_size"], 16)
        self.assertGreater(kv["blocks"], 0)
        self.assertEqual(kv["used"] + kv["cached"] + kv["free"], kv["blocks"])
        self.server.complete(prompt=PROMPT * 20, max_tokens=2)
        kv, metrics = self.server.wait_until_idle()["kv"], self.server.get("/metrics").body.decode()
        self.assertGreater(kv["cached"], 0)
        for state in ("used", "cached", "free"):
            self.assertIn(f'talon_kv_blocks{{state="{state}"}} {kv[state]}\n', metrics)

    def test_page(self):
        page = self.server.get("/")
        self.assertEqual(page.status, 200)
        self.assertIn("text/html", page.headers["Content-Type"])
        self.assertEqual(self.server.get("/app.js").status, 200)

    def test_head_and_options(self):
        head = self.server.request("HEAD", "/health")
        self.assertEqual((head.status, head.body), (200, b""))
        options = self.server.request("OPTIONS", "/v1/completions")
        self.assertEqual(options.status, 204)
        self.assertNotIn("Access-Control-Allow-Origin", options.headers)

    def test_one_connection_many_requests(self):
        connection = self.server.connect()
        for _ in range(20):
            connection.request("GET", "/health")
            response = connection.getresponse()
            self.assertEqual((response.status, response.read()), (200, b'{"status":"ok"}'))
        connection.close()


if __name__ == "__main__":
    main()
