"""`talon serve` from its start to its end: settings, limits, clients that leave, signals.

Usage: serve_lifetime_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import TIMEOUT_S, CliTest, main, talon, write_broken_model  # noqa: E402
from server import Server  # noqa: E402

PROMPT = "Once upon a time there was a"


class Lifetimes(CliTest):
    def test_a_disconnect_frees_the_blocks(self):
        with Server("--enable-prefix-cache", "false") as server:
            ask = {"prompt": PROMPT, "max_tokens": 20000, "ignore_eos": True, "temperature": 1}
            connection, response = server.open_stream("/v1/completions", **ask)
            response.readline()
            self.assertEqual(server.status()["requests"]["running"], 1)
            self.assertGreater(server.status()["kv"]["used"], 0)
            response.close()
            connection.close()
            self.assertEqual(server.wait_until_idle()["kv"]["used"], 0)
            connection = server.connect()  # also where nothing is streamed
            connection.request(
                "POST", "/v1/completions", json.dumps(ask), {"Content-Type": "application/json"}
            )
            while server.status()["requests"]["running"] == 0:
                time.sleep(0.02)
            time.sleep(1)  # at once it would be half-closed, not gone
            connection.close()
            self.assertEqual(server.wait_until_idle()["kv"]["used"], 0)

    def test_limits(self):
        flags = ("--max-sequences", "1", "--max-waiting", "1", "--request-timeout", "1")
        with Server(*flags, "--served-model-name", "mine") as server:
            self.assertEqual(server.get("/v1/models").json["data"][0]["id"], "mine")
            ask = {"prompt": PROMPT, "max_tokens": 30000, "ignore_eos": True}
            crowd = server.post("/v1/completions", {**ask, "n": 8})
            self.assertEqual((crowd.status, crowd.error["type"]), (429, "rate_limit_error"))
            server.wait_until_idle()
            late = server.post("/v1/completions", ask)
            self.assertEqual((late.status, late.error["code"]), (504, "timeout"))
            events = server.stream(**ask)
            self.assertEqual(events[-1]["error"]["code"], "timeout")
            server.wait_until_idle()
            metrics = server.get("/metrics").body
            self.assertIn(b'talon_requests_total{finish_reason="timeout"} 2\n', metrics)
            brief = {"prompt": PROMPT, "max_tokens": 2}
            while (answer := server.post("/v1/completions", brief)).status == 504:
                pass  # even this took a second
            self.assertEqual(answer.status, 200)

    def test_shutdown_lets_requests_finish(self):
        with Server("--shutdown-timeout", TIMEOUT_S) as server:
            results = []
            connection, response = server.open_stream(
                "/v1/completions", prompt=PROMPT, max_tokens=150, ignore_eos=True
            )
            first = response.readline()
            reader = threading.Thread(target=lambda: results.append(first + response.read()))
            reader.start()
            self.assertEqual(server.stop(), 0)
            reader.join()
            connection.close()
            self.assertIn(b'"finish_reason":"length"', results[0])
            self.assertTrue(results[0].endswith(b"data: [DONE]\n\n"))

    def test_shutdown_ends_after_its_timeout(self):
        with Server("--shutdown-timeout", "0") as server:
            connection, response = server.open_stream(
                "/v1/completions", prompt=PROMPT, max_tokens=30000, ignore_eos=True
            )
            response.readline()
            server.process.send_signal(signal.SIGINT)
            rest = response.read()
            connection.close()
            self.assertEqual(server.process.wait(timeout=TIMEOUT_S), 0)
            last = json.loads(rest.decode().strip().split("\n\n")[-1][len("data: ") :])
            self.assertEqual(last["error"]["type"], "service_unavailable_error")

    def test_a_request_chooses_its_drafter_and_its_partial_verification(self):
        """None of it changes the text."""
        text = "one two three one two three one two"
        ask = {"prompt": text, "max_tokens": 40, "temperature": 0}
        flags = ["--speculative-algorithm", "NGRAM,SUFFIX", "--enable-specpv"]
        flags += ["--specpv-partial-threshold", 16, "--specpv-n-retrieval-blocks", 1]
        flags += ["--specpv-n-sink-blocks", 1, "--specpv-n-window-blocks", 1]
        with Server(*flags) as server:
            plain = server.complete(**ask, speculative={"off": True})["choices"]
            for own in [
                {"algorithm": "SUFFIX", "nodes": 4},
                {"algorithm": "ngram"},
                {"specpv": {"mode": "off"}},
                {"specpv": {"mode": "exact", "budget_tokens": 0, "error_target": 0.1}},
            ]:
                answer = server.complete(**ask, speculative=own)
                self.assertEqual(answer["choices"], plain, own)
            body = {**ask, "speculative": {"algorithm": "EAGLE3"}}
            refused = server.post("/v1/completions", body)
            self.assertEqual(refused.error["param"], "speculative.algorithm")
        with Server() as server:
            body = {**ask, "speculative": {"specpv": {"mode": "fast"}}}
            self.assertIn("enable_specpv", server.post("/v1/completions", body).error["message"])

    def test_the_status_says_what_drafts_by_default(self):
        with Server() as server:
            status = server.status()
            self.assertEqual(status["drafter"], "EAGLE3,SUFFIX")
            self.assertEqual(status["draft_model"], "tiny-eagle3")
            self.assertRegex(server.output(), rb"(?m)^drafter +EAGLE3,SUFFIX with tiny-eagle3$")
        with Server("--speculative-algorithm", "NONE") as server:
            status = server.status()
            self.assertEqual((status["drafter"], status["draft_model"]), ("NONE", None))

    def test_sampling_that_the_model_suggests(self):
        tiny = os.path.join(os.path.dirname(__file__), "..", "models", "tiny")
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            shutil.copytree(tiny, model)
            path = os.path.join(model, "generation_config.json")
            with open(path, encoding="utf-8") as file:
                generation = json.load(file)
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**generation, "temperature": 0.01, "top_k": 1, "top_p": 1}, file)
            ask = {"prompt": PROMPT, "max_tokens": 24, "seed": 1}
            with Server("--model", model, "--generation-config", "none") as server:
                drawn = server.complete(**ask)["choices"]
                greedy = server.complete(**ask, temperature=0)["choices"]
                self.assertNotEqual(drawn, greedy)
            with Server("--model", model, "--generation-config", "auto") as server:
                self.assertRegex(server.output(), rb"sampling +temperature 0.01, top_k 1, top_p 1 ")
                self.assertEqual(server.complete(**ask)["choices"], greedy)
                self.assertEqual(server.complete(**ask, temperature=1, top_k=0)["choices"], drawn)
            flags = ["--model", model, "--prompt", PROMPT, "--max-tokens", 24, "--seed", 1]
            flags += ["--temperature", 1, "--generation-config"]
            ignored, used = self.run_json(*flags, "none"), self.run_json(*flags, "auto")
            self.assertEqual(ignored["text"], drawn[0]["text"])
            self.assertEqual(used["text"], greedy[0]["text"])  # top_k 1

    def test_a_small_kv_pool_bounds_the_context(self):
        with Server("--kv-tokens", "4096") as server:
            self.assertEqual(server.get("/v1/models/tiny").json["max_model_len"], 4096)
            self.assertEqual(server.post("/tokenize", {"prompt": "a"}).json["max_model_len"], 4096)
            self.assertRegex(server.output(), rb"(?m)^context +4096 tokens,")
            self.assertRegex(server.output(), rb"(?m)^KV pool +4096 tokens, [\d.]+ MB$")

    def test_a_second_signal_ends_it_at_once(self):
        trace = self.path / "trace.json"
        with Server("--shutdown-timeout", "600", "--trace", trace) as server:
            connection, response = server.open_stream(
                "/v1/completions", prompt=PROMPT, max_tokens=30000, ignore_eos=True
            )
            response.readline()
            server.process.send_signal(signal.SIGINT)
            server.wait_for(rb"shutting down: waiting up to 600 s")
            self.assertEqual(server.stop(signal.SIGINT), 128 + signal.SIGINT)
            connection.close()
        self.assertGreater(len(json.loads(trace.read_text())), 2)

    def test_warning_where_other_machines_need_no_key(self):
        warning = b"other machines can use this server"
        with Server("--host", "0.0.0.0") as server:
            server.wait_for(warning)
        with Server() as server:
            self.assertNotIn(warning, server.output())

    def test_nan_logits_are_a_server_error(self):
        with Server("--model", write_broken_model(self.path / "broken")) as server:
            for temperature in (0, 1):
                request = {"prompt": PROMPT, "temperature": temperature}
                answer = server.post("/v1/completions", request)
                self.assertEqual(answer.status, 500)
                self.assertEqual(answer.error["message"], "the model's logits are not finite")
                events = server.stream(**request)
                self.assertEqual(events[-1]["error"]["type"], "server_error")
            scoring = {"prompt": PROMPT, "echo": True, "logprobs": 0, "max_tokens": 0}
            self.assertEqual(server.post("/v1/completions", scoring).status, 500)
            for pooling in ("last", "mean"):
                ask = {"input": PROMPT, "pooling": pooling}
                self.assertEqual(server.post("/v1/embeddings", ask).status, 500)

    def test_bad_settings(self):
        self.assert_refused(talon("serve", "--port", "70000"), "port", "70000")
        quiet = ("serve", "--log-level", "warning")  # the model is loaded first
        self.assert_refused(talon(*quiet, "--host", "no such host"), "no such host")
        self.assert_refused(talon("serve", "--api-key-file", self.path / "none"), "none")
        self.assert_refused(talon("serve", "--read-timeout", "0"), "read_timeout")
        with Server() as server:
            self.assert_refused(talon(*quiet, "--port", server.port), "cannot listen")


if __name__ == "__main__":
    main()
