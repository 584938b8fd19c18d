#!/usr/bin/env python3
"""Measures llama.cpp beside Talon and writes the tables of bench/README.md.

    scripts/peer.py --llama SOURCE --build FOLDER --models FOLDER [--rounds N] [--only NAME,...]
        --llama    llama.cpp's source folder, whose gguf package makes the models
        --build    where it was built: llama-bench, llama-batched-bench and llama-quantize
        --models   where the models of random weights are kept; the missing ones are made
        --rounds   how often the two take turns (3); the best of each counts
        --only     only these tables
        --out      writes the page here instead of over bench/README.md

x86 machines have tables of their own, with and without AMX.

Milliseconds of a pass of T rows after an empty prefix: Talon verifies a tree of T nodes, the peer
decodes T sequences at once, so that both compute the logits of all rows. Nothing else should run
meanwhile. Nothing of llama.cpp belongs in this repository.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import figure_tables as tables  # noqa: E402
import figures  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
PAGE = "bench/README.md"


def machine():
    """What the markers of this machine's tables end with."""
    if platform.machine() != "x86_64":
        return ""
    return "-amx" if "amx_int8" in Path("/proc/cpuinfo").read_text() else "-x86"


class Comparison(NamedTuple):
    name: str  # in its markers
    shape: str  # Talon's
    weights: str  # Talon's
    quantised: str  # the peer's type of weights
    rows: list
    write_model: str  # the function of peer_models
    quantise: list = []  # more flags of llama-quantize


COMPARISONS = [
    Comparison(
        f"peer-{weights}", "llama-1b", weights, kind, [1, 2, 4, 8, 16, 32, 64],
        "write_llama", ["--pure"],
    )
    for weights, kind in (("int4", "Q4_0"), ("int8", "Q8_0"))
] + [
    Comparison(
        "peer-experts", "gpt-oss-3b", "int8", "Q8_0", [1, 2, 4, 8],
        "write_gpt_oss", ["--tensor-type", "exps=mxfp4"],
    )
]  # fmt: skip


def model_file(options, comparison):
    """The peer's model, made if it is not there."""
    path = options.models / f"{comparison.shape}-{comparison.quantised}.gguf"
    if not path.exists():
        import peer_models  # needs numpy

        wide = options.models / f"{comparison.shape}.gguf"
        getattr(peer_models, comparison.write_model)(wide)
        part = path.with_suffix(".part")
        quantise = options.build / "llama-quantize"
        figures.run_command([quantise, *comparison.quantise, wide, part, comparison.quantised])
        wide.unlink()
        part.rename(path)
    return path


def talon_passes(comparison, file):
    words = ["build/talon", "bench", "verify", "--shape", comparison.shape]
    words += ["--weights", comparison.weights, "--depths", "0", "--repeats", "9"]
    words += ["--nodes", ",".join(map(str, comparison.rows))]
    return {p["nodes"]: p for p in figures.run_benchmark(words, file)["points"]}


def talon_prompt(comparison, file):
    words = ["build/talon", "bench", "decode", "--shape", comparison.shape, "--repeats", "1"]
    words += ["--weights", comparison.weights, "--max-tokens", "4"]
    return figures.run_benchmark(words, file)["prompt_tokens_per_second"]


def peer_passes(options, comparison, model):
    """{rows: milliseconds}"""
    steps = 8
    command = [options.build / "llama-batched-bench", "-m", model, "-t", str(os.cpu_count())]
    command += ["-c", "4096", "-npp", "1", "-ntg", str(steps), "--output-format", "jsonl"]
    command += ["-npl", ",".join(map(str, comparison.rows))]
    lines = figures.run_command(command).splitlines()
    results = [json.loads(line) for line in lines if line.startswith("{")]
    return {result["pl"]: result["t_tg"] / steps * 1000 for result in results}


def peer_prompt(options, model):
    command = [options.build / "llama-bench", "-m", model, "-t", str(os.cpu_count())]
    result = json.loads(figures.run_command([*command, "-p", "512", "-n", "0", "-r", "1", "-o", "json"]))
    return result[0]["avg_ts"]


def measure(options, comparison):
    """The best of all rounds: {"talon": {rows: ms}, "floor": ..., "peer": ..., "prompts": (ours, theirs)}."""
    model = model_file(options, comparison)
    file = options.models / "talon.json"
    talon, peer, floors, prompts = {}, {}, {}, [0, 0]
    for _ in range(options.rounds):
        for rows, point in talon_passes(comparison, file).items():
            if point["milliseconds"] < talon.get(rows, float("inf")):
                talon[rows] = point["milliseconds"]
                floors[rows] = point["floor_milliseconds"]
        for rows, milliseconds in peer_passes(options, comparison, model).items():
            peer[rows] = min(milliseconds, peer.get(rows, milliseconds))
        prompts[0] = max(prompts[0], talon_prompt(comparison, file))
        prompts[1] = max(prompts[1], peer_prompt(options, model))
    return {"talon": talon, "floor": floors, "peer": peer, "prompts": prompts}


def comparison_table(comparison, result):
    rows = comparison.rows
    talon, peer, floor = result["talon"], result["peer"], result["floor"]
    lines = [
        [f"talon {comparison.weights}", *(tables.number(talon[r]) for r in rows)],
        [f"llama.cpp {comparison.quantised}", *(tables.number(peer[r]) for r in rows)],
        ["ratio", *(tables.times(peer[r] / talon[r]) for r in rows)],
        ["talon, time / floor", *(tables.times(talon[r] / floor[r]) for r in rows)],
    ]
    ours, theirs = result["prompts"]
    note = (
        f"\nPrompt of 512: talon {tables.number(ours)} tokens/s, llama.cpp {tables.number(theirs)}:"
        f" {tables.times(ours / theirs)}.\n"
    )
    return tables.table(["rows", *map(str, rows)], lines) + note


def peer_name(options):
    command = ["git", "-C", str(options.llama), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "of unknown commit"


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--llama", type=Path, required=True, help="llama.cpp's source folder")
    parser.add_argument("--build", type=Path, required=True, help="the folder of its programs")
    parser.add_argument("--models", type=Path, required=True, help="the folder of the models")
    parser.add_argument("--rounds", type=int, default=3, help="how often the two take turns")
    parser.add_argument("--only", default="", help="only these tables, separated by commas")
    parser.add_argument("--out", type=Path, default=ROOT / PAGE, help="where the page is written")
    options = parser.parse_args()
    names = [comparison.name for comparison in COMPARISONS]
    options.only = [name for name in options.only.split(",") if name] or names
    unknown = [name for name in options.only if name not in names]
    if unknown:
        parser.error(f"--only: {unknown[0]} is not one of {', '.join(names)}")
    options.models.mkdir(parents=True, exist_ok=True)
    for name in ("llama", "build", "models"):
        setattr(options, name, getattr(options, name).resolve())
    sys.path.insert(0, str(options.llama / "gguf-py"))
    return options


def main():
    options = read_options()
    page = (ROOT / PAGE).read_text()
    build = f"Talon at commit {figures.commit_name()}, llama.cpp {peer_name(options)}, "
    build += f"{os.cpu_count()} threads on {figures.cpu_name()}, best of {options.rounds} rounds.\n"
    for comparison in COMPARISONS:
        if comparison.name not in options.only:
            continue
        print(f"{comparison.name} ...", flush=True)
        text = build + "\n" + comparison_table(comparison, measure(options, comparison))
        page = figures.replace_between(page, comparison.name + machine(), text)
        options.out.write_text(page)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
