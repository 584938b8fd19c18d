"""Generation: the program's text, batches, trees, errors, interrupts."""

import json
import os
import re
import shutil
import signal
import threading

import pytest

import talon
from conftest import PROMPT, ROOT, run_program, small

SAMPLED = talon.SamplingParams(
    max_tokens=40, temperature=0.9, top_p=0.95, repetition_penalty=1.1, seed=7, logprobs=2
)


def program_args(params, *more):
    """The flags of what differs from the defaults."""
    default = talon.SamplingParams()
    args = ["--prompt", PROMPT, *more]
    for key, value in params.to_dict().items():
        if value != getattr(default, key):
            args += [f"--{key.replace('_', '-')}", value]
    return args


@pytest.mark.parametrize("params", [talon.SamplingParams(max_tokens=40), SAMPLED])
@pytest.mark.parametrize("method", ["none", "eagle3"])
def test_text_is_that_of_the_program(engine, eagle, params, method):
    report = run_program(*program_args(params, "--speculative-algorithm", method))
    (result,) = (engine if method == "none" else eagle).generate(PROMPT, params)
    assert result.tokens == report["tokens"]
    assert result.text == report["text"]
    assert result.finish_reason == report["finish_reason"]
    if params.seed >= 0:
        assert result.seed == report["seed"] == params.seed
    if params.logprobs >= 0:
        assert [p.token for p in result.log_probs] == result.tokens
        expected = [entry["logprob"] for entry in report["logprobs"]]
        assert [p.log_prob for p in result.log_probs] == pytest.approx(expected, abs=1e-6)
        assert all(len(p.top) == 2 and p.top[0][1] >= p.top[1][1] for p in result.log_probs)
    else:
        assert result.log_probs is None


def test_a_batch_gives_what_each_prompt_gives_alone(engine):
    prompts = [PROMPT, "The sea was", "Call me", "It was a dark night and", "Hello"]
    params = [SAMPLED.replace(seed=i, logprobs=-1) for i in range(len(prompts))]
    batch = engine.generate(prompts, params)
    for prompt, one, result in zip(prompts, params, batch):
        assert engine.generate([prompt], one)[0].tokens == result.tokens
    tokens = [engine.encode(prompt) for prompt in prompts]
    assert [r.text for r in engine.generate(tokens, params)] == [r.text for r in batch]
    assert engine.generate(tokens[0], params[0])[0].text == batch[0].text
    assert engine.generate([]) == []


def test_seeds_are_reported_and_repeat_the_text(engine):
    params = talon.SamplingParams(max_tokens=24, temperature=1.0)
    first, second = engine.generate([PROMPT, PROMPT], params)
    assert first.seed != second.seed and first.tokens != second.tokens
    again = engine.generate(PROMPT, params.replace(seed=first.seed))[0]
    assert again.tokens == first.tokens


def test_stop_strings_end_the_text(engine):
    whole = engine.generate(PROMPT, talon.SamplingParams(max_tokens=40))[0]
    stop = whole.text[10:14]
    result = engine.generate(PROMPT, talon.SamplingParams(max_tokens=40, stop=stop))[0]
    assert result.finish_reason == "stop"
    assert result.text == whole.text[: whole.text.index(stop)]


def test_trees_and_statistics_agree_with_the_tokens(eagle):
    (result,) = eagle.generate(PROMPT, talon.SamplingParams(max_tokens=50), trees=True)
    stats = result.stats
    assert len(result.trees) == stats.passes
    assert stats.emitted == len(result.tokens) == 50
    assert stats.tau == pytest.approx(50 / stats.passes) and stats.tau > 1.2
    assert sum(len(tree.tokens) - 1 for tree in result.trees) == stats.drafted
    assert stats.acceptance_by_depth[0] == stats.accepted_by_depth[0] / stats.tried_by_depth[0]
    assert sum(result.drafted) <= stats.accepted <= stats.drafted
    emitted = []
    for tree, after in zip(result.trees, result.trees[1:]):
        assert tree.path[0] == 0 and tree.parents[0] == -1
        emitted += [tree.tokens[node] for node in tree.path[1:]]
        emitted.append(after.tokens[0])  # the bonus is the next root
    assert result.tokens[: len(emitted)] == emitted


def test_a_request_may_decline_drafts(eagle):
    params = talon.SamplingParams(max_tokens=30)
    (plain,) = eagle.generate(PROMPT, params, speculate=False)
    (few,) = eagle.generate(PROMPT, params, max_draft_nodes=2, trees=True)
    assert plain.stats.drafted == 0 and plain.stats.tau == 1
    assert max(len(tree.tokens) for tree in few.trees) == 2
    assert plain.tokens == few.tokens
    for nodes in (-1, 257):
        with pytest.raises(ValueError, match=f"max_draft_nodes: {nodes}, must be 0 to 256"):
            eagle.generate(PROMPT, params, max_draft_nodes=nodes)


