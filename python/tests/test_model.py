"""The research level: passes over tokens, trees, verification."""

import json
import pickle
import struct

import numpy
import pytest

import talon
from conftest import GOLDEN, PROMPT

EXACT = talon.EngineConfig(weights="f32", kv_dtype="f32")


def read_golden(name):
    """A tensor of the reference file."""
    raw = (GOLDEN / "golden.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    entry = json.loads(raw[8 : 8 + length])[name]
    kind = {"F32": numpy.float32, "I32": numpy.int32, "I64": numpy.int64}[entry["dtype"]]
    begin, end = entry["data_offsets"]
    data = raw[8 + length + begin : 8 + length + end]
    return numpy.frombuffer(data, kind).reshape(entry["shape"])


def test_logits_are_those_of_the_reference():
    model = talon.Model(GOLDEN, EXACT)
    tokens = read_golden("short.input_ids").ravel()
    out = model.forward(tokens)
    expected = read_golden("short.logits").reshape(len(tokens), -1)
    assert out.logits.shape == expected.shape == (len(tokens), model.info["vocab_size"])
    assert out.logits.dtype == numpy.float32
    assert out.features is None
    assert numpy.abs(out.logits - expected).max() < 2e-3 * numpy.abs(expected).max()


def test_features_are_the_inputs_of_layers(model):
    tokens = model.encode(PROMPT)
    layers, hidden = model.info["num_layers"], model.info["hidden_size"]
    out = model.forward(tokens, capture_layers=[0, 2, layers])
    assert out.features.shape == (len(tokens), 3, hidden)
    assert out.hidden.shape == (len(tokens), hidden)
    again = model.forward(tokens[:1] * 3, capture_layers=[0])
    assert (again.features[0] == again.features[2]).all()  # the embedding knows no position
    assert (again.features[0, 0] == out.features[0, 0]).all()
    # The final norm divides the last layer's output by its root mean square, and scales by channel.
    last = out.features[:, 2]
    normed = last / numpy.sqrt((last**2).mean(axis=1, keepdims=True))
    ratio = out.hidden / normed
    assert numpy.abs(ratio - ratio.mean(axis=0)).max() < 1e-2 * numpy.abs(ratio).max()


def test_arrays_own_the_buffers():
    model = talon.Model(GOLDEN, EXACT)
    out = model.forward([1, 2, 3])
    before = out.logits.copy()
    assert not out.logits.flags.owndata and out.logits.base is not None  # a capsule does
    assert out.logits.flags.c_contiguous and out.logits.flags.writeable
    model.forward([4, 5, 6])
    del model
    assert (out.logits == before).all()


def test_the_engine_takes_the_model_s_choices(model, engine):
    prompt = engine.encode(PROMPT)
    answer = engine.generate([prompt], talon.SamplingParams(max_tokens=12))[0].tokens
    logits = model.forward(prompt + answer).logits
    assert logits[len(prompt) - 1 : -1].argmax(axis=1).tolist() == answer


@pytest.mark.parametrize(
    "params",
    [
        talon.SamplingParams(max_tokens=6),
        talon.SamplingParams(max_tokens=6, temperature=1.0, top_p=0.9, seed=5),
    ],
)
def test_verify_accepts_what_the_engine_would_emit(model, engine, params):
    prompt = engine.encode(PROMPT)
    a, b, c, d, e, _ = engine.generate([prompt], params)[0].tokens
    wrong = (c + 1) % 50
    tree = talon.TokenTree.from_paths(prompt[-1], [[(a + 1) % 50], [a, b, wrong], [a, b, c, d]])
    checked = talon.verify(model, prompt, tree, params)
    assert checked.accepted == [a, b, c, d] and checked.bonus == e
    assert [tree.tokens[node] for node in checked.path] == [prompt[-1], a, b, c, d]
    assert checked.logits.shape == (len(tree), model.info["vocab_size"])
    cut = talon.TokenTree.from_paths(prompt[-1], [[a, b, wrong]])
    checked = talon.verify(model, prompt, cut, params)
    assert (checked.accepted, checked.bonus) == ([a, b], c)
    length = len(prompt)
    after = talon.verify(model, prompt + [a, b], talon.TokenTree(b), params, prompt_length=length)
    assert (after.path, after.accepted, after.bonus) == ([0], [], c)


def test_tree_rows_are_those_of_the_path(model):
    tokens = model.encode(PROMPT)
    tree = talon.TokenTree.from_paths(tokens[-1], [[5, 6], [7]])
    rows = talon.verify(model, tokens, tree).logits
    assert (rows[1] == model.forward(tokens + [5]).logits[-1]).all()  # bit for bit
    assert (rows[2] == model.forward(tokens + [7]).logits[-1]).all()
    assert (rows[3] == model.forward(tokens + [5, 6]).logits[-1]).all()


@pytest.mark.parametrize(
    "tokens, layers, message",
    [
        ([], (), "tokens: none"),
        ([1, 10**8], (), "100000000"),
        ([-1], (), "-1"),
        ([1] * 100_000, (), "the context holds"),
        ([1], [99], "99"),
    ],
)
def test_bad_passes(model, tokens, layers, message):
    with pytest.raises(ValueError, match=message):
        model.forward(tokens, layers)


def test_bad_trees(model):
    tokens = model.encode(PROMPT)
    root = tokens[-1]
    for tree, message in [
        (talon.TokenTree(root + 1), "must be the last token"),
        (talon.TokenTree.from_paths(root, [[10**8]]), "vocabulary"),
    ]:
        with pytest.raises(ValueError, match=message):
            talon.verify(model, tokens, tree)
    with pytest.raises(ValueError, match="tokens: none"):
        talon.verify(model, [], talon.TokenTree(0))
    with pytest.raises(FileNotFoundError):
        talon.Model("/nowhere/at/all")


def test_token_trees():
    tree = talon.TokenTree(7)
    left = tree.add(0, 1, prob=0.5)
    assert tree.add(left, 2) == 2
    right = tree.add(parent=0, token=3, prob=0.25)
    assert (tree.tokens, tree.parents) == ([7, 1, 2, 3], [-1, 0, 1, 0])
    assert tree.probs == [1, 0.5, 1, 0.25]
    assert tree.depths() == [0, 1, 2, 1] and len(tree) == 4
    assert (tree.find_child(0, 3), tree.find_child(left, 3)) == (right, -1)
    ordered = tree.canonical()
    assert (ordered.tokens, ordered.parents) == ([7, 1, 3, 2], [-1, 0, 0, 1])
    assert sorted(ordered.leaf_paths()) == [[0, 1, 3], [0, 2, -1]]
    ordered.validate(vocab_size=8, max_nodes=4, max_depth=2)
    assert talon.TokenTree.from_paths(7, [[1, 2], [3]]).tokens == ordered.tokens
    assert talon.TokenTree(tree.tokens, tree.parents, tree.probs) == tree != ordered
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert repr(ordered) == "TokenTree(tokens=[7, 1, 3, 2], parents=[-1, 0, 0, 1])"


@pytest.mark.parametrize(
    "use, message",
    [
        (lambda: talon.TokenTree(1).add(1, 2), "parent 1, it has 1 nodes"),
        (lambda: talon.TokenTree([1, 2], [-1]), "2 tokens but 1 parents"),
        (lambda: talon.TokenTree([], []), "0 nodes"),
        (lambda: talon.TokenTree([1, 2], [0, 5]), "node 0 has parent 0"),
        (lambda: talon.TokenTree([1, 2], [-1, 1]), "node 1 has parent 1"),
        (lambda: talon.TokenTree([1, 2], [-1, 5]), "node 1 has parent 5"),
        (lambda: talon.TokenTree([1, 9], [-1, 0]).validate(vocab_size=9), "token 9, vocabulary 9"),
        (lambda: talon.TokenTree([1, 9], [-1, 0]).validate(max_nodes=1), "2 nodes, limit 1"),
    ],
)
def test_bad_token_trees(use, message):
    with pytest.raises(ValueError, match=message):
        use()
