"""The memory of `talon serve` under many large bodies: bounded, and never the end of the process.

Usage: serve_memory_test.py PATH_OF_TALON [unittest arguments]
"""

import http.client
import itertools
import re
import resource
import socket
import sys
import threading
from pathlib import Path

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import CliTest, main  # noqa: E402
from server import TIMEOUT_S, Server  # noqa: E402

BODY_BYTES = 4 << 20  # the largest that is taken
INFLIGHT_BYTES = 16 << 20
CLIENTS = 3 * INFLIGHT_BYTES // BODY_BYTES  # thrice what may be in flight
MEMORY_PER_BYTE = 16  # for bodies in flight: texts, words, tokens and what the allocator keeps
KV_TOKENS = 4096
THREAD_BYTES = 9 << 20  # a connection's
ROOM_STEP_BYTES = 512 << 10
STEP = {"prompt": "word " * 1000, "max_tokens": 4}


def request(path, begin, part, end):
    body = begin + part * ((BODY_BYTES - len(begin) - len(end)) // len(part)) + end
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


LOADS = {
    "words": request("/tokenize", '{"prompt":"', "x y ", '"}'),
    "one word": request("/tokenize", '{"prompt":"', "a", '"}'),
    "ignored values": request(
        "/v1/completions", '{"prompt":"x","max_tokens":1,"metadata":[', "{},", "0]}"
    ),
    "unknown values": request("/v1/completions", '{"prompt":"x","junk":[', "[],", "0]}"),
    "empty messages": request("/v1/chat/completions", '{"messages":[', "{},", "{}]}"),
    "ids": request("/detokenize", '{"tokens":[', "50,", "9]}"),
    "ids of long tokens": request("/detokenize", '{"tokens":[', "9,", "9]}"),
}


class Memory(CliTest):
    @staticmethod
    def status_of(server, data, statuses):
        """Adds the status of the answer; the answer itself is not kept."""
        with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S) as client:
            try:
                client.sendall(data)
            except OSError:
                pass  # refused before all was sent
            first = b""
            try:
                first = client.recv(12)
                while client.recv(1 << 20):
                    pass
            except ConnectionError:
                pass  # after a refusal the rest of the body is not read
            statuses.append(first[9:12].decode())

    def statuses(self, server, data):
        """The statuses of all clients, which ask at once."""
        statuses = []
        threads = [
            threading.Thread(target=self.status_of, args=(server, data, statuses))
            for _ in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return statuses

    @staticmethod
    def memory(server, name):
        text = Path(f"/proc/{server.process.pid}/status").read_text()
        return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", text)[1])

    def test_the_peak_is_bounded(self):
        limits = ("--kv-tokens", KV_TOKENS, "--max-inflight-bytes", INFLIGHT_BYTES)
        with Server(*limits) as server:
            server.complete(prompt="x", max_tokens=1)
            before = self.memory(server, "VmRSS")
            for name, data in LOADS.items():
                statuses = self.statuses(server, data)
                self.assertEqual(len(statuses), CLIENTS, name)
                self.assertLessEqual(set(statuses), {"200", "400", "413", "503"}, name)
                grown = self.memory(server, "VmHWM") - before
                self.assertLess(grown, MEMORY_PER_BYTE * INFLIGHT_BYTES, name)
            server.complete(prompt="x", max_tokens=1)

    def test_lack_of_memory_is_an_error(self):
        with Server("--kv-tokens", KV_TOKENS, "--max-inflight-bytes", 1 << 30) as server:
            pid = server.process.pid
            room = self.memory(server, "VmSize") + CLIENTS * 2 * BODY_BYTES
            seen = set()
            unlimited = resource.prlimit(pid, resource.RLIMIT_AS)
            resource.prlimit(pid, resource.RLIMIT_AS, (room, unlimited[1]))
            for name, data in LOADS.items():
                statuses = self.statuses(server, data)
                self.assertIsNone(server.process.poll(), f"{name}: {server.output()}")
                self.assertEqual(len(statuses), CLIENTS, name)
                self.assertLessEqual(set(statuses), {"200", "400", "413", "503", ""}, name)
                seen |= set(statuses)
            self.assertTrue(seen & {"503", ""}, "the limit of memory was never met")
            # What malloc keeps of the address space may leave too little below the limit.
            resource.prlimit(pid, resource.RLIMIT_AS, unlimited)
            server.complete(prompt="x", max_tokens=1)

    def test_a_step_without_memory_says_what_it_lacked(self):
        """Whatever a first step lacks, from the activations to the last rows of scratch."""
        messages = []
        for room in itertools.count(THREAD_BYTES, ROOM_STEP_BYTES):
            with Server("--kv-tokens", KV_TOKENS, "--device", "cpu") as server:
                pid = server.process.pid
                most = self.memory(server, "VmSize") + room
                resource.prlimit(pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
                try:
                    answer = server.post("/v1/completions", STEP)
                except (ConnectionError, http.client.HTTPException):
                    continue  # no memory for the connection
                if answer.status == 200:
                    break
                self.assertEqual(answer.status, 503, answer.json)
                messages.append(answer.json["error"]["message"])
        self.assertTrue(any("no memory for" in text for text in messages), messages)

    def test_bodies_that_stall_hold_what_they_sent(self):
        with Server("--kv-tokens", KV_TOKENS, "--max-inflight-bytes", INFLIGHT_BYTES) as server:
            begun = LOADS["words"][:70_000]  # a body of 4 MB that stops
            stalled = [
                socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S)
                for _ in range(2 * INFLIGHT_BYTES // BODY_BYTES)
            ]
            for client in stalled:
                client.sendall(begun)
            self.assertEqual(server.post("/tokenize", {"prompt": "x " * 50_000}).status, 200)
            for client in stalled:
                client.close()


if __name__ == "__main__":
    main()
