"""`talon serve` under hostile input: every answer is a 4xx that says why, and it keeps serving.

Usage: serve_hostile_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import random
import socket
import sys

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import TINY, CliTest, main  # noqa: E402
from server import TIMEOUT_S, Server  # noqa: E402


def header(path="/v1/completions", *lines):
    text = "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines])
    return text.encode() + b"\r\n\r\n"


class Hostile(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-connections", "256", "--kv-tokens", "4096")

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def tearDown(self):
        answer = self.server.complete(prompt="Still", max_tokens=2, temperature=0)
        self.assertEqual(answer["usage"]["completion_tokens"], 2)
        super().tearDown()

    def refused(self, answer, status, *expected):
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(set(answer.error), {"message", "type", "param", "code"})
        for part in expected:
            self.assertIn(part, answer.error["message"])

    def refused_raw(self, data, status, *expected):
        answer = self.server.raw(data)
        self.assertRegex(answer.split(b"\r\n")[0].decode(), rf"^HTTP/1\.1 {status} ")
        for part in expected:
            self.assertIn(part.encode(), answer)

    def test_malformed_json(self):
        for body in ("", "{", "null", "[1]", '{"prompt": }', '{"prompt": "x",}', "NaN", "\0",
                     '{"prompt": "x"}}', "[" * 100000, '{"a":' * 5000, '{"prompt": NaN}'):
            self.refused(self.server.post("/v1/completions", body), 400, "the body")

    def test_invalid_utf8(self):
        for bad in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf0\x9f\x98"):
            answer = self.server.post("/v1/completions", b'{"prompt": "' + bad + b'"}')
            self.refused(answer, 400, "not valid JSON")
        self.refused(self.server.post("/v1/completions", b'{"prompt": "\\ud800"}'), 400)

    def test_wrong_types_and_numbers(self):
        cases = [("temperature", v) for v in (-1, "hot", [], {}, True, 1e30)]
        cases += [("max_tokens", v) for v in (0, -5, 1.5, 2**31, 2**63, 2**64, 10**40, "many")]
        cases += [("top_p", 2), ("top_k", -7), ("min_p", -0.5), ("seed", 2**64), ("seed", "x")]
        cases += [("n", 0), ("n", 10**6), ("stop", [""]), ("stop", ["x"] * 65), ("stop", 1)]
        cases += [("logprobs", 1000), ("logit_bias", {"x": 1}), ("logit_bias", {"1": 1e9})]
        cases += [("logit_bias", {"99999": 1}), ("stream", "yes"), ("speculative", [])]
        cases += [("stop_token_ids", [10**6]), ("min_tokens", 10**9), ("nonsense", 1)]
        for name, value in cases:
            answer = self.server.post("/v1/completions", {"prompt": "x", name: value})
            self.refused(answer, 400, name)
        for prompt in (None, 5, {}, [], [[]], [""] * 300, [1, "x"], [-1], [10**12], [8192]):
            answer = self.server.post("/v1/completions", {"prompt": prompt})
            self.refused(answer, 400, "prompt")
        for messages in (None, 5, [], ["x"], [{}], [{"role": "user"}]):
            answer = self.server.post("/v1/chat/completions", {"messages": messages})
            self.refused(answer, 400, "messages")

    def test_prompts_that_are_too_long(self):
        long = "word " * 20000
        answer = self.server.post("/v1/completions", {"prompt": long})
        self.refused(answer, 400, "prompt", "4096")
        self.assertEqual(answer.error["code"], "context_length_exceeded")
        messages = [{"role": "user", "content": long}]
        answer = self.server.post("/v1/chat/completions", {"messages": messages})
        self.refused(answer, 400, "messages", "4096")

    def test_unknown_models_routes_and_methods(self):
        answer = self.server.post("/v1/completions", {"model": "gpt-9", "prompt": "x"})
        self.refused(answer, 404, "gpt-9", "tiny")
        for path in ("/v2", "/v1/completions/", "/../etc/passwd", "/%2e%2e/", "/" + "a" * 5000):
            self.refused(self.server.get(path), 404)
        self.refused(self.server.get("/v1/completions"), 405, "POST")
        self.refused(self.server.post("/health", {}), 405, "GET")
        for method in ("DELETE", "PUT", "PATCH"):
            self.refused(self.server.request(method, "/v1/models", "{}"), 405)
        self.refused_raw(b"BREW /pot HTTP/1.1\r\nHost: localhost\r\n\r\n", 400)

    def test_large_bodies(self):
        body = json.dumps({"prompt": "x" * 10_000_000})
        self.refused(self.server.post("/v1/completions", body), 413, "4194304")
        chunks = b"fffff\r\n" + b"x" * 0xFFFFF + b"\r\n"
        self.refused_raw(header("/v1/completions", "Transfer-Encoding: chunked") + chunks * 10, 413)
        self.refused_raw(header("/v1/completions", f"Content-Length: {10**30}"), 413)
        big = json.dumps({"prompt": "x", "user": "y" * 4_000_000, "max_tokens": 1})
        self.assertEqual(self.server.post("/v1/completions", big).status, 200)

    def test_bodies_of_other_content_types(self):
        for kind in ("text/plain", "multipart/form-data; boundary=x", ""):
            answer = self.server.post("/v1/completions", {"prompt": "x"}, {"Content-Type": kind})
            self.refused(answer, 415, "application/json")
        gzip = {"Content-Encoding": "gzip"}
        self.refused(self.server.post("/v1/completions", b"\x1f\x8b", gzip), 415, "compressed")

    def test_malformed_http(self):
        self.refused_raw(b"\r\n\r\n\r\n", 400)
        self.refused_raw(b"GET\r\n\r\n", 400)
        self.refused_raw(b"GET / HTTP/9.9\r\n\r\n", 400)
        self.refused_raw(b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", "(414|400)")
        self.refused_raw(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20000 + b"\r\n", 431)
        self.refused_raw(header("/v1/completions"), 411)
        self.refused_raw(header("/v1/completions", "Content-Length: -1"), 400)
        self.refused_raw(header("/v1/completions", "Content-Length: 2", "Content-Length: 3") + b"{}", 400)
        both = header("/v1/completions", "Content-Length: 2", "Transfer-Encoding: chunked")
        self.refused_raw(both + b"{}", 400)
        self.refused_raw(header("/v1/completions", "Content-Length: 50") + b"{}", 400, "ended early")
        chunked = header("/v1/completions", "Transfer-Encoding: chunked")
        for garbage in (b"zz\r\n{}\r\n0\r\n\r\n", b"-5\r\n{}", b"2\r\n{}xx\r\n", b"ffffffffffffffff\r\n{}"):
            self.refused_raw(chunked + garbage, 400)

    def test_header_lines_that_servers_read_in_different_ways(self):
        chunked = b"2\r\n{}\r\n0\r\n\r\n"
        for lines, problem in [
            (("Content-Length: 2", "Transfer-Encoding : chunked"), "name"),
            (("Content-Length : 2",), "name"),
            (("Content-Length: 2", "garbage line"), "colon"),
            (("Content-Length: 2", "X-A: b\0c"), "control"),
            (("Content-Length: 2", "X-A: b\nX-B: c"), "control"),
            (("Content-Length: 2", "X-A: b", " folded"), "folded"),
            (("Content-Length: 2", "Host: localhost"), "two Host"),
        ]:
            self.refused_raw(header("/tokenize", *lines) + chunked, 400, problem)
        self.refused_raw(b"GET /health HTTP/1.1\r\nAccept: a\r\n\r\n", 400, "no Host")
        old = self.server.raw(b"GET /health HTTP/1.0\r\n\r\n")
        self.assertTrue(old.startswith(b"HTTP/1.1 200 "), old)

    def test_a_body_of_a_get_is_not_the_next_request(self):
        inner = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
        outer = f"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(inner)}\r\n\r\n"
        self.assertEqual(self.server.raw(outer.encode() + inner).count(b"HTTP/1.1 "), 1)

    def test_names_and_pages_of_strangers(self):
        port = self.server.port
        for host in ("evil.example.com", f"evil.example.com:{port}", "127.0.0.1.example.com", "@"):
            answer = self.server.post("/v1/completions", {"prompt": "x"}, {"Host": host})
            self.refused(answer, 403, host)
            self.refused(self.server.get("/", {"Host": host}), 403)
        for origin in ("http://evil.example.com", "null"):
            answer = self.server.post("/v1/completions", {"prompt": "x"}, {"Origin": origin})
            self.refused(answer, 403, origin)
            self.refused(self.server.request("OPTIONS", "/v1/models", None, {"Origin": origin}), 403)
        for host in ("localhost", f"LOCALHOST:{port}", "127.0.0.1", f"[::1]:{port}"):
            own = {"Host": host, "Origin": f"http://{host}"}
            answer = self.server.post("/tokenize", {"prompt": "x"}, own)
            self.assertEqual(answer.status, 200, host)

    def test_pages_cannot_be_framed(self):
        for path in ("/", "/nowhere"):
            headers = self.server.get(path).headers
            self.assertEqual(headers["X-Frame-Options"], "DENY")
            self.assertEqual(headers["Content-Security-Policy"], "frame-ancestors 'none'")

    def test_errors_do_not_quote_the_body(self):
        long = 4_000_000
        for path, body in [
            ("/v1/completions", '{"prompt": "x", "max_tokens": ' + "1" * long + "}"),
            ("/v1/completions", '{"prompt": "x", "logit_bias": {"' + "0" * long + '1": 1e9}}'),
            ("/v1/completions", '{"prompt": "x", "' + "k" * long + '": 1}'),
            ("/v1/completions", '{"prompt": "x", "model": "' + "m" * long + '"}'),
            ("/v1/completions", '{"prompt": "x", "temperature": "' + "t" * long + '"}'),
            ("/v1/chat/completions", '{"messages": [{"role": ["' + "r" * long + '"]}]}'),
        ]:
            answer = self.server.post(path, body)
            self.assertIn(answer.status, (400, 404))
            self.assertLess(len(answer.body), 2000, body[:60])

    def test_templates_over_their_limits(self):
        folder = self.path / "model"
        folder.mkdir()
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (folder / name).symlink_to(TINY / name)
        loops = "{% for i in range(99999) %}" * 3 + "x" + "{% endfor %}" * 3
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": loops}))
        with Server("--model", folder) as server:
            messages = {"messages": [{"role": "user", "content": "x"}]}
            for path in ("/v1/chat/completions", "/tokenize"):
                self.refused(server.post(path, messages), 400)  # clients repeat what gets 429

    def test_values_that_are_not_read(self):
        values = [{}] * 200_000
        answer = self.server.complete(prompt="x", max_tokens=1, metadata=values)
        self.assertEqual(answer["usage"]["completion_tokens"], 1)
        self.refused(self.server.post("/v1/completions", {"prompt": "x", "junk": values}), 400, "junk")
        messages = {"messages": [{}] * 1_000_000}
        self.refused(self.server.post("/v1/chat/completions", messages), 413, "messages")
        many = {"prompt": "x", **{f"key{i}": 0 for i in range(1000)}}
        self.refused(self.server.post("/v1/completions", many), 400, "parameters")

    def test_noise(self):
        noise = random.Random(1)
        for _ in range(50):
            data = noise.randbytes(noise.randrange(1, 2000)) + b"\r\n\r\n"
            answer = self.server.raw(data)
            self.assertTrue(answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer[:50])

    @staticmethod
    def slow_clients(server, count):
        """Clients that stopped in the middle, by turns of a body and of a header."""
        half = header("/v1/completions", "Content-Length: 500") + b'{"prompt'
        clients = []
        for i in range(count):
            address = ("127.0.0.1", server.port)
            clients.append(socket.create_connection(address, timeout=TIMEOUT_S))
            clients[-1].sendall(b"POST /v1/comp" if i % 2 else half)
        return clients

    def test_slow_clients_do_not_delay_others(self):
        with Server("--read-timeout", "3600", "--max-connections", "256") as server:
            clients = self.slow_clients(server, 100)
            server.complete(prompt="x", max_tokens=1)
            for client in clients:
                client.close()

    def test_slow_clients_time_out(self):
        with Server("--read-timeout", "2") as server:
            for i, client in enumerate(self.slow_clients(server, 20)):
                answer = client.recv(4096)
                self.assertEqual(answer[:12], b"HTTP/1.1 408" if i % 2 else b"HTTP/1.1 400")
                client.close()

    def test_a_thousand_idle_connections(self):
        address = ("127.0.0.1", self.server.port)
        idle = [socket.create_connection(address) for _ in range(1000)]
        for client in idle[:500]:
            client.sendall(b"GET ")
        for _ in range(5):
            self.server.complete(prompt="x", max_tokens=1)
        for client in idle:
            client.close()

    def test_readers_that_stop_reading(self):
        connections = [
            self.server.open_stream("/v1/completions", prompt="x", max_tokens=200, n=4)
            for _ in range(4)
        ]
        self.server.complete(prompt="x", max_tokens=1)
        for connection, response in connections:
            response.close()
            connection.close()
        self.server.wait_until_idle()


if __name__ == "__main__":
    main()
