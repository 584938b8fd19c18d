"""Compares drafters on a few prompts: a table, and a plot as SVG where matplotlib is installed.

    PYTHONPATH=build/python python3 examples/compare_drafters.py [PLOT.svg]
"""

import sys
from dataclasses import dataclass

import talon

METHODS = ["none", "ngram", "suffix", "standalone", "eagle3"]
PROMPTS = [
    "Once upon a time there was a",
    "It is a truth universally acknowledged, that a",
    "The first chapter explains how to install the program.",
]


@dataclass
class Row:
    """One drafter over all prompts."""

    method: str
    tau: float
    tokens_per_second: float
    acceptance: list[float]
    tokens: list[list[int]]


def measure(method: str) -> Row:
    """Runs the prompts one after the other, greedily."""
    speculation = talon.SpeculativeConfig(method=method, adaptive=False)
    config = talon.EngineConfig(max_sequences=1, speculative_config=speculation)
    params = talon.SamplingParams(max_tokens=96, ignore_eos=True)
    with talon.Engine(config=config) as engine:
        results = [engine.generate(prompt, params)[0] for prompt in PROMPTS]
    stats = [result.stats for result in results]
    return Row(
        method=method,
        tau=sum(s.emitted for s in stats) / sum(s.passes for s in stats),
        tokens_per_second=sum(s.emitted for s in stats) / sum(s.decode_seconds for s in stats),
        acceptance=acceptance_by_depth(stats),
        tokens=[result.tokens for result in results],
    )


def acceptance_by_depth(stats: list[talon.Stats]) -> list[float]:
    """Share of accepted drafts by depth, over all results."""
    depths = max(len(s.tried_by_depth) for s in stats)
    shares = []
    for depth in range(depths):
        deep = [s for s in stats if len(s.tried_by_depth) > depth]
        tried = sum(s.tried_by_depth[depth] for s in deep)
        shares.append(sum(s.accepted_by_depth[depth] for s in deep) / tried)
    return shares


def print_table(rows: list[Row]) -> None:
    """One line per drafter."""
    plain = rows[0].tokens_per_second
    print(f"{'drafter':12} {'tau':>5} {'tokens/s':>9} {'vs plain':>9}  accepted by depth")
    for row in rows:
        shares = " ".join(f"{share:.2f}" for share in row.acceptance[:6]) or "-"
        speed = row.tokens_per_second
        print(f"{row.method:12} {row.tau:5.2f} {speed:9.0f} {speed / plain:8.2f}x  {shares}")


def save_plot(rows: list[Row], path: str) -> None:
    """Tau as bars beside acceptance as lines."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (bars, lines) = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    bars.bar([row.method for row in rows], [row.tau for row in rows])
    bars.set_ylabel("tokens per target pass (tau)")
    bars.tick_params(axis="x", rotation=30)
    for row in rows[1:]:
        lines.plot(range(1, len(row.acceptance) + 1), row.acceptance, "o-", label=row.method)
    lines.set_xlabel("depth of the tree")
    lines.set_ylabel("share accepted")
    lines.legend()
    figure.savefig(path)
    print(f"plot: {path}")


def main() -> None:
    """Measures all drafters; their text is the same, whatever they draft."""
    rows = [measure(method) for method in METHODS]
    assert all(row.tokens == rows[0].tokens for row in rows)
    print_table(rows)
    save_plot(rows, sys.argv[1] if len(sys.argv) > 1 else "compare_drafters.svg")


if __name__ == "__main__":
    main()
