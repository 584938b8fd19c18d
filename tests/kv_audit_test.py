"""`talon serve --kv-audit` notices a committed byte that changes, answers, and ends with its code."""

import http.client
import json
import signal
import subprocess

from cli import TIMEOUT_S, TINY, CliTest, defaults, main, program, wait_for

KV_TOKENS = 160_000  # larger than everything else the process holds
PAGE = 4096
PIECE = 64 * PAGE  # most of the pool is empty: read quickly
STOPPED = 3


def largest_mapping(pid):
    """The address range of the process's largest private memory: the KV pool."""
    ranges = []
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        for line in maps:
            place, mode, _, _, inode = line.split()[:5]
            if mode.startswith("rw") and inode == "0":
                begin, end = (int(part, 16) for part in place.split("-"))
                ranges.append((end - begin, begin, end))
    _, begin, end = max(ranges)
    return begin, end


def flip_bytes(pid):
    """Changes a bit in the middle of every page of the KV pool that is in use."""
    flipped = 0
    begin, end = largest_mapping(pid)
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for pages in range(begin, end, PIECE):
            memory.seek(pages)
            try:
                data = memory.read(min(PIECE, end - pages))
            except OSError:  # pages that the process cannot touch either
                continue
            for page in range(0, len(data) if data.strip(b"\0") else 0, PAGE):
                if data[page : page + PAGE].strip(b"\0"):
                    memory.seek(pages + page + PAGE // 2)
                    memory.write(bytes([data[page + PAGE // 2] ^ 1]))
                    flipped += 1
    return flipped


class KvAuditTest(CliTest):
    def serve(self, *flags):
        log = self.path / "serve.log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [str(part) for part in (program(), "serve", "--model", TINY, "--port", 0,
                                        "--kv-tokens", KV_TOKENS, *defaults(flags), *flags)],
                stdout=output, stderr=subprocess.STDOUT, cwd=self.path)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        found = wait_for(r"listening on http://([\d.]+):(\d+)\n", log.read_text, server)
        connection = http.client.HTTPConnection(found[1], int(found[2]), timeout=TIMEOUT_S)
        self.addCleanup(connection.close)
        return server, connection

    def stream(self, connection, tokens):
        body = {"prompt": "It was a dark night", "max_tokens": tokens, "temperature": 0,
                "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        for _ in range(20):
            answer.readline()
        return answer

    def test_a_changed_byte_ends_the_requests_and_the_server(self):
        server, connection = self.serve("--kv-audit")
        answer = self.stream(connection, tokens=30000)  # which do not end before the flip
        server.send_signal(signal.SIGSTOP)
        self.assertGreater(flip_bytes(server.pid), 0)
        server.send_signal(signal.SIGCONT)
        rest = answer.read().decode()
        self.assertIn("audit: committed token", rest)
        self.assertEqual(server.wait(timeout=TIMEOUT_S), STOPPED)
        self.assertIn("the engine has stopped", (self.path / "serve.log").read_text())

    def test_nothing_is_noticed_where_nothing_changes(self):
        server, connection = self.serve("--kv-audit")
        rest = self.stream(connection, tokens=300).read().decode()
        self.assertTrue(rest.rstrip().endswith("data: [DONE]"), rest[-200:])
        server.terminate()
        self.assertEqual(server.wait(timeout=TIMEOUT_S), 0)


if __name__ == "__main__":
    main()
