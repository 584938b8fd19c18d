"""A model on several ranks: processes that mpirun starts share it, and the text is that of one."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

import server
from cli import CliTest, EAGLE3, DRAFT, ROOT, defaults, main, program, talon

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
ENDS_WITHIN_S = 10
PROMPT = "It was a dark night and the little fox"
DEVICE = ["--device", os.environ.get("TALON_TEST_DEVICE", "cpu")]
# Makes NCCL, and so Talon, take a GPU that ranks share for several.
AS_HOSTS = ["sh", "-c", 'NCCL_HOSTID=$OMPI_COMM_WORLD_RANK exec "$@"', "sh"]
PER_RANK = AS_HOSTS if "TALON_TEST_NCCL" in os.environ else []


def on_ranks(count, *args):
    command = [*MPIRUN, "-n", str(count), *PER_RANK, program(), *map(str, args)]
    return subprocess.run(command, capture_output=True, timeout=300, check=False)


def rank_processes(mpirun):
    """Process ids by rank."""
    ranks = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            variables = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if parent == mpirun:
            for variable in variables:
                if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                    ranks[int(variable.split(b"=")[1])] = int(folder.name)
    return ranks


def runs(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


class RankServer(server.Server):
    """`talon serve` on two ranks; `process` is mpirun."""

    launcher = [*MPIRUN, "-n", "2", *PER_RANK]

    def __init__(self, *flags):
        super().__init__("--tensor-parallel", 2, *flags)
        self.ranks = rank_processes(self.process.pid)

    def assert_all_end(self):
        deadline = time.monotonic() + ENDS_WITHIN_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None and not any(map(runs, self.ranks.values())):
                return
            time.sleep(0.05)
        raise AssertionError(f"still running:\n{self.output().decode()}")

    def close(self):
        for process in getattr(self, "ranks", {}).values():
            if runs(process):
                os.kill(process, signal.SIGKILL)
        super().close()


class RecoveringServer(RankServer):
    """The same under an mpirun that leaves the others alone when a rank ends."""

    launcher = [*MPIRUN, "--enable-recovery", "-n", "2", *PER_RANK]


class RankTarget(RankServer):
    """`talon target-worker` on two ranks."""

    command = "target-worker"

    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        super().__init__("--metrics-port", port)  # fails if both ranks listen there

    @property
    def flags(self):
        return ["--speculative-algorithm", "REMOTE", "--target-address", f"127.0.0.1:{self.port}"]


class SupervisedServer:
    """`talon serve` on two ranks by a command of deploy/, started again whenever it ends, as systemd
    and Kubernetes do. Use as a context."""

    def __init__(self, command):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        flags = ["--port", self.port, *defaults(())]
        loop = ["sh", "-c", 'while :; do "$@"; sleep 0.1; done', "sh", *command, *map(str, flags)]
        self.log = tempfile.TemporaryFile()
        variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        variables |= {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
        self.process = subprocess.Popen(
            loop,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
            env={**os.environ, **variables},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ranks = self.ranks()
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()
        while any(map(runs, ranks.values())):
            time.sleep(0.05)
        self.log.close()

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def ranks(self):
        shell = self.process.pid
        children = pathlib.Path(f"/proc/{shell}/task/{shell}/children").read_text()
        return rank_processes(int(children))

    def ranks_after(self, starts):
        """Ranks by number, once the server listens after so many starts."""
        pattern = rb"(?s)" + rb"listening on.*" * starts
        server.wait_for(pattern, self.output, self.process)
        return self.ranks()

    def answers(self):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps({"prompt": PROMPT, "max_tokens": 3}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=server.TIMEOUT_S) as response:
            return response.status == 200


class RanksTest(CliTest):
    def assert_same_text(self, *flags, prompt=PROMPT):
        args = ["run", "--json", *DEVICE, *defaults(flags), "--seed", "5", "-n", "40"]
        args += [*flags, prompt]
        alone = subprocess.run([program(), *map(str, args)], capture_output=True, check=False)
        shared = on_ranks(2, *args, "--tensor-parallel", 2)
        self.assertEqual(alone.returncode, 0, alone.stderr.decode())
        self.assertEqual(shared.returncode, 0, shared.stderr.decode())
        expected, got = json.loads(alone.stdout), json.loads(shared.stdout)
        for key in ("text", "tokens"):
            self.assertEqual(got[key], expected[key], flags)
        return got

    def test_text_is_that_of_one_process(self):
        self.assert_same_text("--speculative-algorithm", "NONE")
        self.assert_same_text("--speculative-algorithm", "SUFFIX", "--weights", "int8")
        self.assert_same_text("--weights", "int4", "--temperature", "0.9", "--kv-dtype", "f32")

    def test_drafters_with_models_run_on_rank_0(self):
        self.assert_same_text("--speculative-draft-model-path", EAGLE3, "--temperature", "0.7")
        self.assert_same_text(
            "--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", DRAFT
        )

    def test_partial_views_are_those_of_one_process(self):
        view = ("--enable-specpv", "--specpv-partial-threshold", 100, "--ignore-eos")
        view += ("--specpv-n-retrieval-blocks", 2, "--specpv-n-window-blocks", 2)
        prompt = " ".join(f"{PROMPT} {i}." for i in range(24))
        for mode in ("exact", "fast"):
            flags = (*view, "--specpv-mode", mode, "--speculative-algorithm", "SUFFIX")
            flags += ("--speculative-adaptive", "false")  # it decides by time what is partial
            result = self.assert_same_text(*flags, prompt=prompt)
            self.assertGreater(result["stats"]["partial_passes"], 5, mode)

    def test_bench_says_what_ranks_exchange_and_keep(self):
        file = self.path / "ranks.json"
        flags = ("--shape", "tiny", "--rows", "1,3", "--repeats", 1, "--tokens", 4, "--json", file)
        result = on_ranks(2, "bench", "ranks", "--tensor-parallel", 2, *flags)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        figures = json.loads(file.read_text())
        layers, hidden, vocabulary = 16, 256, 8192
        for rows, point in zip((1, 3), figures["passes"]):
            self.assertEqual(point["messages"], 2 * layers + 1)
            self.assertEqual(point["bytes"], 4 * rows * (2 * layers * hidden + vocabulary / 2))
            self.assertLess(0, point["exchange_milliseconds"])
        ranks = figures["allocated"]
        self.assertEqual(len(ranks), 2)
        self.assertEqual(ranks[0]["kv_bytes"], ranks[1]["kv_bytes"])

    def test_what_ranks_cannot_do_is_refused(self):
        alone = subprocess.run(
            [program(), "run", "--tensor-parallel", "2", PROMPT], capture_output=True, check=False
        )
        self.assert_refused(alone, "tensor_parallel", "mpirun -n 2")
        for flags, reason in (
            (("--tensor-parallel", 4), "4 ranks"),
            (("--tensor-parallel", 3), "must be 1, 2, 4 or 8"),
            (("--tensor-parallel", 2, "--kv-offload", "true"), "kv_offload"),
        ):
            result = on_ranks(flags[1], "run", "-n", 2, *flags, PROMPT)
            self.assertNotEqual(result.returncode, 0, flags)
            self.assertIn(reason, result.stderr.decode(), flags)
        self.assert_refused(
            talon("bench", "gpu", "--device", "cpu", "--tensor-parallel", 2), "times one device"
        )

    def test_ranks_started_differently_do_not_meet(self):
        different = [["--weights", "int8"]]
        if "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text():
            different.append(["--disable-amx"])  # as on a machine without it
        for flags in different:
            command = [*MPIRUN, "-n", "1", program(), "run", "--tensor-parallel", "2", PROMPT]
            command += [":", "-n", "1", program(), "run", "--tensor-parallel", "2", PROMPT, *flags]
            result = subprocess.run(command, capture_output=True, timeout=300, check=False)
            self.assertNotEqual(result.returncode, 0, flags)
            self.assertIn("rank 1 has another model", result.stderr.decode())

    # ---- The target worker ----

    def need_workers(self):
        refusal = talon("target-worker", "--port", 0, "--model", self.path)
        if b"built without gRPC" in refusal.stderr:
            self.skipTest("no remote workers")

    def remote_run(self, target):
        args = ("--max-tokens", 60, "--temperature", 0.8, "--seed", 7, "--prompt", PROMPT)
        return talon("run", *(target.flags if target else ()), *args)

    def test_target_worker_answers_as_one_process_and_ends_in_order(self):
        self.need_workers()
        expected = self.remote_run(None)
        with RankTarget() as target:
            got = self.remote_run(target)
            self.assertEqual(got.stdout, expected.stdout, got.stderr.decode())
            os.kill(target.ranks[0], signal.SIGTERM)
            target.assert_all_end()
            self.assertEqual(target.process.returncode, 0, target.output().decode())

    def test_killed_rank_ends_the_target_worker(self):
        self.need_workers()
        with RankTarget() as target:
            os.kill(target.ranks[1], signal.SIGKILL)
            target.assert_all_end()
            self.assertNotEqual(target.process.returncode, 0)
            self.assertIn("rank 1", target.output().decode())

    # ---- The server ----

    def test_server_answers_as_one_process_and_ends_in_order(self):
        request = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "logprobs": 1}
        with server.Server() as alone:
            expected = alone.complete(**request)["choices"][0]
        with RankServer() as shared:
            self.assertEqual(sorted(shared.ranks), [0, 1])
            got = shared.complete(**request)["choices"][0]
            self.assertEqual(got["text"], expected["text"])
            self.assertEqual(got["logprobs"], expected["logprobs"])
            os.kill(shared.ranks[0], signal.SIGTERM)
            shared.assert_all_end()
            self.assertEqual(shared.process.returncode, 0, shared.output().decode())

    def test_killed_rank_ends_the_others_and_is_named(self):
        for rank in (0, 1):
            for busy in (False, True):
                with self.subTest(rank=rank, busy=busy), RankServer() as shared:
                    if busy:
                        connection, response = shared.open_stream(
                            "/v1/completions", prompt=PROMPT, max_tokens=2000, ignore_eos=True
                        )
                        response.readline()
                    os.kill(shared.ranks[rank], signal.SIGKILL)
                    shared.assert_all_end()
                    self.assertNotEqual(shared.process.returncode, 0)
                    self.assertIn(f"rank {rank}", shared.output().decode())
                    if busy:
                        connection.close()

    def test_request_ends_with_an_error_that_names_the_lost_rank(self):
        # A busy machine may need two seconds.
        with RecoveringServer(*DEVICE, "--rank-timeout", 5) as shared:
            connection, response = shared.open_stream(
                "/v1/completions", prompt=PROMPT, max_tokens=2000, ignore_eos=True
            )
            self.assertNotIn(b"error", response.readline())
            os.kill(shared.ranks[1], signal.SIGKILL)
            self.assertIn(b"rank 1 did not answer within", response.read())
            connection.close()
            shared.assert_all_end()
            if PER_RANK:
                self.assertNotIn("through host memory", shared.output().decode())

    def test_idle_ranks_notice_that_another_is_gone(self):
        for rank in (0, 1):
            with self.subTest(rank=rank), RecoveringServer("--rank-timeout", 2) as shared:
                os.kill(shared.ranks[rank], signal.SIGKILL)
                shared.assert_all_end()
                self.assertIn(f"rank {rank} did not answer", shared.output().decode())

    # ---- What deploy/ has for supervisors ----

    def assert_brought_back(self, command):
        with SupervisedServer(command) as supervised:
            ranks = supervised.ranks_after(1)
            self.assertEqual(sorted(ranks), [0, 1], supervised.output().decode())
            self.assertTrue(supervised.answers())
            os.kill(ranks[1], signal.SIGKILL)
            again = supervised.ranks_after(2)
            self.assertEqual(sorted(again), [0, 1])
            self.assertFalse({*ranks.values()} & {*again.values()})
            self.assertTrue(supervised.answers())

    def test_systemd_brings_lost_ranks_back(self):
        text = (ROOT / "deploy/talon-ranks.conf").read_text()
        commands = re.findall(r"(?m)^ExecStart=(.*)", text)
        self.assertEqual(commands[0], "")  # systemd forgets the unit's own
        self.assertIn("Restart=always", text)
        words = [word for word in commands[1].split() if word != "$TALON_FLAGS"]
        self.assert_brought_back([program() if w.endswith("/talon") else w for w in words])

    def test_kubernetes_brings_lost_ranks_back(self):
        text = (ROOT / "deploy/kubernetes-ranks.yaml").read_text()
        (command,) = re.findall(r"(?m)^ +command:\n((?: +- .*\n)+)", text)
        words = [line.split("- ", 1)[1].strip('"') for line in command.splitlines()]
        kept = [w for w in words if not w.startswith(("--model=", "--host=", "--port="))]
        self.assertEqual(len(kept), len(words) - 3)
        self.assert_brought_back([program() if word == "talon" else word for word in kept])


if __name__ == "__main__":
    main()
