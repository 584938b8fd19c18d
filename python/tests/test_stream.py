"""Streams: what they give, and that leaving one ends its request. And no leak of any of it."""

import asyncio
import gc

import pytest

import talon
from conftest import PROMPT, small

LONG = talon.SamplingParams(max_tokens=3000, ignore_eos=True)  # too long to end by itself


def check_idle(engine):
    report = engine.kv_report()
    assert (report.running, report.waiting, report.used_blocks) == (0, 0, 0)


def test_updates_make_up_the_result(eagle):
    params = talon.SamplingParams(max_tokens=60, temperature=0.8, seed=3, logprobs=0)
    stream = eagle.stream(PROMPT, params, trees=True)
    updates = list(stream)
    result = stream.result()
    assert "".join(update.text for update in updates) == result.text
    assert sum((update.tokens for update in updates), []) == result.tokens
    assert sum((update.drafted for update in updates), []) == result.drafted
    assert sum((update.log_probs for update in updates), []) == result.log_probs
    assert [update.tree for update in updates] == result.trees
    assert [update.finish_reason for update in updates[:-1]] == [None] * (len(updates) - 1)
    assert updates[-1].finish_reason == result.finish_reason == "length"
    assert eagle.generate(PROMPT, params, trees=True)[0].tokens == result.tokens


def test_leaving_the_loop_cancels(engine):
    stream = engine.stream(PROMPT, LONG)
    for update in stream:
        break
    result = stream.result()
    assert result.finish_reason == "cancelled"
    assert result.tokens[: len(update.tokens)] == update.tokens
    assert len(result.tokens) < LONG.max_tokens
    check_idle(engine)


def test_dropping_a_stream_cancels(engine):
    stream = engine.stream(PROMPT, LONG)
    next(stream)
    core = stream._core
    del stream
    assert core.wait()["finish_reason"] == "cancelled"
    check_idle(engine)


def test_a_context_ends_the_request(engine):
    with engine.stream(PROMPT, LONG) as stream:
        next(stream)
    assert stream.result().finish_reason == "cancelled"


def test_the_cache_of_a_request_under_way(engine):
    stream = engine.stream(PROMPT, LONG)
    next(stream)
    report = engine.kv_report()
    (sequence,) = report.sequences
    assert report.running == 1
    assert sequence.committed == sequence.tokens - 1 >= len(engine.encode(PROMPT))
    assert len(sequence.blocks) == -(-sequence.committed // report.block_size)
    assert report.used_blocks >= len(sequence.blocks)
    assert report.blocks == report.used_blocks + report.free_blocks
    stream.cancel()
    stream.result()
    check_idle(engine)


def test_async_for(eagle):
    params = talon.SamplingParams(max_tokens=40)
    expected = eagle.generate([PROMPT, "The sea was"], params)

    async def collect(prompt):
        tokens = []
        async for update in eagle.stream(prompt, params):
            tokens += update.tokens
        return tokens

    async def both():
        return await asyncio.gather(collect(PROMPT), collect("The sea was"))

    assert asyncio.run(both()) == [result.tokens for result in expected]


def test_leaving_an_async_loop_cancels(engine):
    async def leave():
        stream = engine.stream(PROMPT, LONG)
        async for _ in stream:
            break
        return await asyncio.to_thread(stream.result)

    assert asyncio.run(leave()).finish_reason == "cancelled"
    check_idle(engine)


def test_cancelling_the_task_cancels_the_request(engine):
    streams = []

    async def read(started):
        streams.append(engine.stream(PROMPT, LONG))
        async for _ in streams[0]:
            started.set()

    async def cancel():
        started = asyncio.Event()
        task = asyncio.create_task(read(started))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert streams[0].result().finish_reason == "cancelled"
    check_idle(engine)


def test_errors_of_a_stream_come_at_once(engine):
    with pytest.raises(ValueError, match="temperature"):
        engine.stream(PROMPT, talon.SamplingParams(temperature=-1))


def resident_bytes():
    """Memory of this process."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def test_a_thousand_generations_leak_nothing():
    class Faulty(talon.Drafter):
        """Now and then it fails."""

        def propose(self, tokens, budget):
            return talon.TokenTree(tokens[-1] if len(tokens) % 5 else 0)

    params = talon.SamplingParams(max_tokens=6, temperature=1.0, logprobs=1)
    prompts = [f"{PROMPT} {word}" for word in ("cat", "dog", "king", "ship", "tree")]

    def generations(engine, count):
        for _ in range(count // 10):
            for prompt in prompts:
                for _ in engine.stream(prompt, params):
                    break
            engine.generate(prompts, params, trees=True)

    config = small(
        kv_tokens=1024,
        speculative_config={"adaptive": False},
        log_level="off",
        threads=1,
        weights="int8",
    )
    with talon.Engine(config=config, drafter=Faulty()) as engine:
        with pytest.warns(talon.DrafterWarning):
            generations(engine, 300)
            before = resident_bytes()
            generations(engine, 1000)
            grown = resident_bytes() - before
        check_idle(engine)
        report = engine.kv_report()
        assert report.blocks == report.free_blocks
    assert grown < 4 << 20


def test_engines_come_and_go():
    def one():
        with talon.Engine(config=small(threads=1)) as engine:
            engine.generate(PROMPT, talon.SamplingParams(max_tokens=2))

    for _ in range(3):
        one()
    before = resident_bytes()
    for _ in range(8):
        one()
    assert resident_bytes() - before < 16 << 20  # a model is 28 MB
