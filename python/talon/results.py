"""What requests give back. Plain data."""

from dataclasses import dataclass
from typing import Any, NamedTuple


class LogProb(NamedTuple):
    """A token's log-probability, and the most likely tokens in its place with theirs."""

    token: int
    log_prob: float
    top: list[tuple[int, float]]


@dataclass(frozen=True)
class VerifiedTree:
    """A tree as one pass verified it. Node 0 is the root, the token before the drafts."""

    tokens: list[int]
    parents: list[int]  # -1 for the root
    path: list[int]  # accepted nodes, the root first


@dataclass(frozen=True)
class Stats:
    """What a request took, counted over its passes after the prompt."""

    prompt_tokens: int
    cached_tokens: int  # part of prompt_tokens: taken from the prefix cache
    passes: int
    partial_passes: int  # part of passes: over a partial view of the prefix (SpecPV)
    emitted: int
    drafted: int  # nodes proposed, roots excluded
    accepted: int  # drafts accepted
    tau: float  # tokens emitted per pass
    tried_by_depth: list[int]  # [depth - 1]: passes whose tree reached this depth
    accepted_by_depth: list[int]  # and those that accepted a node there
    first_token_seconds: float | None  # since the request's arrival; None: there is none
    prompt_seconds: float
    decode_seconds: float
    draft_seconds: float
    verify_seconds: float
    prefix_tokens_read: int  # prefix tokens whose K/V the passes have read
    lossy: bool  # an option that may change the text was in effect

    @property
    def acceptance_by_depth(self) -> list[float]:
        """Share accepted of those tried, by depth from 1."""
        pairs = zip(self.accepted_by_depth, self.tried_by_depth)
        return [accepted / tried for accepted, tried in pairs]

    @property
    def tokens_per_second(self) -> float:
        """Decoded tokens per second; 0 if nothing was decoded."""
        return self.emitted / self.decode_seconds if self.decode_seconds > 0 else 0.0


@dataclass(frozen=True)
class Update:
    """What one step added to a request. The text lags behind the tokens where a character or a
    possible stop string is unfinished."""

    tokens: list[int]
    text: str
    drafted: list[bool]  # for each token: proposed by the drafter, not the target's own
    log_probs: list[LogProb] | None  # if SamplingParams.logprobs is 0 or more
    finish_reason: str | None  # in the last update only
    tree: VerifiedTree | None  # if trees were asked for


@dataclass(frozen=True)
class Result:
    """A finished request."""

    tokens: list[int]
    text: str
    drafted: list[bool]
    log_probs: list[LogProb] | None
    finish_reason: str  # stop, length, cancelled, dead_end
    seed: int  # gives the same text again
    stats: Stats
    trees: list[VerifiedTree] | None  # one for every pass, if asked for


@dataclass(frozen=True)
class KvSequence:
    """The KV cache of a request that runs or waits."""

    id: int
    tokens: int
    committed: int  # tokens whose K/V is in blocks
    provisional: int  # accepted under a partial view, not yet confirmed
    blocks: list[int]


@dataclass(frozen=True)
class KvReport:
    """The KV cache between two steps; its block accounting was checked when this was made."""

    block_size: int
    blocks: int
    used_blocks: int  # by requests
    free_blocks: int  # cached ones included
    cached_blocks: int  # kept for prompts that begin alike, evicted when blocks run out
    running: int
    waiting: int
    bytes: int
    bytes_per_token: int
    sequences: list[KvSequence]


def _log_probs(rows: list[tuple[int, float, list]] | None) -> list[LogProb] | None:
    return None if rows is None else [LogProb(*row) for row in rows]


def make_update(values: dict[str, Any]) -> Update:
    """From the extension's plain values."""
    tree = values.pop("tree")
    log_probs = _log_probs(values.pop("log_probs"))
    return Update(**values, log_probs=log_probs, tree=VerifiedTree(**tree) if tree else None)


def make_result(values: dict[str, Any], with_trees: bool) -> Result:
    """From the extension's plain values."""
    trees = [VerifiedTree(**tree) for tree in values.pop("trees")]
    return Result(
        tokens=values["tokens"],
        text=values["text"],
        drafted=values["drafted"],
        log_probs=_log_probs(values["log_probs"]),
        finish_reason=values["finish_reason"],
        seed=values["seed"],
        stats=Stats(**values["stats"]),
        trees=trees if with_trees else None,
    )


def make_kv_report(values: dict[str, Any]) -> KvReport:
    """From the extension's plain values."""
    sequences = [KvSequence(**row) for row in values.pop("sequences")]
    return KvReport(**values, sequences=sequences)
