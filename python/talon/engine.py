"""The engine: many requests at once, whole or streamed."""

import asyncio
import atexit
import os
import warnings
import weakref
from pathlib import Path
from types import TracebackType
from typing import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from talon import _talon
from talon.config import EngineConfig, SamplingParams
from talon.drafter import Drafter, DrafterWarning
from talon.results import KvReport, Result, Update, make_kv_report, make_result, make_update

Prompt = str | Sequence[int]  # text, or token ids

BUNDLED_MODELS = str(Path(__file__).resolve().parent / "models")

_open_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


@atexit.register
def _close_engines() -> None:
    """Ends the engines' threads while the Python interpreter that they may call still runs."""
    for engine in list(_open_engines):
        engine.close()


def model_values(model_dir: str | os.PathLike[str] | None, config: EngineConfig) -> dict:
    """The settings of a model; `model_dir` overrides the configuration's."""
    values = config.model_values()
    if model_dir is not None:
        values["model"] = os.fspath(model_dir)
    return values


def _finish(values: dict, with_trees: bool) -> Result:
    """A result, after a warning if the request lost its drafter."""
    fault = values.pop("drafter_fault")
    if fault is not None:
        message = f"the drafter failed, the text was decoded plainly: {fault}"
        warnings.warn(message, DrafterWarning, stacklevel=4)
    return make_result(values, with_trees)


class Stream:
    """A request under way: iterate over it, or `async for`, to get an Update for each step.

    Leaving the loop before the end cancels the request, and so does dropping the stream. `result()`
    has the whole of it afterwards.
    """

    def __init__(self, core: _talon.Stream, with_trees: bool) -> None:
        self._core = core
        self._with_trees = with_trees
        self._result: Result | None = None

    def __iter__(self) -> Iterator[Update]:
        return _Loop(self)

    def __aiter__(self) -> AsyncIterator[Update]:
        return _Loop(self)

    def __next__(self) -> Update:
        values = self._core.next()
        if values is None:
            self.result()
            raise StopIteration
        return make_update(values)

    def result(self) -> Result:
        """The whole result. Waits for the end; a request that has failed raises here."""
        if self._result is None:
            self._result = _finish(self._core.wait(), self._with_trees)
        return self._result

    def cancel(self) -> None:
        """Ends the request soon, with what it has. Safe at any time."""
        self._core.cancel()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()

    def __del__(self) -> None:
        if hasattr(self, "_core") and not self._core.done:
            self._core.cancel()


