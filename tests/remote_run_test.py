"""`talon run` with remote workers that fail, restart and stand behind a load balancer.

Usage: remote_run_test.py PATH_OF_TALON [unittest arguments]
"""

import concurrent.futures
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import DRAFT, ROOT, CliTest, defaults, main, program  # noqa: E402
from remote import TIMEOUT_S, Worker  # noqa: E402

PROMPT = "Once upon a time there was a"
LENGTH = 160
DRAFTER = ("--model", str(DRAFT))


class Run:
    """A `talon run` under way. It waits while a few writes of text are not read, so that it has not
    ended when something is done to it."""

    def __init__(self, *flags):
        command = [program(), "run", "--prompt", PROMPT, "--max-tokens", str(LENGTH)]
        command += ["--ignore-eos", *defaults(flags)]
        command += [str(flag) for flag in flags]
        self.out, out = socket.socketpair()
        self.out.settimeout(TIMEOUT_S)
        out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least there can be
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=out, stderr=self.errors)
        out.close()
        self.text = b""

    def read(self):
        """Some more of the text; none: there is no more."""
        more = self.out.recv(65536)
        self.text += more
        return more

    def wait_for_text(self, count):
        """Until there are `count` bytes of new text."""
        while len(self.text) < len(PROMPT) + count:
            if not self.read():
                raise AssertionError(self.finish())

    def wait_for_silence(self):
        """Until no text comes: a call is on its way to a worker that does not answer."""
        while select.select([self.out], [], [], 0.5)[0]:
            if not self.read():
                raise AssertionError(self.finish())

    def finish(self):
        """All of the text, and what was said beside it."""
        while self.read():
            pass
        self.out.close()
        self.process.wait(timeout=TIMEOUT_S)
        self.errors.seek(0)
        errors = self.errors.read().decode()
        self.errors.close()
        return self.text.decode(), errors


def remote(target=None, draft=None):
    flags = ["--speculative-algorithm", "REMOTE"]
    if target:
        flags += ["--target-address", target.address]
    if draft:
        flags += ["--draft-address", draft.address]
    return flags


@functools.cache
def plain_texts():
    """The texts of runs without workers, by sampling."""
    samplings = [(), ("--temperature", "0.8", "--seed", "7")]
    return {sampling: Run(*sampling).finish()[0] for sampling in samplings}


