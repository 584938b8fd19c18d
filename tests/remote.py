"""Draft and target workers for tests, and clients of them."""

import itertools
import signal
import subprocess
import tempfile

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cli import ROOT, TIMEOUT_S, program, wait_for

SPECSPLIT_PROTO = ROOT / "tests" / "specsplit.proto"
TALON_PROTO = ROOT / "src" / "serve" / "grpc" / "spec_decoding.proto"
CHANNEL_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
]
_request_numbers = itertools.count(1)


class Worker:
    """A worker of the bundled model on a free port, or on `port`. Use as a context."""

    def __init__(self, kind, *flags, host="127.0.0.1", port=0):
        self.command = [program(), f"{kind}-worker", "--host", host, "--threads", "1"]
        self.command += [str(flag) for flag in flags]
        self.log = tempfile.TemporaryFile()
        self.start(port)

    def start(self, port):
        self.log.truncate(0)
        self.log.seek(0)
        self.process = subprocess.Popen(
            self.command + ["--port", str(port)], stdout=self.log, stderr=self.log
        )
        try:
            self.address = self.wait_for(r"listening on (\S+)\n")[1]
        except BaseException:
            self.close()
            raise
        self.port = int(self.address.rsplit(":", 1)[1])

    def restart(self):
        """After kill: another process on the same port."""
        self.start(self.port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def wait_for(self, pattern):
        return wait_for(pattern, self.output, self.process)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()

    def stop(self):
        """Asks it to end; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=TIMEOUT_S)


class Messages:
    """The message classes of a proto file, by name, in a pool of their own."""

    def __init__(self, proto):
        with tempfile.NamedTemporaryFile() as out:
            subprocess.run(
                ["protoc", f"-I{proto.parent}", f"--descriptor_set_out={out.name}", str(proto)],
                check=True,
            )
            files = descriptor_pb2.FileDescriptorSet.FromString(out.read())
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)

    def __getattr__(self, name):
        described = self.pool.FindMessageTypeByName(f"specsplit.{name}")
        if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and newer
            return message_factory.GetMessageClass(described)
        return message_factory.MessageFactory(self.pool).GetPrototype(described)


def open_channel(address, credentials=None, options=()):
    options = CHANNEL_OPTIONS + list(options)
    if credentials is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, credentials, options=options)


class Client:
    """Calls one worker. Failures are grpc.RpcError."""

    def __init__(self, address, messages, credentials=None, options=()):
        self.messages = messages
        self.channel = open_channel(address, credentials, options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def raw(self, method, data, timeout=TIMEOUT_S):
        """The bytes that answer these bytes."""
        return self.channel.unary_unary(f"/specsplit.{method}")(data, timeout=timeout)

    def call(self, service, method, answer, request, timeout=TIMEOUT_S, wait=False):
        stub = self.channel.unary_unary(
            f"/specsplit.{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(self.messages, answer).FromString,
        )
        return stub(request, timeout=timeout, wait_for_ready=wait)

    def verify(self, timeout=TIMEOUT_S, **fields):
        fields.setdefault("request_id", f"request-{next(_request_numbers)}")
        request = self.messages.VerifyRequest(**fields)
        return self.call("TargetService", "VerifyDrafts", "VerifyResponse", request, timeout)

    def draft(self, timeout=TIMEOUT_S, **fields):
        request = self.messages.DraftRequest(**fields)
        return self.call("DraftService", "GenerateDrafts", "DraftResponse", request, timeout)

    def end(self, session_id):
        request = self.messages.EndSessionRequest(session_id=session_id)
        return self.call("TargetService", "EndSession", "EndSessionResponse", request)

    def ping(self, service="TargetService", wait=False):
        request = self.messages.PingRequest()
        return self.call(service, "Ping", "PingResponse", request, wait=wait)


def nested(paths):
    """The forest of `paths` as dicts of TokenNode, equal beginnings shared."""
    forest = []
    for path in paths:
        level = forest
        for token in path:
            node = next((n for n in level if n["token_id"] == token), None)
            if node is None:
                node = {"token_id": token, "log_prob": -1.0, "children": []}
                level.append(node)
            level = node["children"]
    return forest


class Session:
    """A client's side of a session: what it has, and what the worker is known to have."""

    def __init__(self, client, prompt, name, **sampling):
        self.client = client
        self.context = list(prompt)
        self.prompt_length = len(prompt)
        self.name = name
        self.sampling = sampling
        self.confirmed = 0  # tokens that the worker has

    @property
    def output(self):
        return self.context[self.prompt_length :]

    def fields(self, paths, full=False):
        """The next request; the whole context where the worker has nothing or is told so."""
        fields = {"session_id": self.name, "draft_tree": nested(paths), **self.sampling}
        if full or self.confirmed == 0:
            fields["prompt_token_ids"] = self.context
        else:
            fields["new_token_ids"] = self.context[self.confirmed :]
            fields["expected_prefix_length"] = self.confirmed
        return fields

    def take(self, answer):
        self.context += list(answer.accepted_token_ids)
        if answer.has_correction:
            self.confirmed = len(self.context)
            self.context.append(answer.correction_token_id)
        else:
            self.confirmed = len(self.context)
        return answer

    def step(self, paths, full=False, **more):
        return self.take(self.client.verify(**{**self.fields(paths, full), **more}))


def guesses(truth, done, length=4):
    """Drafts for a client that knows what comes: right ones and wrong ones beside them."""
    right = truth[done : done + length]
    wrong = [(token + 1) % 100 for token in right]
    return [path for path in (right, wrong, right[:1] + wrong[1:]) if path]


def generate(session, truth, count):
    """Steps until there are `count` tokens, which are returned."""
    while len(session.output) < count:
        session.step(guesses(truth, len(session.output)))
    return session.output[:count]
