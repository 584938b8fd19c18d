"""The target model alone: passes over tokens, and the verification of trees."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Sequence

from talon import _talon
from talon._talon import TokenTree
from talon.config import EngineConfig, SamplingParams
from talon.engine import BUNDLED_MODELS, model_values

if TYPE_CHECKING:
    import numpy


@dataclass(frozen=True, eq=False)
class Forward:
    """What a pass gives, float32. The arrays own the engine's buffers; nothing was copied."""

    logits: "numpy.ndarray"  # [tokens, vocab]
    hidden: "numpy.ndarray"  # [tokens, hidden], after the final norm
    features: "numpy.ndarray | None"  # [tokens, layers, hidden], if layers were named


@dataclass(frozen=True, eq=False)
class Verification:
    """A verified tree."""

    path: list[int]  # accepted nodes, the root first
    accepted: list[int]  # their tokens, without the root
    bonus: int | None  # the target's own next token; None: every token is masked
    seed: int
    logits: "numpy.ndarray"  # [nodes, vocab]


class Model:
    """A target model for research, without an engine. Needs NumPy.

    model_dir, config: as for `Engine`; of the configuration the model's settings count. Calls from
    several threads wait for each other; the GIL is free while they compute.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        config: EngineConfig | None = None,
    ) -> None:
        values = model_values(model_dir, EngineConfig() if config is None else config)
        self._core = _talon.Model(values, BUNDLED_MODELS)

    def forward(self, tokens: Sequence[int], capture_layers: Sequence[int] = ()) -> Forward:
        """One pass over a sequence of its own: logits of every token.

        capture_layers: layers whose input is captured, the residual stream; the number of layers
            stands for the last one's output.
        """
        return Forward(**self._core.forward(tokens, list(capture_layers)))

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that begin a text."""
        return self._core.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return self._core.decode(tokens)

    @property
    def info(self) -> dict[str, str | int]:
        """Model, device, vocab_size, hidden_size, num_layers, max_length."""
        return self._core.info()


def verify(
    model: Model,
    tokens: Sequence[int],
    tree: TokenTree,
    params: SamplingParams | None = None,
    *,
    prompt_length: int | None = None,
) -> Verification:
    """Verifies a tree as the engine does: one pass, then the walk along the target's own choices.

    tokens: the sequence so far; the tree's root is the last of them.
    params: how the target chooses; None is greedy. A seeded draw depends on seed and position
        alone, so it is the engine's.
    prompt_length: the first tokens that are prompt; the others count as output for penalties and
        min_tokens. None: all are prompt.
    """
    length = -1 if prompt_length is None else prompt_length
    params = params or SamplingParams()
    if params.grammar_values()[0]:
        raise ValueError("params: verify has no grammars, an Engine has")
    values = params.setting_values()
    return Verification(**model._core.verify(tokens, tree, values, length))
