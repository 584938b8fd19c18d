"""Quick start: a batch, a stream, and what speculation did. Runs on the bundled model.

    PYTHONPATH=build/python python3 examples/quick_start.py
"""

import talon


def main() -> None:
    """Generates from three prompts, then streams one."""
    config = talon.EngineConfig(
        device="cpu",
        max_sequences=4,
        # Always drafts, to show it; without adaptive=False only where it pays.
        speculative_config=talon.SpeculativeConfig(method="eagle3", adaptive=False),
    )
    prompts = ["Once upon a time there was a", "The sea was", "Call me"]
    params = talon.SamplingParams(max_tokens=60)  # greedy; temperature=0.8, seed=7 would draw
    with talon.Engine(config=config) as engine:
        for prompt, result in zip(prompts, engine.generate(prompts, params)):
            stats = result.stats
            print(f"{prompt}{result.text}")
            print(f"  [{stats.emitted} tokens in {stats.passes} passes, tau {stats.tau:.2f}]\n")

        print("It was a dark night", end="")
        for update in engine.stream("It was a dark night", params):
            print(update.text, end="", flush=True)
        print()


if __name__ == "__main__":
    main()