class RemoteTest(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.truth = plain_texts()

    def assert_same_text(self, text, sampling=()):
        self.assertEqual(text, self.truth[sampling])

    def events(self):
        """What a run with --telemetry told."""
        return json.loads((self.path / "telemetry.json").read_text())["events"]

    def assert_rebuilt(self):
        self.assertIn("verify_retry_full_context", [event["event"] for event in self.events()])

    @property
    def telemetry(self):
        return ("--telemetry", self.path / "telemetry.json")


class Plain(RemoteTest):
    def test_every_way_gives_the_same_text(self):
        with Worker("target") as target, Worker("draft", *DRAFTER) as draft:
            for workers in [
                remote(target, draft),
                remote(target),
                remote(None, draft),
                remote(target, draft) + ["--overlap", "false"],
                remote(target, draft) + ["--num-beams", "1"],
                remote(target, draft) + ["--draft-nodes", "8"],
                remote(target, draft) + ["--adaptive-length", "false"],
            ]:
                for sampling in self.truth:
                    text, errors = Run(*workers, *sampling).finish()
                    self.assertEqual(text, self.truth[sampling], f"{workers} {sampling} {errors}")

    def test_grammars_with_workers(self):
        (self.path / "schema.json").write_text(json.dumps({
            "type": "object", "required": ["name", "tags"], "additionalProperties": False,
            "properties": {"name": {"type": "string", "maxLength": 20},
                           "tags": {"type": "array", "items": {"enum": ["old", "new"]},
                                    "minItems": 1, "maxItems": 3}}}))
        schema = ("--json-schema", self.path / "schema.json", "--speculative-algorithm")
        with Worker("target") as target, Worker("draft", *DRAFTER) as draft:
            for sampling in self.truth:
                plain, _ = Run(*schema, "NONE", *sampling).finish()
                drafted, errors = Run(*schema, "REMOTE", "--draft-address", draft.address,
                                      *sampling).finish()
                self.assertEqual(drafted, plain, errors)
                answer = json.loads(drafted[len(PROMPT):])
                self.assertEqual(list(answer), ["name", "tags"])
                for workers in [remote(target), remote(target, draft)]:
                    text, errors = Run(*workers, *schema[:2], *sampling).finish()
                    self.assertEqual(text, plain, f"{workers} {sampling} {errors}")

    def test_draft_workers_of_every_kind(self):
        with Worker("target") as target:
            for kind in (["--ngram"], ["--suffix"], DRAFTER):
                with Worker("draft", *kind) as draft:
                    text, _ = Run(*remote(target, draft)).finish()
                    self.assert_same_text(text)

    def test_telemetry_in_every_format(self):
        with Worker("target") as target, Worker("draft", *DRAFTER) as draft:
            for name in ("t.json", "t.csv", "t.trace.json"):
                Run(*remote(target, draft), "--telemetry", self.path / name).finish()
        told = json.loads((self.path / "t.json").read_text())
        names = [event["event"] for event in told["events"]]
        self.assertEqual(names[0], "pipeline_started")
        self.assertIn("round_verified", names)
        self.assertIn("speculation_result", names)
        self.assertEqual(names[-1], "pipeline_completed")
        lines = (self.path / "t.csv").read_text().splitlines()
        self.assertTrue(lines[0].startswith("event,time_s,round_idx,"))
        self.assertGreater(len(lines), 5)
        trace = json.loads((self.path / "t.trace.json").read_text())
        tracks = {event["args"]["name"] for event in trace if event["name"] == "thread_name"}
        self.assertLessEqual({"target", "draft", "orchestrator"}, tracks)

    def test_serve_with_a_remote_drafter(self):
        from server import Server

        with Worker("draft", *DRAFTER) as draft:
            flags = ("--speculative-algorithm", "REMOTE", "--draft-address", draft.address)
            with Server(*flags) as server:
                parameters = {"prompt": PROMPT, "max_tokens": LENGTH, "temperature": 0}
                with_draft = server.complete(**parameters)["choices"][0]["text"]
                draft.kill()
                without = server.complete(**parameters)["choices"][0]["text"]
        local = self.run_json("--prompt", PROMPT, "--max-tokens", LENGTH)["text"]
        self.assertEqual(with_draft, local)
        self.assertEqual(without, local)


class Faults(RemoteTest):
    def test_the_target_is_killed_and_restarted(self):
        for sampling in self.truth:
            with Worker("target") as target, Worker("draft", *DRAFTER) as draft:
                flags = ["--timeout-s", TIMEOUT_S, *sampling, *self.telemetry]
                run = Run(*remote(target, draft), *flags)
                run.wait_for_text(40)
                target.kill()
                target.restart()
                text, _ = run.finish()
                self.assert_same_text(text, sampling)
                self.assert_rebuilt()
                self.assertEqual(run.process.returncode, 0)

    def test_the_target_stays_unavailable(self):
        with Worker("target") as target:
            run = Run(*remote(target), "--timeout-s", "10")
            run.wait_for_text(40)
            target.kill()
            text, errors = run.finish()
        truth = self.truth[()].rstrip("\n")
        self.assertTrue(truth.startswith(text.rstrip("\n")))
        self.assertGreaterEqual(len(text), len(PROMPT) + 40)
        self.assertIn("timeout", errors)

    def test_there_is_no_target(self):
        with Worker("target") as target:
            flags = [*remote(target), "--timeout-s", "0.5"]
        run = Run(*flags)
        _, errors = run.finish()
        told, error = errors.splitlines()
        self.assertRegex(told, r"\Atarget worker [^\n]*refused; trying for 0.5 s")
        self.assertRegex(error, r"\Atalon: target: [^\n]*refused\Z")
        self.assertEqual(run.process.returncode, 1)

    def test_the_addresses_are_swapped(self):
        with Worker("target") as target, Worker("draft", *DRAFTER) as draft:
            for flags in [remote(draft), remote(target, target), remote(None, target)]:
                run = Run(*flags)
                text, errors = run.finish()
                self.assertRegex(errors, r"\Atalon: [^\n]*: this is not a (target|draft) worker")
                self.assertEqual((text, run.process.returncode), ("", 2))

    def test_telemetry_that_cannot_be_written(self):
        for flag in ("--telemetry", "--trace"):
            run = Run("--target-address", "127.0.0.1:1", flag, self.path / "none" / "t.csv")
            text, errors = run.finish()
            self.assertRegex(errors, rf"\Atalon: {flag[2:]}: \S*t.csv: [^\n]*\n\Z")
            self.assertEqual((text, run.process.returncode), ("", 2))

    def test_the_draft_worker_is_killed(self):
        with Worker("target") as target, Worker("draft", *DRAFTER) as draft:
            run = Run(*remote(target, draft))
            run.wait_for_text(40)
            draft.kill()
            text, _ = run.finish()
            self.assert_same_text(text)
            self.assertEqual(run.process.returncode, 0)

    def test_the_draft_worker_restarts(self):
        with Worker("target") as target, Worker("draft", *DRAFTER) as draft:
            # The delay gives the drafter's connection time to come back.
            run = Run(*remote(target, draft), "--simulated-rtt-ms", "50", *self.telemetry)
            run.wait_for_text(40)
            draft.kill()
            run.wait_for_text(80)
            draft.restart()
            text, _ = run.finish()
            self.assert_same_text(text)
        events = self.events()
        errors = [e["time_s"] for e in events if e["event"] == "rpc_error"]
        self.assertTrue(errors)
        later = [
            event["fields"]["tree_node_count"]
            for event in events
            if event["event"] == "rpc_response_received"
            and event["fields"]["method"] == "GenerateDrafts"
            and event["time_s"] > errors[0]
        ]
        self.assertTrue(any(later), "no drafts came after the worker was back")

    def test_ctrl_c_cancels_the_call(self):
        """The worker is stopped, so that only the client can end the call."""
        with Worker("target") as target, Worker("draft", *DRAFTER) as draft:
            for stopped in (target, draft):
                flags = ["--timeout-s", 10 * TIMEOUT_S, "--adaptive-length", "false"]
                run = Run(*remote(target, draft), *flags)
                run.wait_for_text(20)
                stopped.process.send_signal(signal.SIGSTOP)
                if stopped is target:  # without drafts a run goes on
                    run.wait_for_silence()
                run.process.send_signal(signal.SIGINT)
                text, errors = run.finish()
                stopped.process.send_signal(signal.SIGCONT)
                self.assertEqual(run.process.returncode, 0, errors)
                self.assertIn("cancelled", errors)
                self.assertTrue(self.truth[()].startswith(text.rstrip("\n")))
                self.assertLess(len(text), len(self.truth[()]))

    def test_evicted_sessions_do_not_change_the_text(self):
        """More clients than sessions: each evicts another, and no text suffers."""
        with Worker("target", "--max-sessions", "1") as target:
            with Worker("draft", *DRAFTER) as draft:
                runs = [Run(*remote(target, draft)) for _ in range(4)]
                with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
                    for text, errors in pool.map(Run.finish, runs):
                        self.assertEqual(text, self.truth[()], errors)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Balancer:
    """HAProxy or nginx with the configuration of deploy/, before `workers`. Use as a context."""

    def __init__(self, name, workers):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, f"{name}.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(getattr(self, name)(workers))
        program_path = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        command = {
            "haproxy": [program_path, "-db", "-f", path],
            "nginx": [program_path, "-c", path, "-p", self.folder.name, "-e", "stderr"],
        }[name]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        self.log.seek(0)
        raise AssertionError(self.log.read().decode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=TIMEOUT_S)
        self.log.close()
        self.folder.cleanup()

    def haproxy(self, workers):
        text = (ROOT / "deploy" / "haproxy.cfg").read_text()
        text = text.replace("bind :50052", f"bind 127.0.0.1:{self.port}")
        head, _, tail = text.partition("    # Workers")
        options = " proto h2 check inter 200ms fall 1 rise 1"
        servers = [f"    server w{i} {w.address}{options}" for i, w in enumerate(workers)]
        return head + "\n".join(servers) + "\n"

    def nginx(self, workers):
        text = (ROOT / "deploy" / "nginx.conf").read_text()
        servers = "".join(f"server {w.address} max_fails=1;\n" for w in workers)
        begin = text.index("# Workers")
        end = text.index("}", begin)
        text = text[:begin] + servers + text[end:]
        text = text.replace("listen 50052 http2", f"listen 127.0.0.1:{self.port} http2")
        return f"daemon off;\npid {self.folder.name}/pid;\n" + text


def has_program(name):
    return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is not None


class LoadBalancers(RemoteTest):
    """Two workers behind one address; losing one costs a rebuild on the other."""

    def survives(self, name):
        port = ("--metrics-port", "0")
        with Worker("target", *port) as one, Worker("target", *port) as two:
            with Balancer(name, [one, two]) as balancer:
                run = Run(*remote(balancer), *self.telemetry)
                run.wait_for_text(40)
                (owner,) = (worker for worker in (one, two) if self.has_the_session(worker))
                owner.kill()
                text, errors = run.finish()
                self.assert_same_text(text)
                self.assert_rebuilt()
                self.assertEqual(run.process.returncode, 0, errors)

    def has_the_session(self, worker):
        url = worker.wait_for(r"metrics at (\S+)\n")[1]
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return b"\ntalon_remote_sessions 1\n" in answer.read()

    @unittest.skipUnless(has_program("haproxy"), "haproxy is not installed")
    def test_haproxy_where_it_is_installed(self):
        self.survives("haproxy")

    @unittest.skipUnless(has_program("nginx"), "nginx is not installed")
    def test_nginx_where_it_is_installed(self):
        self.survives("nginx")


if __name__ == "__main__":
    main()
