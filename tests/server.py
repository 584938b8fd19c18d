"""A running `talon serve` for tests, and clients of it."""

import http.client
import json
import signal
import socket
import subprocess
import tempfile
import time

from cli import TIMEOUT_S, defaults, program, wait_for


class Answer:
    """A whole HTTP answer."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


class Server:
    """`talon serve` on a free port with the bundled model and OpenAI's defaults of sampling. Use as
    a context."""

    launcher = []  # a command that starts the program
    command = "serve"

    def __init__(self, *flags):
        self.log = tempfile.TemporaryFile()
        command = [*self.launcher, program(), self.command, "--port", "0", *defaults(flags)]
        self.process = subprocess.Popen(
            command + [str(flag) for flag in flags], stdout=self.log, stderr=self.log
        )
        try:
            self.port = int(self.wait_for(rb'listening on [^\s"]*:(\d+)[\n"]')[1])
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def wait_for(self, pattern):
        return wait_for(pattern, self.output, self.process)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()

    def stop(self, number=signal.SIGTERM):
        """Asks it to end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=TIMEOUT_S)

    # ---- Requests ----

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def request(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
        except ConnectionError:
            pass  # refused before all was sent; the answer is there
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    def get(self, path, headers=None):
        return self.request("GET", path, headers=headers)

    def post(self, path, body, headers=None):
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        return self.request(
            "POST", path, data, {"Content-Type": "application/json", **(headers or {})}
        )

    def complete(self, **parameters):
        """The answer of /v1/completions, which must succeed."""
        answer = self.post("/v1/completions", parameters)
        assert answer.status == 200, answer.body
        return answer.json

    def chat(self, text, **parameters):
        messages = [{"role": "user", "content": text}]
        answer = self.post("/v1/chat/completions", {"messages": messages, **parameters})
        assert answer.status == 200, answer.body
        return answer.json

    def open_stream(self, path, **parameters):
        """A connection whose streaming answer has begun, and the answer."""
        connection = self.connect()
        body = json.dumps({"stream": True, **parameters})
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def stream(self, path="/v1/completions", **parameters):
        """The events of a stream: parsed JSON, "[DONE]" as it is."""
        connection, response = self.open_stream(path, **parameters)
        assert response.status == 200, response.read()
        events = []
        for block in response.read().decode().split("\n\n"):
            if block:
                text = block.splitlines()[-1]  # after the event's name, where it has one
                assert text.startswith("data: "), block
                text = text.removeprefix("data: ")
                events.append(text if text == "[DONE]" else json.loads(text))
        connection.close()
        return events

    def raw(self, data):
        """Everything the server answers to these bytes."""
        with self.half_close(data) as client:
            return self.read_all(client)

    def half_close(self, data):
        """A socket that has sent these bytes and the end of its side."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused before all was sent
        return client

    @staticmethod
    def read_all(client):
        received = b""
        try:
            while chunk := client.recv(65536):
                received += chunk
        except ConnectionError:
            pass
        return received

    def status(self):
        return self.get("/talon/status").json

    def wait_until_idle(self):
        """The status once nothing runs."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            status = self.status()
            if status["requests"] == {"running": 0, "waiting": 0}:
                return status
            time.sleep(0.02)
        raise AssertionError(f"still busy: {self.status()}")
