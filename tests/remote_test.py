"""Workers as their clients meet them: SpecSplit's protocol, faults, hostile messages, TLS.

Usage: remote_test.py PATH_OF_TALON [unittest arguments]
"""

import concurrent.futures
import functools
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

import grpc

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import ROOT, TIMEOUT_S, TINY, CliTest, main, talon  # noqa: E402
from remote import (  # noqa: E402
    SPECSPLIT_PROTO,
    TALON_PROTO,
    Client,
    Messages,
    Session,
    Worker,
    generate,
    guesses,
)

PROMPT = [72, 300, 41, 256, 305, 99, 410, 33, 120, 7]
LENGTH = 40


@functools.lru_cache(maxsize=None)
def plain(prompt=tuple(PROMPT), **sampling):
    """The tokens of local plain decoding."""
    flags = [part for key, value in sampling.items() for part in (f"--{key}", value)]
    tokens = ",".join(map(str, prompt))
    run = CliTest().run_json(
        "--prompt-tokens", tokens, "--max-tokens", LENGTH, "--ignore-eos", *flags
    )
    return run["tokens"]


def code_of(call):
    """The status code and detail of a call that must fail."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details().split(":")[0]
    raise AssertionError("the call did not fail")


class TargetTest(CliTest):
    """One worker for all tests of a class."""

    FLAGS = ()
    PROTO = TALON_PROTO

    @classmethod
    def setUpClass(cls):
        cls.worker = Worker("target", *cls.FLAGS)
        cls.messages = Messages(cls.PROTO)
        cls.client = Client(cls.worker.address, cls.messages)

    @classmethod
    def tearDownClass(cls):
        cls.client.channel.close()
        cls.worker.close()

    def session(self, name=None, prompt=PROMPT, **sampling):
        return Session(self.client, prompt, name or self.id(), **sampling)

    def assert_alive(self):
        """A generation still works, and is right."""
        session = self.session(f"{self.id()} alive")
        self.assertEqual(generate(session, plain(), LENGTH), plain())
        self.assertTrue(self.client.end(session.name).was_active)


class SpecSplitClient(TargetTest):
    """A client that knows SpecSplit's messages only."""

    PROTO = SPECSPLIT_PROTO

    def test_a_generation_equals_talon_run(self):
        session = self.session()
        steps = 0
        hits = []
        while len(session.output) < LENGTH:
            answer = session.step(guesses(plain(), len(session.output)))
            hits.append(answer.cache_hit)
            self.assertEqual(answer.num_accepted, len(answer.accepted_token_ids))
            self.assertTrue(answer.has_correction)
            self.assertEqual(answer.session_id, session.name)
            steps += 1
        self.assertEqual(session.output[:LENGTH], plain())
        self.assertEqual(hits, [False] + [True] * (steps - 1))
        self.assertLess(steps, LENGTH / 3)  # drafts were accepted
        self.assertTrue(self.client.end(session.name).was_active)
        self.assertFalse(self.client.end(session.name).was_active)

    def test_without_a_session_everything_is_sent_each_time(self):
        context = list(PROMPT)
        while len(context) < len(PROMPT) + LENGTH:
            answer = self.client.verify(
                prompt_token_ids=context,
                draft_tree=[{"token_id": t} for t in (plain()[len(context) - len(PROMPT)], 1)],
            )
            context += list(answer.accepted_token_ids) + [answer.correction_token_id]
        self.assertEqual(context[len(PROMPT) :][:LENGTH], plain())

    def test_sampled_sessions_draw_their_own_tokens(self):
        def text(name):
            return generate(self.session(name, temperature=0.8), plain(), LENGTH)

        self.assertNotEqual(text("one"), text("two"))

    def test_an_empty_tree_answers_nothing(self):
        session = self.session()
        answer = session.step([])
        self.assertEqual((answer.num_accepted, answer.has_correction), (0, False))
        self.assertEqual(generate(session, plain(), LENGTH), plain())

    def test_ping(self):
        answer = self.client.ping()
        self.assertEqual((answer.status, answer.worker_type), ("SERVING", "target"))
        self.assertEqual(answer.model_name, "tiny")
        self.assertGreater(answer.vocab_size, 0)


