#!/usr/bin/env python3
"""Loads `talon serve` as many clients would, and checks what they get.

    scripts/soak.py build/talon [options] [-- flags of talon serve ...]

For each number of clients: requests with random prompts, lengths and sampling, whole and streamed,
some with a JSON schema; a share of the streams is cut by the client. Some requests are sent once more when nothing else
runs: the answer must be the same. Between the loads the server must be idle with all KV blocks
free or in the prefix cache; at the end SIGTERM comes under load, and every request that was
accepted must end cleanly. Prints a table and exits 1 on any error, difference or loss.
"""

import argparse
import http.client
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE_S = 300
WORDS = "the sea was a ship and of storm to wind they house in light".split()
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["ship", "house", "storm"]},
        "sizes": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    },
    "required": ["name", "kind", "sizes"],
    "additionalProperties": False,
}


class Server:
    """A running `talon serve`."""

    def __init__(self, program, flags):
        self.log = tempfile.TemporaryFile()
        command = [program, "serve", "--port", "0", *flags]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(rb"listening on http://\S*:(\d+)\n", self.output())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"soak: the server did not start:\n{self.output().decode()}")
            time.sleep(0.1)
        self.port = int(found[1])

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def get(self, path):
        connection = self.connect()
        connection.request("GET", path)
        body = json.loads(connection.getresponse().read())
        connection.close()
        return body

    def idle_status(self):
        """The status once nothing runs, or what still does after a minute."""
        for _ in range(600):
            status = self.get("/talon/status")
            if status["requests"] == {"running": 0, "waiting": 0}:
                break
            time.sleep(0.1)
        return status

    def memory_mb(self):
        text = open(f"/proc/{self.process.pid}/status", encoding="ascii").read()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) // 1024


def random_request(rng, options):
    words = rng.choices(WORDS, k=rng.randint(1, options.prompt_words))
    request = {"prompt": " ".join(words), "max_tokens": rng.randint(1, options.max_tokens)}
    if rng.random() < 0.5:
        request["temperature"] = 0
    else:
        request |= {"temperature": 0.8, "top_p": 0.9, "seed": rng.randint(0, 1 << 30)}
    if rng.random() < 0.2:
        request["speculative"] = {"off": True}
    if rng.random() < 0.3:
        request["guided_json"] = SCHEMA
    return request


def check_answer(request, answer):
    """An answer that ended by itself is JSON where a schema was given; ValueError if not."""
    text, finish = answer
    if "guided_json" in request and finish == "stop":
        fields = json.loads(text)
        if list(fields) != SCHEMA["required"] or fields["kind"] not in ("ship", "house", "storm"):
            raise ValueError(f"not of the schema: {text}")


def read_stream(response, cut_after):
    """Text and finish reason of a stream, or None where it was cut."""
    text, finish = "", None
    while line := response.readline():
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[len(b"data: ") :])
        if "error" in event:
            raise ValueError(event["error"])
        for choice in event["choices"]:
            text += choice["text"]
            finish = choice["finish_reason"] or finish
        cut_after -= 1
        if cut_after == 0:
            return None
    return text, finish