class _Loop:
    """One loop over a stream: dropped before the end, it cancels the request."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ended = False

    def __iter__(self) -> "_Loop":
        return self

    def __aiter__(self) -> "_Loop":
        return self

    def __next__(self) -> Update:
        try:
            return next(self._stream)
        except StopIteration:
            self._ended = True
            raise

    async def __anext__(self) -> Update:
        try:
            update = await asyncio.to_thread(next, self, None)
        except asyncio.CancelledError:  # the thread waits for an update: make it the last one
            self._stream.cancel()
            raise
        if update is None:
            raise StopAsyncIteration
        return update

    def __del__(self) -> None:
        if not self._ended:
            self._stream.cancel()


class Engine:
    """A model with its KV cache and drafter, on a thread of its own.

    model_dir: a Hugging Face directory (config.json, safetensors, tokenizer.json); None is the
        configuration's `model`, and without that the bundled one.
    config: an EngineConfig; None is the default, plain decoding on the CPU.
    drafter: a Drafter of yours, in place of the configuration's `method`.

    All methods may be called from several Python threads; the GIL is free while the engine works.
    Use it as a context manager, or call `close()`.

    With `tensor_parallel` in the configuration, all processes that mpirun has started make the same
    engine. It is rank 0's; on the others this follows rank 0 and then raises SystemExit(0).
    """

    def __init__(
        self,
        model_dir: str | os.PathLike[str] | None = None,
        config: EngineConfig | None = None,
        *,
        drafter: Drafter | None = None,
    ) -> None:
        if config is None:
            config = EngineConfig()
        if not isinstance(config, EngineConfig):
            raise TypeError(f"config: {config!r}, must be an EngineConfig")
        if drafter is not None and not isinstance(drafter, Drafter):
            raise TypeError(f"drafter: {drafter!r}, must be an instance of talon.Drafter")
        self._core = _talon.Engine(
            model_values(model_dir, config),
            config.speculative_config.to_dict(),
            BUNDLED_MODELS,
            drafter,
            Drafter,
        )
        _open_engines.add(self)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        trees: bool = False,
        speculate: bool = True,
        drafter: str = "",
        max_draft_nodes: int = 0,
        specpv: Mapping[str, str | int | float] | None = None,
    ) -> list[Result]:
        """Answers all prompts as one batch, in order.

        prompts: a text, a list of texts, or a list of lists of token ids; one prompt will do.
        params: for all of them, or one for each; None is `default_params`.
        trees: results carry the tree of every pass.
        speculate: False decodes plainly.
        drafter: of those configured, by name ("SUFFIX", "EAGLE3,SUFFIX", "NONE"); "" is all.
        max_draft_nodes: of a tree, root included; 0 is as configured.
        specpv: of partial verification, where it is configured: {"mode": "exact", "fast" or "off",
            "budget_tokens": retrieved tokens, "error_target": 0 to 1}; what is left out is as
            configured.

        Ctrl-C cancels all and raises KeyboardInterrupt.
        """
        prompts = _prompt_list(prompts)
        options = _request_options(trees, speculate, drafter, max_draft_nodes, specpv)
        chosen = self._params_list(params, len(prompts))
        streams: list[_talon.Stream] = []
        try:
            for prompt, one in zip(prompts, chosen):
                streams.append(self._submit(prompt, one, options))
            return [_finish(stream.wait(), trees) for stream in streams]
        except BaseException:
            for stream in streams:
                stream.cancel()
            raise

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        trees: bool = False,
        speculate: bool = True,
        drafter: str = "",
        max_draft_nodes: int = 0,
        specpv: Mapping[str, str | int | float] | None = None,
    ) -> Stream:
        """Starts one request; the arguments are those of `generate`.

        for update in engine.stream("Once"):
            print(update.text, end="")
        """
        (one,) = self._params_list(params, 1)
        options = _request_options(trees, speculate, drafter, max_draft_nodes, specpv)
        return Stream(self._submit(prompt, one, options), trees)

    def _submit(self, prompt: Prompt, params: SamplingParams, options: dict) -> _talon.Stream:
        kind, texts = params.grammar_values()
        return self._core.submit(
            prompt, params.setting_values(), grammar_kind=kind, grammar_texts=texts, **options
        )

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt, with those that begin a text."""
        return self._core.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return self._core.decode(tokens)

    def kv_report(self) -> KvReport:
        """The KV cache between two steps. Checks its block accounting; RuntimeError if it is
        inconsistent."""
        return make_kv_report(self._core.kv_report())

    @property
    def default_params(self) -> SamplingParams:
        """What the model's generation_config.json suggests, unless that is ignored; else greedy."""
        return SamplingParams(**self._core.suggested_sampling())

    @property
    def info(self) -> dict[str, str | int]:
        """Model, device, drafter, vocab_size, max_length, max_sequences."""
        return self._core.info()

    def _params_list(
        self, params: SamplingParams | Sequence[SamplingParams] | None, count: int
    ) -> list[SamplingParams]:
        """One SamplingParams for each prompt."""
        if params is None or isinstance(params, SamplingParams):
            return [params or self.default_params] * count
        params = list(params)
        if not all(isinstance(one, SamplingParams) for one in params):
            raise TypeError("params: must be SamplingParams")
        if len(params) != count:
            raise ValueError(f"params: {len(params)}, there are {count} prompts")
        return params

    def close(self) -> None:
        """Cancels what runs and frees everything. Closing again does nothing."""
        self._core.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _prompt_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt is a list of one."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Iterable) or isinstance(prompts, (bytes, bytearray)):
        raise TypeError(f"prompts: {prompts!r}, must be text, token ids or a list of such")
    prompts = list(prompts)
    if prompts and not any(isinstance(item, str) or hasattr(item, "__len__") for item in prompts):
        return [prompts]
    return prompts


def _request_options(
    trees: bool,
    speculate: bool,
    drafter: str,
    max_draft_nodes: int,
    specpv: Mapping[str, str | int | float] | None,
) -> dict:
    """What a request chooses for itself, as the extension takes it."""
    own = dict(specpv or {})
    options = {
        "trees": trees,
        "speculate": speculate,
        "drafter": drafter,
        "max_draft_nodes": max_draft_nodes,
        "specpv_mode": own.pop("mode", ""),
        "specpv_budget_tokens": own.pop("budget_tokens", None),
        "specpv_error_target": own.pop("error_target", None),
    }
    if own:
        raise ValueError(
            f"specpv: {next(iter(own))!r} is unknown, it has mode, budget_tokens and error_target"
        )
    return options