class SpecSplitDrafts(CliTest):
    """The draft worker, for a client that knows SpecSplit's messages only."""

    @classmethod
    def setUpClass(cls):
        # The target itself as its own drafter: all drafts are right.
        cls.worker = Worker("draft", "--model", TINY)
        cls.client = Client(cls.worker.address, Messages(SPECSPLIT_PROTO))

    @classmethod
    def tearDownClass(cls):
        cls.client.channel.close()
        cls.worker.close()

    def test_a_chain_is_nested_and_right(self):
        for done in (0, 3, 1):  # forwards, and back again
            answer = self.client.draft(
                request_id="r",
                session_id="s",
                prompt_token_ids=PROMPT + plain()[:done],
                max_draft_len=4,
                num_beams=1,
                temperature=0,
            )
            chain = []
            level = answer.draft_tree
            while level:
                self.assertEqual(len(level), 1)
                self.assertLessEqual(level[0].log_prob, 0)
                chain.append(level[0].token_id)
                level = level[0].children
            self.assertEqual(chain, plain()[done : done + 4])

    def test_branches_become_fewer_with_depth(self):
        answer = self.client.draft(
            prompt_token_ids=PROMPT, max_draft_len=3, num_beams=3, temperature=1
        )
        self.assertEqual(len(answer.draft_tree), 3)
        for root in answer.draft_tree:
            self.assertLessEqual(len(root.children), 2)

    def test_bad_calls_are_refused(self):
        for fields, detail in [
            ({"prompt_token_ids": [-1]}, "TOKEN_OUT_OF_RANGE"),
            ({"prompt_token_ids": [1] * 8193}, "PROMPT_TOO_LONG"),
            ({"prompt_token_ids": [1], "temperature": -1}, "BAD_TEMPERATURE"),
            ({"prompt_token_ids": [1], "max_draft_len": 65}, "max_draft_len"),
        ]:
            self.assertEqual(
                code_of(lambda fields=fields: self.client.draft(**fields)),
                (grpc.StatusCode.INVALID_ARGUMENT, detail),
            )

    def test_ping(self):
        answer = self.client.ping("DraftService")
        self.assertEqual((answer.status, answer.worker_type), ("SERVING", "draft"))


class Faults(TargetTest):
    FLAGS = ("--max-sessions", "16", "--handler-threads", "8")

    def test_a_session_that_is_evicted_under_the_client(self):
        session = self.session()
        session.step(guesses(plain(), 0))
        self.client.end(session.name)
        self.assertEqual(
            code_of(lambda: session.step(guesses(plain(), len(session.output)))),
            (grpc.StatusCode.FAILED_PRECONDITION, "CACHE_EVICTED_DELTA_ONLY"),
        )
        session.step(guesses(plain(), len(session.output)), full=True)
        self.assertEqual(generate(session, plain(), LENGTH), plain())

    def test_a_request_sent_twice_is_answered_twice_and_done_once(self):
        session = self.session()
        while len(session.output) < LENGTH:
            fields = session.fields(guesses(plain(), len(session.output), length=2))
            fields["request_id"] = f"{self.id()} {len(session.output)}"
            answers = [self.client.verify(**fields) for _ in range(3)]
            for again in answers[1:]:
                self.assertEqual(again.accepted_token_ids, answers[0].accepted_token_ids)
                self.assertEqual(again.correction_token_id, answers[0].correction_token_id)
                self.assertEqual(again.prefix_length, answers[0].prefix_length)
            session.take(answers[0])
        self.assertEqual(session.output[:LENGTH], plain())

    def test_a_late_request_is_refused_and_changes_nothing(self):
        session = self.session()
        session.step(guesses(plain(), 0))
        late = session.fields(guesses(plain(), len(session.output)))
        session.step(guesses(plain(), len(session.output)))
        self.assertEqual(
            code_of(lambda: self.client.verify(**late)),
            (grpc.StatusCode.FAILED_PRECONDITION, "CACHE_EVICTED_DELTA_ONLY"),
        )
        self.assertEqual(generate(session, plain(), LENGTH), plain())

    def test_a_wrong_hash_is_a_desync(self):
        session = self.session()
        session.step(guesses(plain(), 0))
        fields = session.fields(guesses(plain(), len(session.output)))
        self.assertEqual(
            code_of(lambda: self.client.verify(prefix_hash=1, **fields)),
            (grpc.StatusCode.FAILED_PRECONDITION, "CACHE_EVICTED_DELTA_ONLY"),
        )
        self.assertEqual(generate(session, plain(), LENGTH), plain())

    def test_a_deadline_that_passes_costs_no_token(self):
        session = self.session()
        while len(session.output) < LENGTH:
            fields = session.fields(guesses(plain(), len(session.output)))
            fields["request_id"] = f"{self.id()} {len(session.output)}"
            try:
                answer = self.client.verify(timeout=0.001, **fields)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
                answer = self.client.verify(**fields)
            session.take(answer)
        self.assertEqual(session.output[:LENGTH], plain())

    def test_64_sessions_on_16_slots(self):
        prompts = [(i + 1, 300, 2 * i + 5, 41) for i in range(4)]
        evicted = []

        def begin(index):
            session = self.session(f"{self.id()} {index}", prompts[index % 4])
            session.step(guesses(plain(prompts[index % 4]), 0, length=2))
            return session

        def go_on(session):
            truth = plain(tuple(session.context[: session.prompt_length]))
            while len(session.output) < LENGTH:
                paths = guesses(truth, len(session.output), length=2)
                try:
                    session.step(paths)
                except grpc.RpcError as error:
                    self.assertEqual(error.code(), grpc.StatusCode.FAILED_PRECONDITION)
                    evicted.append(session)
                    session.step(paths, full=True)
            return session.output[:LENGTH] == truth

        for prompt in prompts:
            plain(prompt)
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            sessions = list(pool.map(begin, range(64)))
            self.assertTrue(all(pool.map(go_on, sessions)))
        self.assertTrue(evicted)  # there were too few slots indeed
        self.assert_alive()


