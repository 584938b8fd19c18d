"""Drafters written in Python, in the real engine: bad ones cost nothing but their drafts."""

import gc
import math
import warnings
import weakref

import pytest

import talon
from conftest import PROMPT, small

PARAMS = talon.SamplingParams(max_tokens=40, ignore_eos=True)
DEPTH = 4
SPECULATION = {"adaptive": False, "num_steps": DEPTH, "num_draft_tokens": DEPTH + 1}


def engine_with(drafter, **keys):
    speculation = {**SPECULATION, **keys.pop("speculative_config", {})}
    return talon.Engine(config=small(speculative_config=speculation, **keys), drafter=drafter)


class Replay(talon.Drafter):
    """Replays known answers: chains of the tokens that will come."""

    def __init__(self, answers):
        self.answers = answers

    def propose(self, tokens, budget):
        for answer in self.answers:
            if answer[: len(tokens)] == tokens:
                coming = answer[len(tokens) : len(tokens) + budget.max_depth]
                return talon.TokenTree.from_paths(tokens[-1], [coming])
        return None


@pytest.fixture(scope="module")
def known(engine):
    """(prompt's tokens, plain answer)."""
    prompt = engine.encode(PROMPT)
    return prompt, engine.generate([prompt], PARAMS)[0].tokens


def test_a_replay_reaches_the_largest_tau(known):
    prompt, answer = known
    with engine_with(Replay([prompt + answer])) as engine:
        (result,) = engine.generate([prompt], PARAMS)
        assert result.tokens == answer
        assert result.stats.tau == DEPTH + 1  # every draft accepted, and the bonus
        assert result.stats.passes == len(answer) // (DEPTH + 1)
        assert result.stats.acceptance_by_depth == [1.0] * DEPTH
        assert engine.info["drafter"] == "PYTHON"


def test_trees_are_put_in_order_and_cut_to_the_budget(known):
    prompt, answer = known

    class DepthFirst(Replay):
        """Nodes in another order than the engine's, and far too many."""

        def propose(self, tokens, budget):
            tree = talon.TokenTree(tokens[-1])
            node = 0
            for token in answer[len(tokens) - len(prompt) :][:10]:
                node = tree.add(node, token)
            tree.add(0, (tokens[-1] + 1) % 100, prob=0.1)
            return tree

    with engine_with(DepthFirst([])) as engine, warnings.catch_warnings():
        warnings.simplefilter("error")
        (result,) = engine.generate([prompt], PARAMS, trees=True)
        assert result.tokens == answer
        assert max(len(tree.tokens) for tree in result.trees) == DEPTH + 1
        assert result.stats.tau > DEPTH - 1


def test_wrong_guesses_are_only_rejected(known):
    prompt, answer = known

    class Wrong(talon.Drafter):
        """Valid trees of what will not come."""

        def propose(self, tokens, budget):
            coming = answer[len(tokens) - len(prompt)]
            guesses = [[(coming + 1) % 100], [(coming + 2) % 100]]
            return talon.TokenTree.from_paths(tokens[-1], guesses)

    with engine_with(Wrong()) as engine, warnings.catch_warnings():
        warnings.simplefilter("error")
        (result,) = engine.generate([prompt], PARAMS)
        assert result.tokens == answer
        assert result.stats.tau == 1 and result.stats.drafted > 0


def fail(*_):
    raise ZeroDivisionError("no idea")


