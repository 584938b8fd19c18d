"""Who may use `talon serve`, and what it says of them in its log.

Usage: serve_access_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import os
import re
import socket
import sys
import time
from unittest import mock

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import CliTest, main, talon  # noqa: E402
from server import Server  # noqa: E402

PROMPT = "Once upon a time there was a"
HALF_CLOSE_S = 0.5  # the end of a client's side belongs to its request until then (connection.cc)


class Access(CliTest):
    def test_keys_and_origins(self):
        keys = self.file("keys.txt", "# ours\nsecret-1\nsecret-2\n")
        origin = "http://example.com"
        with Server("--api-key-file", keys, "--cors-origin", origin) as server:
            self.assertEqual(server.get("/health").status, 200)
            for value in (None, "Bearer wrong", "Bearer secret-", "Basic secret-1", "secret-1"):
                headers = {"Authorization": value} if value else {}
                answer = server.get("/v1/models", headers)
                self.assertEqual(answer.status, 401, value)
                self.assertEqual(answer.error["type"], "authentication_error")
            for key in ("secret-1", "secret-2"):
                answer = server.get("/v1/models", {"Authorization": f"Bearer {key}"})
                self.assertEqual(answer.status, 200)
                self.assertEqual(answer.headers["Access-Control-Allow-Origin"], origin)
            preflight = server.request(
                "OPTIONS",
                "/v1/chat/completions",
                headers={
                    "Origin": origin,
                    "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "authorization,content-type",
                },
            )
            self.assertEqual(preflight.status, 204)
            self.assertEqual(
                preflight.headers["Access-Control-Allow-Headers"], "authorization,content-type"
            )

    def test_a_key_by_flag_or_environment(self):
        key = {"Authorization": "Bearer abc"}
        with Server("--api-key", "abc") as server:
            self.assertEqual(server.get("/v1/models", key).status, 200)
            self.assertEqual(server.get("/v1/models").status, 401)
        with mock.patch.dict(os.environ, {"TALON_API_KEY": "abc"}):
            with Server() as server:
                self.assertEqual(server.get("/v1/models", key).status, 200)
                self.assertEqual(server.get("/v1/models").status, 401)
            with Server("--api-key", "other") as server:  # the flag counts
                self.assertEqual(server.get("/v1/models", key).status, 401)
        with mock.patch.dict(os.environ, {"TALON_API_KEY": "two words"}):
            self.assert_refused(talon("serve", "--port", "0"), "TALON_API_KEY")
        self.assert_refused(talon("serve", "--port", "0", "--api-key", "a b"), "api_key")
        self.assert_refused(talon("serve", "--port", "0", "--api-key", ""), "api_key", "empty")
        with mock.patch.dict(os.environ, {"TALON_API_KEY": ""}):
            self.assert_refused(talon("serve", "--port", "0"), "TALON_API_KEY")

    def test_blocks_are_told_before_the_first_request(self):
        with Server() as server:
            kv, metrics = server.status()["kv"], server.get("/metrics").body.decode()
            for state in ("used", "cached", "free"):
                self.assertIn(f'talon_kv_blocks{{state="{state}"}} {kv[state]}\n', metrics)

    def test_other_names_must_be_allowed(self):
        stranger = {"Host": "talon.example.com"}
        with Server("--allowed-host", "talon.example.com") as server:
            self.assertEqual(server.get("/v1/models", stranger).status, 200)
            self.assertEqual(server.get("/v1/models", {"Host": "a.example.com"}).status, 403)
        with Server("--api-key", "abc") as server:  # the key tells friends from strangers
            answer = server.get("/v1/models", {**stranger, "Authorization": "Bearer abc"})
            self.assertEqual(answer.status, 200)

    def test_pages_of_the_allowed_origin(self):
        with Server("--cors-origin", "https://page.example.com") as server:
            for origin, status in [("https://page.example.com", 200), ("https://evil.com", 403)]:
                self.assertEqual(server.get("/v1/models", {"Origin": origin}).status, status)

    def test_a_half_closed_client_gets_its_answer(self):
        with Server() as server:
            body = json.dumps({"prompt": PROMPT, "max_tokens": 100, "ignore_eos": True})
            for stream in (body, body[:-1] + ', "stream": true}'):
                head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                head += f"Content-Type: application/json\r\nContent-Length: {len(stream)}\r\n\r\n"
                answer = self.half_close(server, (head + stream).encode())
                self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)
                self.assertIn(b'"finish_reason":"length"', answer)

    @staticmethod
    def half_close(server, data):
        """The answer to a request whose sender closes its side, at once by the clock."""
        while True:
            start = time.monotonic()
            client = server.half_close(data)
            at_once = time.monotonic() - start < HALF_CLOSE_S / 2
            with client:
                answer = server.read_all(client)
            if at_once:
                return answer


class Log(CliTest):
    @staticmethod
    def lines(server, count):
        """The fields of the access log, once it has that many lines."""
        server.wait_for(rb"(?s)" + rb".*?Z access [^\n]*\n" * count)
        found = re.findall(r"^(\S+Z) access (.*)$", server.output().decode(), re.MULTILINE)
        return [dict(field.split("=", 1) for field in fields.split()) for _, fields in found]

    def test_every_request_has_a_line(self):
        with Server() as server:  # by default
            # Lines are written after answers: without the waits a later request's could be first.
            whole = server.complete(prompt=PROMPT, max_tokens=5, ignore_eos=True)
            self.lines(server, 1)
            stream = server.stream(prompt=PROMPT, max_tokens=6, ignore_eos=True)
            self.lines(server, 2)
            server.post("/v1/completions", {"prompt": "x", "temperature": -1})
            self.lines(server, 3)
            server.get("/nowhere?key=secret")
            self.lines(server, 4)
            server.raw(b"GET / HTTP/1.1\r\nno colon\r\n\r\n")
            self.lines(server, 5)
            server.raw(b"x" * 40000)
            lines = self.lines(server, 6)
            output = server.output().decode()
        self.assertEqual([line["status"] for line in lines], ["200", "200", "400", "404", "400", "431"])
        self.assertEqual(lines[0]["id"], whole["id"])
        self.assertEqual(lines[1]["id"], stream[0]["id"])
        self.assertEqual([line.get("tokens") for line in lines[:3]], ["5", "6", None])
        self.assertEqual(lines[0]["prompt_tokens"], str(whole["usage"]["prompt_tokens"]))
        self.assertLessEqual(float(lines[1]["first_token_seconds"]), float(lines[1]["seconds"]))
        self.assertEqual((lines[2]["method"], lines[2]["path"]), ("POST", "/v1/completions"))
        self.assertEqual(lines[3]["path"], "/nowhere")
        self.assertTrue(all(line["client"].startswith("127.0.0.1:") for line in lines))
        self.assertRegex(output, rf"\dZ request finished id={whole['id']} reason=length ")
        self.assertNotIn("secret", output)

    def test_warnings_only(self):
        with Server("--log-level", "warning") as server:
            server.complete(prompt=PROMPT, max_tokens=5)
            self.assertEqual(server.stop(), 0)
            self.assertNotIn(b" access ", server.output())

    def test_refused_keys_have_a_line(self):
        with Server("--log-level", "info", "--api-key", "secret") as server:
            refused = server.get("/v1/models")
            server.get("/health")
            line = self.lines(server, 1)[0]
            self.assertEqual((line["status"], line["path"]), ("401", "/v1/models"))
            self.assertEqual(line["id"], refused.headers["X-Request-Id"])
            self.assertNotIn(b"secret", server.output())

    def test_refused_connections_have_a_line(self):
        with Server("--log-level", "info", "--read-timeout", "1") as server:
            with socket.create_connection(("127.0.0.1", server.port)) as slow:
                slow.sendall(b"GET / HTTP/1.1\r\n")
                answer = slow.makefile("rb").read().decode()
            line = self.lines(server, 1)[0]
            self.assertEqual(line["status"], "408")
            self.assertIn(f"X-Request-Id: {line['id']}\r\n", answer)
            self.assertGreaterEqual(float(line["seconds"]), 1)

    def test_a_cut_stream_is_499(self):
        with Server("--log-level", "info") as server:
            connection, response = server.open_stream(
                "/v1/completions", prompt=PROMPT, max_tokens=20000, ignore_eos=True
            )
            response.readline()
            response.close()
            connection.close()
            line = self.lines(server, 1)[0]
            self.assertEqual(line["status"], "499")
            self.assertGreater(int(line["tokens"]), 0)

    def test_json_lines_only(self):
        with Server("--log-format", "json", "--log-level", "info") as server:
            answer = server.complete(prompt=PROMPT, max_tokens=3, ignore_eos=True)
            server.wait_for(rb'"message":"access"[^\n]*\n')
            lines = [json.loads(line) for line in server.output().splitlines()]
        banner = next(line for line in lines if line["message"].startswith("listening on http://"))
        self.assertEqual(banner["fields"]["model"], "tiny")
        self.assertFalse(banner["fields"]["needs_key"])
        access = next(line for line in lines if line["message"] == "access")
        self.assertEqual(access["fields"]["id"], answer["id"])
        self.assertEqual(access["fields"]["tokens"], 3)


if __name__ == "__main__":
    main()