class VanishingClients(TargetTest):
    # Room for little more than one generation, so that any block that is lost shows.
    FLAGS = ("--kv-tokens", "512", "--max-length", "256", "--enable-prefix-cache", "false")

    def test_killed_clients_leave_no_state(self):
        long_prompt = [1 + i % 90 for i in range(200)]
        for i in range(24):
            # A process of its own, killed while the worker computes.
            client = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "import sys, grpc\n"
                    "channel = grpc.insecure_channel(sys.argv[1])\n"
                    "call = channel.unary_unary('/specsplit.TargetService/VerifyDrafts')\n"
                    "call.future(bytes.fromhex(sys.argv[2]))\n"
                    "grpc.channel_ready_future(channel).result()\n"
                    "print('sent', flush=True)\n"
                    "import time; time.sleep(60)\n",
                    self.worker.address,
                    self.messages.VerifyRequest(
                        session_id=f"gone {i}" if i % 2 else "",
                        prompt_token_ids=long_prompt,
                        draft_tree=[{"token_id": 1}],
                    )
                    .SerializeToString()
                    .hex(),
                ],
                stdout=subprocess.PIPE,
            )
            self.assertEqual(client.stdout.readline(), b"sent\n")
            client.kill()
            client.wait()
            client.stdout.close()
        self.assert_alive()
        # And one that needs nearly the whole pool.
        answer = self.client.verify(prompt_token_ids=long_prompt, draft_tree=[{"token_id": 1}])
        self.assertTrue(answer.has_correction)