def test_a_request_chooses_its_drafter(engine):
    params = talon.SamplingParams(max_tokens=30)
    (plain,) = engine.generate(PROMPT, params)
    speculation = {"method": "ngram,suffix", "adaptive": False}
    with talon.Engine(config=small(speculative_config=speculation)) as merged:
        for name in ["suffix", "NGRAM", "ngram,suffix", "none"]:
            (own,) = merged.generate(PROMPT, params, drafter=name, max_draft_nodes=4)
            assert own.tokens == plain.tokens
            if name == "none":
                assert own.stats.drafted == 0
        with pytest.raises(ValueError, match="this engine has"):
            merged.generate(PROMPT, params, drafter="EAGLE3")


def test_a_request_chooses_its_partial_verification(engine):
    speculation = {
        "method": "NONE",
        "enable_specpv": True,
        "specpv_partial_threshold": 16,
        "specpv_n_sink_blocks": 1,
        "specpv_n_window_blocks": 1,
        "adaptive": False,
    }
    params = talon.SamplingParams(max_tokens=60)
    (plain,) = engine.generate(PROMPT, params)
    with talon.Engine(config=small(speculative_config=speculation)) as partial:
        (off,) = partial.generate(PROMPT, params, specpv={"mode": "off"})
        (exact,) = partial.generate(PROMPT, params, specpv={"mode": "exact", "budget_tokens": 0})
        (fast,) = partial.generate(PROMPT, params, specpv={"mode": "fast", "budget_tokens": 0})
        assert off.tokens == exact.tokens == plain.tokens
        assert off.stats.partial_passes == 0
        assert exact.stats.partial_passes > 0
        assert fast.stats.lossy and not exact.stats.lossy
        with pytest.raises(ValueError, match="mode"):
            partial.generate(PROMPT, params, specpv={"mode": "quick"})
        with pytest.raises(ValueError, match="unknown"):
            partial.generate(PROMPT, params, specpv={"blocks": 3})
    with pytest.raises(ValueError, match="enable_specpv"):
        engine.generate(PROMPT, params, specpv={"mode": "fast"})


def test_speculation_is_on_by_default(engine):
    params = talon.SamplingParams(max_tokens=16)
    with talon.Engine(config=small(speculative_config={"adaptive": False})) as default:
        assert default.info["drafter"] == "EAGLE3,SUFFIX"
        (drafted,) = default.generate(PROMPT, params)
    (plain,) = engine.generate(PROMPT, params)
    assert drafted.stats.drafted > 0 and drafted.tokens == plain.tokens


def test_the_models_own_sampling(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "models" / "tiny", folder)
    path = folder / "generation_config.json"
    suggested = {"temperature": 0.5, "top_k": 7, "top_p": 1}
    path.write_text(json.dumps({**json.loads(path.read_text()), **suggested}))
    with talon.Engine(folder, small(generation_config="none")) as ignoring:
        assert ignoring.default_params == talon.SamplingParams()
    with talon.Engine(folder, small(generation_config="auto")) as using:
        assert using.default_params == talon.SamplingParams(temperature=0.5, top_k=7)


def test_text_and_tokens(engine):
    assert engine.decode(engine.encode(PROMPT)).strip() == PROMPT
    assert engine.info["vocab_size"] > max(engine.encode(PROMPT))


def test_another_model_directory():
    directory = os.path.join(os.path.dirname(talon.__file__), "models", "tiny-draft")
    with talon.Engine(directory, small()) as draft:
        assert draft.info["model"] == directory
        assert len(draft.generate(PROMPT, talon.SamplingParams(max_tokens=5))[0].tokens) == 5


