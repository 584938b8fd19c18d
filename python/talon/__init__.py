"""Talon: speculative decoding from Python.

    import talon

    config = talon.EngineConfig(
        speculative_config=talon.SpeculativeConfig(method="eagle3", enable_specpv=True)
    )
    with talon.Engine(config=config) as engine:  # no model_dir: the bundled model
        for result in engine.generate(["Once upon a time", "The sea was"]):
            print(result.text, result.stats.tau)
        for update in engine.stream("It was a dark night"):
            print(update.text, end="")

The settings are those of the YAML file of `talon --config`, under the same names. For research
there are `Model` (logits and features of a pass), `TokenTree` and `verify`, and `Drafter`, to be
subclassed: the engine runs drafters written in Python. Text never depends on the drafter, only
speed does.

Errors: ValueError (a setting, a prompt), TypeError (an unknown key, a wrong type),
FileNotFoundError, MemoryError (the KV pool is too small), RuntimeError.
"""

from talon._talon import Budget, TokenTree, devices, version
from talon.config import EngineConfig, SamplingParams, SpeculativeConfig
from talon.drafter import Drafter, DrafterWarning
from talon.engine import Engine, Stream
from talon.model import Forward, Model, Verification, verify
from talon.results import (
    KvReport,
    KvSequence,
    LogProb,
    Result,
    Stats,
    Update,
    VerifiedTree,
)

__version__: str = version

__all__ = [
    "Budget",
    "Drafter",
    "DrafterWarning",
    "Engine",
    "EngineConfig",
    "Forward",
    "KvReport",
    "KvSequence",
    "LogProb",
    "Model",
    "Result",
    "SamplingParams",
    "SpeculativeConfig",
    "Stats",
    "Stream",
    "TokenTree",
    "Update",
    "Verification",
    "VerifiedTree",
    "devices",
    "verify",
]