class HostileMessages(TargetTest):
    def refused(self, data):
        code, detail = code_of(lambda: self.client.raw("TargetService/VerifyDrafts", data))
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, detail)
        return detail

    def request(self, **fields):
        fields.setdefault("prompt_token_ids", PROMPT)
        return self.messages.VerifyRequest(**fields).SerializeToString()

    def tearDown(self):
        self.assert_alive()

    def test_trees_with_cycles(self):
        for parents in ([0], [1, 0], [-1, 2, 1], [-1, 5], [-7]):
            flat = {"token_ids": range(1, len(parents) + 1), "parents": parents}
            self.assertEqual(self.refused(self.request(flat_tree=flat)), "TREE_INVALID")

    def test_both_forms_at_once(self):
        data = self.request(
            draft_tree=[{"token_id": 1}], flat_tree={"token_ids": [1], "parents": [-1]}
        )
        self.assertEqual(self.refused(data), "TREE_INVALID")

    def test_a_million_nodes(self):
        self.assertEqual(self.refused(b"\x1a\x02\x08\x01" * 1_000_000), "TREE_TOO_LARGE")
        flat = {"token_ids": [1] * 1_000_000, "parents": [-1] * 1_000_000}
        self.assertEqual(self.refused(self.request(flat_tree=flat)), "TREE_TOO_LARGE")

    def test_deep_recursion(self):
        for depth in (65, 101, 5000):
            node = b"\x08\x01"
            for _ in range(depth - 1):
                node = b"\x08\x01\x1a" + varint(len(node)) + node
            data = self.request() + b"\x1a" + varint(len(node)) + node
            self.assertEqual(self.refused(data), "TREE_INVALID")

    def test_tokens_out_of_range(self):
        for token in (-1, 10**6, 2**31 - 1):
            self.assertEqual(
                self.refused(self.request(draft_tree=[{"token_id": token}])), "TOKEN_OUT_OF_RANGE"
            )
            self.assertEqual(
                self.refused(self.request(prompt_token_ids=[1, token])), "TOKEN_OUT_OF_RANGE"
            )

    def test_nan_negative_and_infinite_values(self):
        nan = float("nan")
        for tree in (
            [{"token_id": 1, "log_prob": nan}],
            [{"token_id": 1, "top_k_token_ids": [1], "top_k_probs": [nan]}],
            [{"token_id": 1, "top_k_token_ids": [1], "top_k_probs": [-0.5]}],
        ):
            self.assertEqual(self.refused(self.request(draft_tree=tree)), "TREE_INVALID")
        for temperature in (nan, -1, float("inf")):
            data = self.request(temperature=temperature)
            self.assertEqual(self.refused(data), "BAD_TEMPERATURE")

    def test_prompts_that_are_too_long(self):
        data = self.request(prompt_token_ids=[1] * 8193)
        self.assertEqual(self.refused(data), "PROMPT_TOO_LONG")

    def test_garbage(self):
        for data in (b"\xff" * 100, b"\x0b" * 50, b"\x12\xff\xff\xff\xff\x0f", b"\x00"):
            self.refused(data)

    def test_messages_above_the_limit(self):
        code, _ = code_of(
            lambda: self.client.raw("TargetService/VerifyDrafts", bytes(65 * 1024 * 1024))
        )
        self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED)


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


class StandardServices(TargetTest):
    """What every gRPC tool asks a server."""

    def health(self, service):
        request = b"\x0a" + varint(len(service)) + service if service else b""
        check = self.client.channel.unary_unary("/grpc.health.v1.Health/Check")
        return check(request, timeout=TIMEOUT_S)

    def test_health(self):
        self.assertEqual(self.health(b""), b"\x08\x01")  # SERVING
        self.assertEqual(self.health(b"specsplit.TargetService"), b"\x08\x01")
        code, _ = code_of(lambda: self.health(b"specsplit.DraftService"))
        self.assertEqual(code, grpc.StatusCode.NOT_FOUND)

    def reflect(self, request):
        method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        answers = self.client.channel.stream_stream(method)(iter([request]), timeout=TIMEOUT_S)
        return next(answers)

    def test_reflection(self):
        services = self.reflect(b"\x3a\x00")  # list_services
        self.assertIn(b"specsplit.TargetService", services)
        self.assertIn(b"grpc.health.v1.Health", services)
        name = b"specsplit.TargetService"
        file = self.reflect(b"\x22" + varint(len(name)) + name)  # file_containing_symbol
        self.assertIn(b"expected_prefix_length", file)

    def test_metrics(self):
        calls = {"target": "VerifyDrafts", "draft": "GenerateDrafts"}
        for kind, method in calls.items():
            with Worker(kind, "--metrics-port", "0") as worker:
                with Client(worker.address, self.messages) as client:
                    call = client.verify if kind == "target" else client.draft
                    call(prompt_token_ids=PROMPT, session_id="s")
                url = re.search(r"metrics at (\S+)", worker.output())[1]
                with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                    text = answer.read().decode()
                labels = f'{{method="{method}",code="ok"}}'
                self.assertIn(f"talon_remote_rpc_seconds_count{labels} 1\n", text)
                self.assertIn("\ntalon_remote_sessions ", text)

    def test_graceful_shutdown(self):
        with Worker("target") as worker:
            with Client(worker.address, self.messages) as client:
                session = Session(client, PROMPT, "s")
                session.step(guesses(plain(), 0))
                self.assertEqual(worker.stop(), 0)
                code, _ = code_of(lambda: session.step([]))
                self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)