FAULTS = {
    "raises": (fail, "ZeroDivisionError: no idea .*test_drafter.py"),
    "exits": (lambda tokens: exec("raise SystemExit(3)"), "SystemExit: 3"),
    "list": (lambda tokens: [tokens[-1]], "propose returned list, must be a TokenTree"),
    "number": (lambda tokens: 7, "propose returned int"),
    "cycle": (
        lambda tokens: talon.TokenTree(tokens=[tokens[-1], 5, 6], parents=[-1, 2, 1]),
        "node 1 has parent 2",
    ),
    "own parent": (
        lambda tokens: talon.TokenTree(tokens=[tokens[-1], 5], parents=[-1, 1]),
        "node 1 has parent 1",
    ),
    "two roots": (
        lambda tokens: talon.TokenTree(tokens=[tokens[-1], 5], parents=[-1, -1]),
        "node 1 has parent -1",
    ),
    "no nodes": (lambda tokens: talon.TokenTree(tokens=[], parents=[]), "tree: 0 nodes"),
    "wrong root": (lambda tokens: talon.TokenTree(tokens[-1] + 1), "must be the last token"),
    "past the vocabulary": (
        lambda tokens: talon.TokenTree.from_paths(tokens[-1], [[10**8]]),
        "token 100000000, vocabulary",
    ),
    "negative": (lambda tokens: talon.TokenTree.from_paths(tokens[-1], [[-5]]), "token -5"),
    "probability": (
        lambda tokens: talon.TokenTree([tokens[-1], 5], [-1, 0], [1, math.nan]),
        "node 1 has probability nan",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_drafter_costs_its_sequence_the_drafts(known, fault, capfd):
    prompt, answer = known
    wrong, message = FAULTS[fault]

    class Faulty(Replay):
        """Good for four steps, then faulty, for one of two sequences."""

        def propose(self, tokens, budget):
            tree = super().propose(tokens, budget)
            if tree is None and len(tokens) > len(other) + 3:
                return wrong(tokens)
            return tree

    other = prompt[:1] + prompt[:0:-1]  # has another answer
    with engine_with(Faulty([prompt + answer])) as engine:
        expected = engine.generate([other], PARAMS, speculate=False)[0].tokens
        with pytest.warns(talon.DrafterWarning, match=message) as caught:
            results = engine.generate([prompt, other], PARAMS)
        assert len(caught) == 1  # once for the sequence, not for each step
        assert [result.tokens for result in results] == [answer, expected]
        assert results[0].stats.tau == DEPTH + 1  # the other sequence keeps its drafter
        assert results[1].stats.tau == 1
        assert engine.kv_report().used_blocks == 0
        again = engine.generate([prompt], PARAMS)[0]
        assert again.stats.tau == DEPTH + 1
    assert capfd.readouterr().err.count("[fallback] drafter_failed") == 1


@pytest.mark.parametrize("method", ["begin", "observe", "end"])
def test_faults_of_the_optional_methods(known, method):
    prompt, answer = known
    faulty = type("Faulty", (Replay,), {method: fail})
    with engine_with(faulty([prompt + answer])) as engine:
        with pytest.warns(talon.DrafterWarning, match="no idea"):
            (result,) = engine.generate([prompt], PARAMS)
        assert result.tokens == answer
        assert result.stats.drafted == {"begin": 0, "observe": DEPTH, "end": 32}[method]
        assert engine.kv_report().used_blocks == 0


def test_streams_warn_as_well(known):
    prompt, answer = known
    faulty = type("Faulty", (talon.Drafter,), {"propose": fail})
    with engine_with(faulty()) as engine:
        with pytest.warns(talon.DrafterWarning, match="no idea"):
            tokens = sum((update.tokens for update in engine.stream(prompt, PARAMS)), [])
        assert tokens == answer


def test_a_drafter_is_told_what_happens(known):
    prompt, answer = known
    events = []

    class Listening(Replay):
        """Writes down its calls."""

        def begin(self, sequence, prompt):
            events.append(("begin", sequence, prompt))

        def propose(self, tokens, budget):
            assert budget.max_nodes <= DEPTH + 1 and budget.top_k >= 1
            events.append(("propose", budget.sequence, list(tokens)))
            return super().propose(tokens, budget)

        def observe(self, sequence, tokens):
            events.append(("observe", sequence, tokens))

        def end(self, sequence):
            events.append(("end", sequence, []))

    with engine_with(Listening([prompt + answer])) as engine:
        engine.generate([prompt], PARAMS)
    assert len({sequence for _, sequence, _ in events}) == 1
    assert events[0] == ("begin", events[0][1], prompt)
    assert [name for name, _, _ in events].count("end") == 1 and events[-1][0] == "end"
    observed = sum((tokens for name, _, tokens in events if name == "observe"), [])
    assert observed == answer
    proposals = [tokens for name, _, tokens in events if name == "propose"]
    assert proposals[0] == prompt and proposals[1] == prompt + answer[: DEPTH + 1]


def test_rewinds_of_partial_verification_are_told(engine):
    prompt = (engine.encode("The ship sailed on and on over the wide grey sea. ") * 40)[:400]
    lengths = {}
    broken = []

    class Tracking(talon.Drafter):
        """Keeps its own count of tokens, and proposes what came last."""

        def begin(self, sequence, prompt):
            lengths[sequence] = len(prompt)

        def propose(self, tokens, budget):
            if lengths[budget.sequence] != len(tokens):
                broken.append((lengths[budget.sequence], len(tokens)))
            return talon.TokenTree.from_paths(tokens[-1], [tokens[-4:]])

        def observe(self, sequence, tokens):
            lengths[sequence] += len(tokens)

        def rewind(self, sequence, length):
            lengths[sequence] = length

    specpv = {
        "enable_specpv": True,
        "specpv_partial_threshold": 64,
        "specpv_n_retrieval_blocks": 1,
        "specpv_n_sink_blocks": 1,
        "specpv_n_window_blocks": 2,
        "specpv_n_spec_tokens_buf": 32,
        "specpv_full_refresh_interval": 3,
    }
    (plain,) = engine.generate([prompt], PARAMS)
    with engine_with(Tracking(), speculative_config=specpv) as partial:
        (result,) = partial.generate([prompt], PARAMS)
    assert result.tokens == plain.tokens
    assert result.stats.partial_passes > 0
    assert broken == []


def test_what_cannot_be_a_drafter(known):
    with pytest.raises(TypeError, match="propose"):
        type("Empty", (talon.Drafter,), {})()
    with pytest.raises(ValueError, match="the configuration has method 'ngram' too"):
        engine_with(Replay([]), speculative_config={"method": "ngram"})


def test_speculation_switched_off_asks_no_drafter(known):
    prompt, answer = known
    off = {"enable_speculative_decoding": False}
    faulty = type("Faulty", (talon.Drafter,), {"propose": fail, "begin": fail})
    with engine_with(faulty(), speculative_config=off) as engine, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert engine.generate([prompt], PARAMS)[0].tokens == answer


def test_closing_lets_the_drafter_go():
    drafter = Replay([])
    gone = weakref.ref(drafter)
    engine = engine_with(drafter)
    del drafter
    gc.collect()
    assert gone() is not None
    engine.close()
    gc.collect()
    assert gone() is None
