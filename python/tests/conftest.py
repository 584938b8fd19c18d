"""What the tests share. PYTHONPATH has the built package, TALON_PROGRAM the talon program."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import talon

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "data" / "goldens" / "llama3"
PROMPT = "Once upon a time there was a"


def small(**keys):
    """A configuration whose engines start quickly and decode plainly and greedily."""
    defaults = {"max_sequences": 4, "kv_tokens": 4096, "generation_config": "none", "threads": 1}
    keys = {**defaults, **keys}
    keys.setdefault("speculative_config", {"method": "NONE"})
    return talon.EngineConfig(**keys)


def run_program(*args):
    """The object that `talon run --json` prints."""
    command = [os.environ["TALON_PROGRAM"], "run", "--json", "--generation-config", "none"]
    if not any("adaptive" in str(arg) for arg in args):
        command += ["--speculative-adaptive", "false"]
    command += map(str, args)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def run_python(*args, cwd=None, path=()):
    """The output of a Python program that finds the package, after `path`."""
    paths = [str(folder) for folder in path] + [os.environ.get("PYTHONPATH", "")]
    changes = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *map(str, args)]
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def engine():
    """Plain decoding."""
    with talon.Engine(config=small()) as plain:
        yield plain


@pytest.fixture(scope="session")
def eagle():
    """With the bundled EAGLE-3 head, every tree verified."""
    speculation = {"method": "eagle3", "adaptive": False}
    with talon.Engine(config=small(speculative_config=speculation)) as speculating:
        yield speculating


@pytest.fixture(scope="session")
def model():
    """The bundled model alone."""
    return talon.Model()