class Security(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.messages = Messages(TALON_PROTO)
        cls.folder = tempfile.TemporaryDirectory()
        cls.files = pathlib.Path(cls.folder.name)
        cls.authority("ca")
        cls.authority("other-ca")
        for name in ("server", "client"):
            cls.certificate(name, "ca")
        cls.certificate("stranger", "other-ca")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def openssl(cls, *args):
        subprocess.run(["openssl", *args], cwd=cls.files, check=True, capture_output=True)

    @classmethod
    def authority(cls, name):
        cls.openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )

    @classmethod
    def certificate(cls, name, authority):
        cls.openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        (cls.files / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        cls.openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem"),
            *("-CAkey", f"{authority}.key", "-CAcreateserial", "-days", "2"),
            *("-extfile", "names", "-out", f"{name}.pem"),
        )

    def tls(self, name="server", authority=None):
        """The flags of a side's own certificate and of the authority that it trusts."""
        flags = []
        if name:
            flags += ["--tls-cert-file", self.files / f"{name}.pem"]
            flags += ["--tls-key-file", self.files / f"{name}.key"]
        if authority:
            flags += ["--tls-ca-file", self.files / f"{authority}.pem"]
        return flags

    def credentials(self, authority, name=None):
        read = lambda file: (self.files / file).read_bytes()  # noqa: E731
        if name is None:
            return grpc.ssl_channel_credentials(read(f"{authority}.pem"))
        return grpc.ssl_channel_credentials(
            read(f"{authority}.pem"), read(f"{name}.key"), read(f"{name}.pem")
        )

    def can_ping(self, worker, credentials):
        with Client(worker.address, self.messages, credentials) as client:
            try:
                return client.ping().status == "SERVING"
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
                return False

    def run_remote(self, worker, *flags):
        return talon(
            *("run", "--json", "--prompt-tokens", ",".join(map(str, PROMPT)), "--max-tokens", 8),
            *("--speculative-algorithm", "REMOTE", "--target-address", worker.address),
            *("--timeout-s", 5, *flags),
        )

    def test_tls(self):
        with Worker("target", *self.tls()) as worker:
            self.assertTrue(self.can_ping(worker, self.credentials("ca")))
            self.assertFalse(self.can_ping(worker, self.credentials("other-ca")))
            self.assertFalse(self.can_ping(worker, None))
            good = self.run_remote(worker, *self.tls(None, "ca"))
            self.assertEqual(good.returncode, 0, good.stderr)

    def test_mutual_tls(self):
        with Worker("target", *self.tls("server", "ca")) as worker:
            self.assertTrue(self.can_ping(worker, self.credentials("ca", "client")))
            self.assertFalse(self.can_ping(worker, self.credentials("ca", "stranger")))
            self.assertFalse(self.can_ping(worker, self.credentials("ca")))
            good = self.run_remote(worker, *self.tls("client", "ca"))
            self.assertEqual(good.returncode, 0, good.stderr)

    def test_certificates_that_are_wrong(self):
        worker = ("target-worker", "--port", "0")
        self.assert_refused(talon(*worker, "--tls-cert-file", "nowhere.pem"), "tls_key_file")
        self.assert_refused(
            talon(*worker, "--tls-cert-file", "nowhere.pem", "--tls-key-file", "nowhere.key"),
            "nowhere.pem",
        )
        text = self.file("text.pem", "no certificate")
        self.assert_refused(
            talon(*worker, "--tls-cert-file", text, "--tls-key-file", text),
            "text.pem",
            "CERTIFICATE",
        )
        # The key of another certificate.
        mixed = self.tls()[:3] + [self.files / "client.key"]
        self.assert_refused(talon(*worker, *mixed), "certificate and key")

    def test_the_settings_of_deploy_are_read(self):
        """All of them are known; what is missing here is their certificates."""
        for kind in ("target", "draft"):
            file = ROOT / "deploy" / f"{kind}.yaml"
            self.assert_refused(talon(f"{kind}-worker", "--config", file), "cert.pem")

    def test_plaintext_stays_on_this_machine(self):
        self.assert_refused(
            talon("target-worker", "--port", "0", "--host", "0.0.0.0"), "0.0.0.0", "--insecure"
        )
        self.assert_refused(
            talon("run", "--speculative-algorithm", "REMOTE", "--target-address", "192.0.2.1:1"),
            "192.0.2.1",
            "--insecure",
        )
        with Worker("target", "--insecure", host="0.0.0.0") as worker:
            with Client(f"127.0.0.1:{worker.port}", self.messages) as client:
                self.assertEqual(client.ping().status, "SERVING")

    def test_a_port_in_use(self):
        with Worker("target") as worker:
            self.assert_refused(talon("target-worker", "--port", worker.port), str(worker.port))


if __name__ == "__main__":
    main()
