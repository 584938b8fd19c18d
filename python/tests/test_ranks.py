"""An engine on several ranks: mpirun starts the script on each, and it goes on where rank 0 is."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import talon
from conftest import PROMPT, small
from talon import _talon

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
SPECULATION = {"method": "eagle3", "adaptive": False}
PARAMS = {"max_tokens": 40, "temperature": 0.7, "seed": 5}

with_mpi = pytest.mark.skipif(
    not _talon.has_mpi or shutil.which("mpirun") is None, reason="without Open MPI"
)
without_mpi = pytest.mark.skipif(_talon.has_mpi, reason="with Open MPI")

# What the scripts begin with: RANK, and the configuration for two ranks.
HEAD = f"""
import os, signal, sys
import talon
RANK = int(os.environ["OMPI_COMM_WORLD_RANK"])
def config(**keys):
    return talon.EngineConfig(
        tensor_parallel=2, max_sequences=4, kv_tokens=4096, generation_config="none", threads=1,
        **{{"speculative_config": {SPECULATION!r}, **keys}})
PARAMS = talon.SamplingParams(**{PARAMS!r})
"""


def on_two_ranks(script, *flags):
    """How a script ends on two ranks. Its output has both ranks'."""
    command = [*MPIRUN, *flags, "-n", "2", sys.executable, "-B", "-c", HEAD + script]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@with_mpi
def test_text_is_that_of_one_process():
    prompts = [PROMPT, "It was a dark night and the little fox"]
    with talon.Engine(config=small(speculative_config=SPECULATION)) as engine:
        expected = engine.generate(prompts, talon.SamplingParams(**PARAMS))
    script = f"""
import atexit, json
atexit.register(os.write, 2, b"rank %d ends\\n" % RANK)  # in one piece, as both write
with talon.Engine(config=config()) as engine:
    results = engine.generate({prompts!r}, PARAMS)
    print(json.dumps([[r.tokens, r.text, r.stats.tau] for r in results]))
print("closed")
"""
    done = on_two_ranks(script)
    assert done.returncode == 0, done.stderr
    answer, closed = done.stdout.splitlines()  # rank 0's alone
    assert json.loads(answer) == [[r.tokens, r.text, r.stats.tau] for r in expected]
    assert expected[0].stats.tau > 1
    assert closed == "closed"
    for rank in range(2):
        assert f"rank {rank} ends" in done.stderr  # with all that Python does at its end


@with_mpi
def test_engine_that_is_left_open_ends_with_the_script():
    done = on_two_ranks("engine = talon.Engine(config=config())\nprint(engine.info['drafter'])")
    assert (done.returncode, done.stdout) == (0, "EAGLE3\n"), done.stderr


@with_mpi
def test_errors_of_a_rank_end_all():
    bad_path = "talon.Engine('/nowhere' if RANK == {} else None, config())"
    raises = "with talon.Engine(config=config()) as engine:\n  raise KeyError('mine')"
    bad_head = "talon.Engine(config=config(speculative_config={'draft_model_path': '/nowhere'}))"
    for script, reason in (
        (bad_path.format(0), "FileNotFoundError"),
        (bad_path.format(1), "FileNotFoundError"),
        ("talon.Engine(config=config(weights='int8' if RANK == 1 else 'auto'))", "rank 1 has"),
        (raises, "'mine'"),
        (bad_head, "/nowhere"),
    ):
        done = on_two_ranks(script)
        assert done.returncode != 0, script
        assert reason in done.stderr, script


@with_mpi
def test_lost_rank_is_named(tmp_path):
    script = f"""
import pathlib
folder = pathlib.Path({str(tmp_path)!r})
(folder / str(RANK)).write_text(str(os.getpid()))
try:
    with talon.Engine(config=config(rank_timeout=2)) as engine:
        long = talon.SamplingParams(max_tokens=2000, ignore_eos=True)
        stream = engine.stream({PROMPT!r}, long)
        next(stream)
        os.kill(int((folder / LOST).read_text()), signal.SIGKILL)
        stream.result()
except RuntimeError as error:
    print(error)
"""
    for lost in range(2):
        done = on_two_ranks(f"LOST = '{lost}'\n{script}", "--enable-recovery")
        assert f"rank {lost} did not answer within 2 s" in done.stdout, done.stderr


@with_mpi
def test_ranks_are_had_once_and_by_engines():
    script = f"""
talon.Engine(config=config()).close()
for make in (talon.Engine, talon.Model):
    try:
        make(config=config())
    except RuntimeError as error:
        print(error)
"""
    done = on_two_ranks(script)
    assert done.returncode == 0, done.stderr
    again, model = done.stdout.splitlines()
    assert "MPI was started in this process before" in again
    assert "not for a model alone" in model


@with_mpi
def test_process_alone_is_told_of_mpirun():
    script = "import talon\ntalon.Engine(config=talon.EngineConfig(tensor_parallel=2))"
    command = [sys.executable, "-B", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "ValueError: tensor_parallel: 2 ranks, but one process was started" in done.stderr
    assert "mpirun -n 2" in done.stderr


@without_mpi
def test_ranks_are_refused_without_mpi():
    with pytest.raises(RuntimeError, match="2 ranks need MPI, and this is built without it"):
        talon.Engine(config=small(tensor_parallel=2))