@pytest.mark.parametrize(
    "prompts, params, error, message",
    [
        ([[1, 10**6]], None, ValueError, "token 1000000 at 1, vocabulary"),
        ([[]], None, ValueError, "prompt: no tokens"),
        ([[1.5]], None, TypeError, "text or a list of token ids"),
        ([3, "a"], None, TypeError, "text or a list of token ids"),
        (5, None, TypeError, "prompts: 5, must be text, token ids"),
        (b"a", None, TypeError, "prompts: b'a', must be text, token ids"),
        ("a\ud800", None, ValueError, "prompt: .*position 1: surrogates not allowed"),
        ("a", talon.SamplingParams(temperature=-1), ValueError, "temperature: -1"),
        ("a", talon.SamplingParams(logit_bias="x"), ValueError, "logit_bias: 'x'"),
        ("a", talon.SamplingParams(max_tokens=10**6), MemoryError, "the pool has"),
        ("a", [talon.SamplingParams()] * 2, ValueError, "params: 2, there are 1"),
        ("a", ["greedy"], TypeError, "must be SamplingParams"),
    ],
)
def test_bad_requests(engine, prompts, params, error, message):
    with pytest.raises(error, match=message):
        engine.generate(prompts, params)
    assert engine.kv_report().used_blocks == 0


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: talon.Engine("/nowhere/at/all"), FileNotFoundError, "no such directory"),
        (lambda: talon.Engine(config=small(device="gpu")), ValueError, "device: 'gpu'"),
        (lambda: talon.Engine(config=small(weights="int3")), ValueError, "weights: 'int3'"),
        (
            lambda: talon.Engine(config=small(speculative_config={"method": "magic"})),
            ValueError,
            "magic",
        ),
        (lambda: talon.Engine(config={"device": "cpu"}), TypeError, "must be an EngineConfig"),
        (lambda: talon.Engine(drafter=print), TypeError, "must be an instance of talon.Drafter"),
    ],
)
def test_engines_that_cannot_be(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_closed_engine_says_so():
    engine = talon.Engine(config=small())
    stream = engine.stream(PROMPT, talon.SamplingParams(max_tokens=3000, ignore_eos=True))
    next(stream)
    engine.close()
    engine.close()
    assert stream.result().finish_reason == "cancelled"
    for use in (lambda: engine.generate(PROMPT), engine.kv_report, lambda: engine.encode("a")):
        with pytest.raises(RuntimeError, match="the engine is closed"):
            use()
    with pytest.raises(RuntimeError, match="the engine is closed"):
        engine.info


def test_keyboard_interrupt_ends_generate():
    class Impatient(talon.Drafter):
        """Sends one Ctrl-C while the engine works, whichever request is first to be long enough."""

        sent = False

        def propose(self, tokens, budget):
            if len(tokens) >= 20 and not self.sent:
                self.sent = True
                os.kill(os.getpid(), signal.SIGINT)

    config = small(speculative_config={"adaptive": False})
    with talon.Engine(config=config, drafter=Impatient()) as engine:
        params = talon.SamplingParams(max_tokens=3000, ignore_eos=True)
        with pytest.raises(KeyboardInterrupt):
            engine.generate([PROMPT, "The sea was"], params)
        after = engine.generate(PROMPT, talon.SamplingParams(max_tokens=4))[0]
        assert len(after.tokens) == 4


def test_python_runs_while_the_engine_computes(engine):
    results = []
    params = talon.SamplingParams(max_tokens=300, ignore_eos=True)
    worker = threading.Thread(target=lambda: results.extend(engine.generate(PROMPT, params)))
    worker.start()
    turns = 0
    while worker.is_alive():
        turns += 1
    worker.join()
    assert len(results[0].tokens) == 300
    assert turns > 1000


def test_several_threads_share_an_engine(engine):
    params = talon.SamplingParams(max_tokens=24)
    expected = engine.generate(PROMPT, params)[0].tokens
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(engine.generate(PROMPT, params)[0].tokens))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 6


def test_text_matches_its_grammar(engine):
    schema = {
        "type": "object",
        "properties": {"pages": {"type": "integer", "minimum": 1, "maximum": 99},
                       "kind": {"enum": ["play", "poem"]}},
        "required": ["pages", "kind"],
        "additionalProperties": False,
    }
    params = talon.SamplingParams(max_tokens=80, temperature=0.9, seed=5)
    asked = [params.replace(json_schema=schema), params.replace(json_schema=json.dumps(schema)),
             params.replace(regex="[0-9]{3}-[a-f]{2}"), params.replace(choice=["red", "green"]),
             params.replace(grammar='root ::= "<" [a-z]{2,4} ">"')]
    book, again, number, colour, tag = (r.text for r in engine.generate([PROMPT] * 5, asked))
    assert list(json.loads(book)) == ["pages", "kind"]
    assert book == again
    assert re.fullmatch("[0-9]{3}-[a-f]{2}", number)
    assert colour in ("red", "green")
    assert re.fullmatch("<[a-z]{2,4}>", tag)


def test_wrong_grammars(engine):
    for keys, error, why in [
        ({"json_schema": {"uniqueItems": True}}, ValueError, "uniqueItems"),
        ({"regex": "(?=a)"}, ValueError, "look-around"),
        ({"regex": "a", "choice": ["b"]}, ValueError, "only one"),
        ({"choice": []}, TypeError, "choice"),
        ({"grammar": 3}, TypeError, "grammar"),
    ]:
        with pytest.raises(error, match=why):
            engine.generate(PROMPT, talon.SamplingParams(**keys))
