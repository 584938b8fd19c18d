"""The configuration objects: one table, the same names and values everywhere."""

import ast
import copy
import inspect
import pathlib
import pickle

import pytest

import talon
from conftest import PROMPT, run_program
from talon import _talon

CLASSES = {
    talon.SpeculativeConfig: "speculative",
    talon.EngineConfig: "model",
    talon.SamplingParams: "sampling",
}


def changed(row):
    """A value of the setting's type that is not the default."""
    if row["type"] == "bool":
        return not row["default"]
    if row["type"] in ("int", "float"):
        return row["default"] + (3 if row["type"] == "int" else 0.3)
    if row["type"] == "str":
        return row["default"] + ' "x": #y\n- ü'
    return [1, 2] if row["type"] == "list[int]" else ["a: b", "c,d"]


def all_changed(kind):
    values = {row["key"]: changed(row) for row in _talon.settings(CLASSES[kind])}
    if kind is talon.EngineConfig:
        values["speculative_config"] = all_changed(talon.SpeculativeConfig)
    return kind(**values)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_key_round_trips(kind):
    config = all_changed(kind)
    assert kind.from_yaml(config.to_yaml()) == config
    assert kind.from_dict(config.to_dict()) == config
    assert eval(repr(config), vars(talon)) == config
    assert copy.deepcopy(config) == config == pickle.loads(pickle.dumps(config))
    default = kind()
    assert config != default
    assert kind.from_yaml(default.to_yaml()) == default
    assert repr(default) == f"{kind.__name__}()"


def test_the_keys_of_the_seed():
    config = talon.SpeculativeConfig(
        enable_speculative_decoding=True,
        method="eagle3",
        enable_eagle_target_tree=False,
        enable_specpv=True,
        specpv_block_size=16,
        specpv_n_sink_blocks=2,
        specpv_n_retrieval_blocks=256,
        specpv_n_window_blocks=8,
        specpv_n_spec_tokens_buf=128,
        specpv_partial_threshold=4096,
        specpv_full_refresh_interval=32,
    )
    assert config.enable_target_tree is False
    assert config.enable_eagle_target_tree is False  # by its other name
    assert config.specpv_n_retrieval_blocks == 256
    text = "speculative_config:\n  method: eagle3\n  specpv_n_retrieval_blocks: 7\nweights: int8\n"
    engine = talon.EngineConfig.from_yaml(text + "temperature: 0.5\n")
    assert (engine.weights, engine.speculative_config.specpv_n_retrieval_blocks) == ("int8", 7)
    assert talon.SamplingParams.from_yaml(text + "temperature: 0.5\n").temperature == 0.5


def test_the_program_reads_what_to_yaml_writes(tmp_path, engine):
    config = talon.EngineConfig(kv_tokens=2048, weights="f32")
    params = talon.SamplingParams(max_tokens=9, temperature=0.7, seed=11)
    path = tmp_path / "talon.yaml"
    path.write_text(config.to_yaml() + params.to_yaml(), encoding="utf-8")
    report = run_program("--config", path, "--prompt", PROMPT)
    assert len(report["tokens"]) == 9 and report["seed"] == 11


def test_floats_come_back_as_they_were():
    assert talon.SamplingParams(temperature=0.3).temperature == 0.3
    assert "temperature: 0.3\n" in talon.SamplingParams(temperature=0.3).to_yaml()


def test_python_forms_of_sampling_values():
    params = talon.SamplingParams(logit_bias={17: -2.5, 42: 1}, bad_words=["a", "b"], seed=None)
    assert params == talon.SamplingParams(logit_bias="17=-2.5,42=1", bad_words="a\nb", seed=-1)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: talon.SpeculativeConfig(metod="eagle3"), "'metod', did you mean 'method'"),
        (lambda: talon.EngineConfig(wieghts="int8"), "'wieghts', did you mean 'weights'"),
        (lambda: talon.SamplingParams(temprature=1), "did you mean 'temperature'"),
        (lambda: talon.SpeculativeConfig(method=3), "method: 3, must be text"),
        (lambda: talon.SpeculativeConfig(num_steps="3"), "num_steps: '3', must be a whole number"),
        (lambda: talon.SpeculativeConfig(num_steps=True), "num_steps: True"),
        (lambda: talon.SpeculativeConfig(enable_specpv=1), "enable_specpv: 1, must be true"),
        (lambda: talon.SpeculativeConfig(eagle3_capture_layers=["a"]), "a list of whole numbers"),
        (lambda: talon.EngineConfig(speculative_config=3), "must be a SpeculativeConfig"),
        (lambda: talon.EngineConfig(speculative_config={"metod": "x"}), "did you mean 'method'"),
        (lambda: setattr(talon.EngineConfig(), "devise", "cpu"), "did you mean 'device'"),
    ],
)
def test_wrong_keys_and_types(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_wrong_values():
    with pytest.raises(ValueError, match="num_steps: 4294967296, must be"):
        talon.SpeculativeConfig(num_steps=1 << 32)
    with pytest.raises(ValueError, match=r"yaml:2: unknown key 'devise', did you mean 'device'"):
        talon.EngineConfig.from_yaml("threads: 2\ndevise: cpu\n")
    with pytest.raises(ValueError, match="max_tokens: -1, must be 1 or more"):
        talon.SamplingParams(max_tokens=-1)
    with pytest.raises(ValueError, match="stop: .*surrogates not allowed"):
        talon.SamplingParams(stop="\ud800")
    with pytest.raises(ValueError, match="not valid YAML"):
        talon.EngineConfig.from_yaml("a: [")
    with pytest.raises(AttributeError, match="has no key 'nothing'"):
        talon.SamplingParams().nothing


def test_copies_are_independent():
    config = talon.EngineConfig()
    other = config.replace(threads=2)
    assert (config.threads, other.threads) == (0, 2)
    talon.SpeculativeConfig().eagle3_capture_layers.append(1)
    assert talon.SpeculativeConfig().eagle3_capture_layers == []


@pytest.mark.parametrize("kind", CLASSES)
def test_hints_and_help_know_every_key(kind):
    keys = {row["key"] for row in _talon.settings(CLASSES[kind])}
    if kind is talon.EngineConfig:
        keys.add("speculative_config")
    if kind is talon.SamplingParams:
        keys |= {"json_schema", "regex", "grammar", "choice"}
    assert set(inspect.signature(kind).parameters) == keys
    stub = pathlib.Path(talon.__file__).with_name("config.pyi")
    classes = {n.name: n for n in ast.parse(stub.read_text()).body if isinstance(n, ast.ClassDef)}
    body = classes[kind.__name__].body
    hinted = {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    assert keys <= hinted
    assert all(f"{row['key']}: " in kind.__doc__ for row in _talon.settings(CLASSES[kind]))