def complete(server, request, stream=False, cut_after=-1):
    connection = server.connect()
    try:
        body = json.dumps(request | {"stream": stream})
        connection.request(
            "POST", "/v1/completions", body, {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"status {response.status}: {response.read()[:200]}")
        if stream:
            return read_stream(response, cut_after)
        choice = json.loads(response.read())["choices"][0]
        return choice["text"], choice["finish_reason"]
    finally:
        connection.close()


class Load:
    """Clients that send requests until they are told to stop."""

    def __init__(self, server, clients, options, seed):
        self.server, self.options = server, options
        self.answered = self.cut = self.tokens = 0
        self.errors, self.kept = [], []
        self.lock = threading.Lock()
        self.ending = threading.Event()
        self.start = time.monotonic()
        self.threads = [
            threading.Thread(target=self.client, args=(seed * 1000 + i,)) for i in range(clients)
        ]
        for thread in self.threads:
            thread.start()

    def client(self, seed):
        rng = random.Random(seed)
        while not self.ending.is_set():
            request = random_request(rng, self.options)
            stream = rng.random() < 0.7
            cut = stream and rng.random() < self.options.cut
            keep = rng.random() < self.options.compare
            try:
                answer = complete(self.server, request, stream, rng.randint(1, 8) if cut else -1)
                if answer is not None:
                    check_answer(request, answer)
            except (OSError, ValueError, http.client.HTTPException) as error:
                with self.lock:
                    if not self.ending.is_set():
                        self.errors.append(f"{type(error).__name__}: {error}")
                continue
            with self.lock:
                if answer is None:
                    self.cut += 1
                    continue
                self.answered += 1
                if keep:
                    self.kept.append((request, answer))

    def stop(self):
        self.ending.set()
        for thread in self.threads:
            thread.join()
        return time.monotonic() - self.start


def count_differences(server, kept):
    differences = 0
    for request, answer in kept:
        alone = complete(server, request)
        if alone != answer:
            differences += 1
            print(f"soak: {request}\n  in the load: {answer}\n  alone:       {alone}")
    return differences


def blocks_lost(kv):
    """Blocks of an idle server that are neither free nor kept for the prefix cache alone."""
    return kv["blocks"] - kv["free"] - kv["cached"]


def run_level(server, clients, options, row):
    load = Load(server, clients, options, seed=clients + options.seed)
    time.sleep(options.seconds)
    seconds = load.stop()
    status = server.idle_status()
    kept = load.kept[: options.most_compared]
    differences = count_differences(server, kept)
    lost = blocks_lost(status["kv"])
    print(
        row.format(
            clients, load.answered, load.cut, len(load.errors), len(kept), differences, lost,
            f"{load.answered / seconds:.1f}", server.memory_mb(),
        ),
        flush=True,
    )
    for error in load.errors[:3]:
        print(f"  {error}")
    return not load.errors and differences == 0 and lost == 0 and load.answered > 0


def end_under_load(server, options):
    """SIGTERM: requests on their way end, new ones are refused, the exit code is 0."""
    load = Load(server, 16, options, seed=99 + options.seed)
    time.sleep(2)
    load.ending.set()  # from here on refusals are expected
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(timeout=PATIENCE_S)
    load.stop()
    print(f"SIGTERM under load of 16 clients: exit code {code}, {len(load.errors)} errors before it")
    return code == 0 and not load.errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program")
    parser.add_argument("--clients", default="1,32,64,128")
    parser.add_argument("--seconds", type=float, default=20, help="of each load")
    parser.add_argument("--cut", type=float, default=0.05, help="share of streams that are cut")
    parser.add_argument("--compare", type=float, default=0.2, help="share that is repeated alone")
    parser.add_argument("--most-compared", type=int, default=40, help="of each load")
    parser.add_argument("--prompt-words", type=int, default=300)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    arguments = sys.argv[1:]
    flags = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    options = parser.parse_args(arguments[: arguments.index("--")] if flags else arguments)

    server = Server(options.program, flags)
    row = "{:>7} {:>8} {:>5} {:>6} {:>8} {:>6} {:>11} {:>10} {:>7}"
    print(row.format("clients", "answered", "cut", "errors", "compared", "differ", "blocks lost",
                     "requests/s", "RSS MB"))
    complete(server, {"prompt": "warm up", "max_tokens": 8})
    good = True
    for clients in options.clients.split(","):
        good = run_level(server, int(clients), options, row) and good
        if server.process.poll() is not None:
            sys.exit(f"soak: the server ended with {server.process.returncode}:\n"
                     f"{server.output().decode()[-2000:]}")
    good = end_under_load(server, options) and good
    print("soak: passed" if good else "soak: FAILED")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
