"""fork(): a child has none of the engine's threads, and is told so instead of waiting for them."""

import os
import signal
import time

import pytest

import talon
from conftest import PROMPT, small

PARAMS = talon.SamplingParams(max_tokens=8)
PATIENCE = 300  # seconds until a child counts as hung


def run_in_child(body):
    """What `body` returns in a forked child, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = body()
        except BaseException as error:  # it is the parent that judges
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, str(answer).encode())
        os._exit(0)
    os.close(writer)
    end = time.monotonic() + PATIENCE
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read().decode()


def assert_told(answer):
    assert answer.startswith("RuntimeError: ")
    assert "fork()" in answer and "spawn" in answer


def test_a_child_is_told_that_the_engine_is_not_there(engine):
    before = engine.generate(PROMPT, PARAMS)[0].tokens
    stream = engine.stream(PROMPT, PARAMS)
    for call in (
        lambda: engine.generate(PROMPT, PARAMS),
        lambda: engine.stream(PROMPT, PARAMS),
        lambda: next(iter(stream)),
        lambda: engine.kv_report(),
        lambda: engine.encode("text"),
        lambda: engine.info,
    ):
        assert_told(run_in_child(call))
    assert engine.generate(PROMPT, PARAMS)[0].tokens == before


def test_a_child_is_told_that_the_model_is_not_there():
    model = talon.Model()
    assert_told(run_in_child(lambda: model.forward([1, 2, 3])))


def test_a_child_may_close_its_copy_and_make_an_engine_of_its_own(engine):
    def body():
        engine.close()
        with talon.Engine(config=small()) as own:
            return own.generate(PROMPT, PARAMS)[0].tokens

    expected = engine.generate(PROMPT, PARAMS)[0].tokens
    assert run_in_child(body) == str(expected)
    assert engine.generate(PROMPT, PARAMS)[0].tokens == expected
