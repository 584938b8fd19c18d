"""A long prompt, verified in full and over chosen blocks of it (SpecPV). Runs on the bundled model.

    PYTHONPATH=build/python python3 examples/long_context.py
"""

import talon

SENTENCE = "On day {0} the keeper of the tower wrote down {1} ships and the colour of the sky. "
DAYS = 120
MAX_TOKENS = 64


def run(prompt: str, speculation: talon.SpeculativeConfig) -> talon.Result:
    """One greedy answer."""
    config = talon.EngineConfig(max_sequences=1, speculative_config=speculation)
    with talon.Engine(config=config) as engine:
        return engine.generate(prompt, talon.SamplingParams(max_tokens=MAX_TOKENS))[0]


def main() -> None:
    """Compares what the passes have read. Exact mode's text is that of full verification."""
    prompt = "".join(SENTENCE.format(day, day * 7 % 23) for day in range(DAYS))
    full = talon.SpeculativeConfig(method="eagle3", adaptive=False)
    exact = full.replace(
        enable_specpv=True,
        specpv_mode="exact",
        specpv_partial_threshold=1024,
        specpv_n_retrieval_blocks=32,
    )
    modes = {"full": full, "exact": exact, "fast (lossy)": exact.replace(specpv_mode="fast")}
    results = {name: run(prompt, speculation) for name, speculation in modes.items()}
    print(f"prompt: {results['full'].stats.prompt_tokens} tokens")
    print(f"{'verification':14} {'tau':>5} {'passes':>7} {'partial':>8} {'K/V read per pass':>18}")
    for name, result in results.items():
        stats = result.stats
        read = stats.prefix_tokens_read / max(stats.passes, 1)
        print(f"{name:14} {stats.tau:5.2f} {stats.passes:7} {stats.partial_passes:8} {read:18.0f}")
    assert results["exact"].tokens == results["full"].tokens
    print(results["full"].text)


if __name__ == "__main__":
    main()
