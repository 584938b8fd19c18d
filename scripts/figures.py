#!/usr/bin/env python3
"""Runs the benchmarks of the documentation and writes their tables.

    scripts/figures.py [--gpu|--ranks] [--only NAME,...] [--quick] [--out FOLDER] [--commit HASH]
        --gpu      the GPU's figures (docs/gpu.md, with build-cuda/talon) instead of the CPU's
                   (docs/benchmarks.md and README.md, with build/talon)
        --ranks    those of several processes (docs/scale.md, with build/talon and mpirun)
        --only     only these benchmarks; tables of other commits are emptied
        --quick    few repeats and small sizes, to try the script; needs --out
        --out      writes the pages into this folder instead of over those of the repository
        --commit   the commit that was built, where git is not there to ask
        --list     prints the benchmarks and their commands

Each table stands between two marker comments, with its commands; all of them are of one commit. The
raw results are kept in build/figures/ (build-cuda/figures/). Nothing else should run meanwhile.
"""

import argparse
import datetime
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Callable, NamedTuple

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import figure_tables as tables  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 118  # columns of a command's line
EMPTY = {
    "cpu": "Run `make figures`.\n",
    "gpu": "Run `make gpu-figures`.\n",
    "ranks": "Run `make figures ARGS=--ranks`.\n",
}


class Figure(NamedTuple):
    name: str  # in its markers
    commands: list  # as they are shown, one JSON each
    table: Callable  # makes the table from the list of JSON
    quick: dict = {}  # values of flags with --quick
    server: str = ""  # runs beside the commands; they get its --url
    is_text: bool = False  # the result is what the command prints, not its JSON


MODES = "plain,ngram,suffix,standalone,eagle3,merged"
CHATS = "tests/data/prompts/chats.jsonl"
DOCS = "tests/data/prompts/docs.jsonl"
BOOKS = "tests/data/prompts/books.jsonl"
JSON = "tests/data/prompts/json.jsonl"
FEW = {"--repeats": "1", "--max-tokens": "16"}


def decode(prompts, modes, more, temperature=0):
    return (
        f"build/talon bench decode --prompts {prompts} --modes {modes} --temperature {temperature}"
        f" {more}"
    )


def tasks(more):
    return f"build/talon bench tasks --temperature 0 {more}".strip()


CPU = [
    Figure("run", ["build/talon show"], tables.printed, is_text=True),
    Figure(
        "speculation",
        [decode(file, MODES, "--max-tokens 256 --repeats 3") for file in (CHATS, DOCS, BOOKS)],
        tables.speculation,
        FEW,
    ),
    Figure(
        "sampled",
        [
            decode(file, "plain,suffix,eagle3,merged", "--max-tokens 256 --repeats 3", 0.7)
            for file in (CHATS, DOCS, BOOKS)
        ],
        tables.speculation,
        FEW,
    ),
    Figure(
        "int8",
        [
            decode(file, "plain,suffix,eagle3", "--max-tokens 160 --repeats 3 --weights int8")
            + " --speculative-draft-weights int8"
            for file in (CHATS, DOCS)
        ],
        tables.speculation,
        FEW,
    ),
    Figure(
        "eagle3",
        [
            decode(file, "plain,eagle3", "--max-tokens 256 --repeats 3", temperature)
            + " --speculative-adaptive false"
            for file in (CHATS, DOCS, BOOKS)
            for temperature in (0, 0.7)
        ],
        tables.eagle3,
        FEW,
    ),
    Figure(
        "tasks",
        [tasks("--limit 100" + more) for more in ("", " --weights int8", " --weights int4")]
        + [
            tasks(
                "--limit 100 --kinds passage --enable-specpv --specpv-mode fast"
                f" --specpv-partial-threshold 512 --specpv-n-retrieval-blocks {blocks}"
            )
            for blocks in (16, 32, 64)
        ],
        tables.tasks,
        {"--limit": "1"},
    ),
    Figure(
        "json",
        [decode(JSON, "plain,grammar,eagle3,eagle3+grammar", "--max-tokens 256 --repeats 3")],
        tables.json_answers,
        FEW,
    ),
    Figure("grammar", ["build/talon bench grammar"], tables.grammar),
    Figure(
        "longcontext",
        [
            "build/talon bench longcontext --contexts 4096,30000 --budgets 2048 --max-tokens 256"
            " --temperature 0"
            " --prompts-per-context 1"
        ],
        tables.longcontext,
        {"--contexts": "1024,4096", "--max-tokens": "16"},
    ),
    Figure(
        "agreement",
        [
            "build/talon bench agreement --speculative-algorithm EAGLE3 --contexts 6000"
            " --prompts-per-context 6"
        ],
        tables.agreement,
        {"--contexts": "1024", "--prompts-per-context": "1"},
    ),
    Figure(
        "recall",
        [
            "build/talon bench longcontext --contexts 1024 --max-tokens 2 --temperature 0"
            " --modes plain,plain+specpv-fast --budgets 128,256 --specpv-partial-threshold 256"
            f" --recall tests/data/prompts/recall.jsonl --specpv-selector {selector}"
            for selector in ("attention", "quest", "h2o", "streaming")
        ],
        tables.recall,
    ),
    Figure(
        "batch",
        [
            "build/talon bench batch --max-tokens 192 --repeats 5 --batches 1,2,4,8,16,32"
            " --temperature 0"
        ],
        tables.batch,
        {"--repeats": "1", "--max-tokens": "32", "--batches": "1,2"},
    ),
    Figure(
        "load",
        ["build/talon bench load --clients 32 --seconds 30 --alone-seconds 10 --disconnects 0.05"],
        tables.load,
        {"--clients": "4", "--seconds": "2", "--alone-seconds": "1"},
        server="build/talon serve --speculative-algorithm EAGLE3",
    ),
    Figure(
        "remote",
        [
            "build/talon bench remote --num-prompts 1 --repeats 2 --max-tokens 96 --temperature 0"
            " --rtts-ms 0,5,20,100 --loss 0.01 --loss-rtt-ms 20"
        ],
        tables.remote,
        {"--repeats": "1", "--max-tokens": "16", "--rtts-ms": "5", "--loss": "0"},
    ),
    Figure(
        "verify",
        ["build/talon bench verify --nodes 1,4,8,16,64 --depths 0,4096,16384 --repeats 25"],
        tables.verify,
        {"--nodes": "1,8", "--depths": "0,1024", "--repeats": "2"},
    ),
    Figure(
        "scv",
        ["build/talon bench scv --lengths 16,48 --chunks 0,4,8,16"],
        tables.scv,
        {"--lengths": "16", "--chunks": "0,4"},
    ),
    Figure(
        "nwor",
        ["build/talon bench nwor --batches 1,4 --nodes 32 --tokens 48 --repeats 5"],
        tables.nwor,
        {"--batches": "1", "--nodes": "8", "--tokens": "16", "--repeats": "1"},
    ),
    Figure(
        "limits",
        [
            f"build/talon bench decode --shape llama-1b --weights {weights} --max-tokens 32"
            " --repeats 3"
            for weights in ("int4", "int8", "bf16", "f16")
        ],
        tables.limits,
        {"--shape": "tiny", "--max-tokens": "8", "--repeats": "1"},
    ),
    Figure(
        "experts",
        ["build/talon bench verify --shape gpt-oss-20b --nodes 1,4,8 --depths 0 --repeats 9"],
        tables.verify,
        {"--shape": "gpt-oss-tiny", "--repeats": "2"},
    ),
    Figure(
        "ops",
        ["build/talon bench ops --weights int8 --rows 1,8,64,512"],
        tables.ops,
        {"--rows": "1,8"},
    ),
]

GPU_EAGLE3 = (
    "build-cuda/talon bench decode --device cuda --model models/tiny"
    " --prompts models/tiny/prompts_tokens.jsonl --speculative-draft-model-path models/tiny-eagle3"
    " --speculative-adaptive=false --modes plain,eagle3 --max-tokens 128 --repeats 3"
)
GPU_PASSES = "build-cuda/talon bench gpu --device cuda --nodes 1,8,16,64,128"
GPU_SPECPV = (  # the agreement of `quest` with 4096 tokens in the table of agreement
    "build-cuda/talon bench simulate --device cuda --shape llama-8b"
    " --speculative-eagle-topk 1 --acceptance 0.8,0.75,0.7,0.65,0.6"
    " --specpv-agreement 0.95,0.99,0.97,0.97,0.96,0.97,0.98"
)
GPU = [
    Figure("nodes", [GPU_PASSES + " --tables nodes"], tables.gpu_nodes),
    Figure("sequences", [GPU_PASSES + " --tables sequences"], tables.gpu_sequences),
    Figure(
        "prompts",
        [
            "build-cuda/talon bench decode --device cuda --shape llama-8b --max-tokens 8 --repeats 3"
            f" --prompt-tokens {tokens}"
            for tokens in (4096, 32768)
        ],
        tables.gpu_prompts,
    ),
    Figure(
        "weights",
        [
            "build-cuda/talon bench gpu --device cuda --nodes 1,16,64,128 --contexts 1024"
            " --tables nodes --weights " + name
            for name in ("bf16", "fp8", "int8", "int4")
        ]
        + [
            "build-cuda/talon bench decode --device cuda --shape llama-8b --max-tokens 8 --repeats 3"
            " --prompt-tokens 4096 --weights " + name
            for name in ("bf16", "fp8", "int8", "int4")
        ],
        tables.gpu_weights,
    ),
    Figure("partial", [GPU_PASSES + " --tables partial,batch"], tables.gpu_partial),
    Figure("offload", [GPU_PASSES + " --tables offload"], tables.gpu_offload),
    Figure("decode", [GPU_EAGLE3], tables.gpu_decode),
    Figure(
        "experts",
        [
            "build-cuda/talon bench gpu --device cuda --shape " + shape + " --nodes 1,2,4,8,16,64"
            " --contexts 1024 --tables nodes"
            for shape in ("gpt-oss-20b", "gpt-oss-120b", "qwen3-30b-a3b")
        ],
        tables.gpu_experts,
    ),
    Figure(
        "simulate",
        [
            "build-cuda/talon bench simulate --device cuda --shape llama-8b --contexts 1024"
            " --batches 1,2,4,8,16,32,64 " + tree
            for tree in (
                "--speculative-eagle-topk 10 --speculative-num-draft-tokens 60"
                " --acceptance 0.92,0.92,0.92,0.92,0.92,0.92,0.92",
                "--speculative-eagle-topk 1 --acceptance 0.8,0.75,0.7",
            )
        ],
        tables.gpu_simulate,
    ),
    Figure(
        "policy",
        [
            f"build-cuda/talon bench simulate --device cuda --shape {shape} --contexts 1024"
            " --batches 1,8,32 --policy --speculative-eagle-topk 1 --acceptance "
            + ",".join(["0.655"] * 7)
            for shape in ("gpt-oss-20b", "gpt-oss-120b")
        ],
        tables.gpu_policy,
    ),
    Figure(
        "blocks",
        [
            "build-cuda/talon bench simulate --device cuda --shape llama-8b --contexts 1024"
            " --batches 1 --speculative-algorithm JETSPEC --speculative-eagle-topk 7"
            f" --speculative-num-draft-tokens 128 --acceptance {acceptance}"
            for acceptance in (",".join(["0.91"] * 20), ",".join(["0.797"] * 20))
        ],
        tables.gpu_simulate,
    ),
    Figure(
        "specpv",
        [
            GPU_SPECPV + more
            for more in (
                " --contexts 32768,65536,128000 --batches 1 --steps 128",
                " --contexts 65536 --batches 8,32 --num-prompts 4 --steps 64",
                " --contexts 65536 --batches 1 --steps 48 --kv-offload",
            )
        ],
        tables.gpu_specpv,
    ),
    Figure(
        "specpv_tiny",
        [
            GPU_SPECPV.replace("--shape llama-8b", "--model models/tiny")
            + " --contexts 30000 --batches 1,8,32 --steps 64"
        ],
        tables.gpu_specpv,
    ),
    Figure(
        "batches",
        [
            "build-cuda/talon bench batch --device cuda --max-tokens 400 --repeats 3 --temperature 0"
            " --batches 1,8,32,48,64 --max-sequences 64 --speculative-algorithm " + name
            for name in ("EAGLE3", "SUFFIX", "EAGLE3,SUFFIX", "JETSPEC,SUFFIX")
        ],
        tables.gpu_batches,
    ),
    Figure(
        "heads",
        [
            f"build-cuda/talon bench decode --device cuda --prompts {file} --temperature {temperature}"
            " --modes plain,eagle3,jetspec --speculative-adaptive=false --speculative-num-steps 7"
            " --speculative-eagle-topk 4 --speculative-num-draft-tokens 16 --max-tokens 128 --repeats 3"
            for file, temperature in ((CHATS, 0), (CHATS, 0.7), (DOCS, 0), (BOOKS, 0))
        ],
        tables.gpu_heads,
    ),
    Figure(
        "auto",
        [
            f"build-cuda/talon bench decode --device cuda --prompts {file} --temperature 0"
            " --modes plain,eagle3+suffix,jetspec+suffix --max-tokens 128 --repeats 3"
            for file in (CHATS, DOCS)
        ],
        tables.gpu_heads,
    ),
    Figure(
        "answers",
        [
            f"build-cuda/talon bench decode --device cuda --prompts {JSON} --temperature 0"
            " --modes plain,grammar,eagle3,eagle3+grammar --max-tokens 256 --repeats 3"
        ],
        tables.json_answers,
    ),
    Figure(
        "written",
        ["build-cuda/talon bench nwor --device cuda --batches 1,4 --nodes 32 --tokens 48 --repeats 5"],
        tables.nwor,
    ),
]

ONE_B = "build/talon bench ranks --shape llama-1b --rows 1,4,16,64 --repeats 5"
RANKS = [
    Figure(
        "rank_times",
        [
            ONE_B + " --threads 2",
            f"mpirun -n 2 --bind-to none {ONE_B} --tensor-parallel 2 --threads 1",
        ],
        tables.rank_times,
        {"--shape": "tiny", "--repeats": "1"},
    ),
    Figure(
        "rank_sizes",
        [
            f"build/talon bench ranks --reckon --shape {shape}"
            for shape in ("llama-8b", "llama-70b", "llama-70b --weights int8", "gpt-oss-120b")
        ],
        tables.rank_sizes,
    ),
    Figure(
        "rank_memory",
        ["build/talon bench ranks --reckon --shape llama-70b-small"]
        + [
            f"mpirun -n {ranks} --oversubscribe --bind-to none build/talon bench ranks"
            f" --shape llama-70b-small --tensor-parallel {ranks} --threads 1 --rows 1 --repeats 1"
            for ranks in (2, 4, 8)
        ],
        tables.rank_memory,
    ),
]
FIGURES = {"cpu": CPU, "gpu": GPU, "ranks": RANKS}


# ---- Running ----


def with_values(command, values):
    """The command with other values of its flags."""
    words = shlex.split(command)
    for flag, value in values.items():
        if flag in words:
            words[words.index(flag) + 1] = value
    return words


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A `talon serve` that runs while the benchmark asks it."""

    def __init__(self, command):
        self.url = f"http://127.0.0.1:{free_port()}"
        words = shlex.split(command) + ["--port", self.url.rsplit(":", 1)[1]]
        self.process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)

    def __enter__(self):
        for _ in range(600):
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=1):
                    return self
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.process.kill()
        raise RuntimeError("the server did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)


def run_command(words):
    """Runs one command; what it prints, without the path of this repository."""
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **as_root}
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-10:]
        raise RuntimeError("\n".join([f"exit code {done.returncode}: {shlex.join(words)}", *lines]))
    return done.stdout.replace(f"{ROOT}/", "")


def run_benchmark(words, file):
    """Runs one benchmark; its JSON."""
    run_command(words + ["--json", str(file)])
    result = json.loads(file.read_text())
    file.unlink()
    return result


def run_figure(figure, folder, quick):
    values = figure.quick if quick else {}
    words = [with_values(command, values) for command in figure.commands]
    results = []
    for i, command in enumerate(words):
        file = folder / f"{figure.name}.{i}.raw.json"
        if figure.is_text:
            results.append(run_command(command))
        elif figure.server:
            with Server(figure.server) as server:
                results.append(run_benchmark(command + ["--url", server.url], file))
        else:
            results.append(run_benchmark(command, file))
    return results


# ---- Writing ----


def shown_commands(figure):
    """The commands as a code block, broken at flags where they are long."""
    lines = []
    for command in ([figure.server + " &"] if figure.server else []) + figure.commands:
        line = ""
        for word in re.split(r" (?=--)", command):
            if line and len(line) + len(word) + 3 > WIDTH:
                lines.append(line + " \\")
                line = "    " + word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return "```\n" + "\n".join(lines) + "\n```\n"


def replace_between(page, name, text):
    """The page with `text` between the markers of `name`."""
    begin, end = f"<!-- figures {name} begin -->\n", f"<!-- figures {name} end -->"
    if begin not in page or end not in page:
        raise ValueError(f"no markers of {name}")
    head, rest = page.split(begin, 1)
    return head + begin + text + end + rest.split(end, 1)[1]


def cpu_name():
    """The processor's name, as lscpu says it."""
    listing = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    names = dict(line.split(":", 1) for line in listing.splitlines() if ":" in line)
    return names.get("Model name", "an unknown CPU").strip()


def gpu_name():
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        line = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        line = ""
    return line.replace(", ", ", driver ") or "an unknown GPU"


def commit_name():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout

    name = git("rev-parse", "--short", "HEAD").strip() or "unknown"
    changed = git("status", "--porcelain", "--", "src", "cmake", "CMakeLists.txt")
    return name + (" with local changes" if changed.strip() else "")


def describe_build(commit, machine):
    return f"Commit {commit}, {datetime.date.today().isoformat()}, {machine}.\n"


def saved_results(folder, commit):
    """{figure: results} of this commit that earlier runs have left."""
    found = {}
    for file in folder.glob("*.json"):
        if file.name.endswith(".raw.json"):
            continue
        saved = json.loads(file.read_text())
        if saved["commit"] == commit:
            found[file.stem] = saved["results"]
    return found


def figure_text(figure, results):
    return shown_commands(figure) + "\n" + figure.table(results)


def cpu_pages(results, build):
    """{page: text} of the pages with the CPU's figures."""
    benchmarks = (ROOT / "docs/benchmarks.md").read_text()
    benchmarks = replace_between(benchmarks, "build", build)
    for figure in CPU:
        if figure.is_text:
            continue
        done = results.get(figure.name)
        text = figure_text(figure, done) if done else EMPTY["cpu"]
        benchmarks = replace_between(benchmarks, figure.name, text)
    readme = (ROOT / "README.md").read_text()
    printed = tables.printed(results["run"]) if "run" in results else EMPTY["cpu"]
    readme = replace_between(readme, "run", printed)
    front = EMPTY["cpu"]
    if "speculation" in results:
        front = build + "\n" + tables.front(results["speculation"])
    return {
        "docs/benchmarks.md": benchmarks,
        "README.md": replace_between(readme, "front", front),
    }


GPU_TITLES = {
    "nodes": "One sequence, whole prefix:",
    "sequences": "Plain decoding of many sequences at once, 1024 tokens each:",
    "prompts": "Prompts, in the chunks that serving uses; the peak is that of the tensor cores alone:",
    "weights": "Quantised weights, one sequence of 1024 tokens, and prompts of 4096:",
    "partial": "SpecPV, partial steps that read 4096 tokens:",
    "offload": "`--kv-offload`, 65536 tokens, partial steps of 16 nodes over 4096:",
    "decode": "`models/tiny` with EAGLE-3, the whole tree, on documentation and books, where few drafts are accepted:",
    "experts": "Models with experts, one sequence of 1024 tokens; the floor has the bytes of as many"
    " experts as independent rows choose:",
    "simulate": "What the card would make of a published EAGLE-3 head (below):",
    "policy": "Models with experts and an EAGLE-3 head of the published acceptance, nodes by the policy:",
    "blocks": "A block head of five layers with JetSpec's trees and two of its accept lengths (below):",
    "specpv": "SpecPV, generation: the 8B shape with chosen acceptance and the agreement of `models/tiny`"
    " (below); other sequences of a batch share four prompts:",
    "specpv_tiny": "The same with the passes of `models/tiny`:",
    "batches": "`models/tiny`, many sequences at once; speculation off, always and by the policy:",
    "heads": "`models/tiny`, its EAGLE-3 and its block head, whole trees of 16 nodes; drafting by the device's clock:",
    "auto": "The same, each merged with SUFFIX, by the policy; the last is what runs by default:",
    "answers": "`models/tiny`, JSON answers by a schema, all modes with the same grammar:",
    "written": "No-write-on-reject: bytes written to KV blocks, and time:",
}


def gpu_pages(results, build):
    """{page: text} of the page with the GPU's figures."""
    parts = [build]
    for figure in GPU:
        if figure.name in results:
            text = figure_text(figure, results[figure.name])
            parts.append(f"{GPU_TITLES[figure.name]}\n\n{text}")
    text = "\n".join(parts) if len(parts) > 1 else EMPTY["gpu"]
    return {"docs/gpu.md": replace_between((ROOT / "docs/gpu.md").read_text(), "gpu", text)}


def rank_pages(results, build):
    """{page: text} of the page with the figures of several processes."""
    page = replace_between((ROOT / "docs/scale.md").read_text(), "build", build)
    for figure in RANKS:
        done = results.get(figure.name)
        text = figure_text(figure, done) if done else EMPTY["ranks"]
        page = replace_between(page, figure.name, text)
    return {"docs/scale.md": page}


# ---- The command ----


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--gpu", action="store_const", dest="kind", const="gpu", default="cpu")
    kind.add_argument("--ranks", action="store_const", dest="kind", const="ranks")
    parser.add_argument("--only", default="", help="only these benchmarks, separated by commas")
    parser.add_argument("--quick", action="store_true", help="to try the script; needs --out")
    parser.add_argument("--out", type=Path, help="write the pages into this folder")
    parser.add_argument("--commit", default="", help="the commit that was built")
    parser.add_argument("--list", action="store_true", help="print the benchmarks")
    options = parser.parse_args()
    if options.quick and not options.out:
        parser.error("--quick needs --out: its figures do not belong in the documentation")
    names = [figure.name for figure in FIGURES[options.kind]]
    options.only = [name for name in options.only.split(",") if name] or names
    unknown = [name for name in options.only if name not in names]
    if unknown:
        parser.error(f"--only: {unknown[0]} is not one of {', '.join(names)}")
    return options


def measure(options, figures, folder, commit):
    """Runs the figures asked for and saves their results; False if one failed."""
    failed = False
    for figure in figures:
        if figure.name not in options.only:
            continue
        start = time.monotonic()
        print(f"{figure.name} ... ", end="", flush=True)
        try:
            results = run_figure(figure, folder, options.quick)
        except (RuntimeError, OSError, ValueError) as error:
            print(f"failed\n{error}")
            failed = True
            continue
        text = json.dumps({"commit": commit, "results": results})
        (folder / f"{figure.name}.json").write_text(text)
        print(f"{time.monotonic() - start:.0f} s")
    return not failed


def main():
    options = read_options()
    figures = FIGURES[options.kind]
    if options.list:
        for figure in figures:
            print(f"{figure.name}\n{shown_commands(figure)}")
        return 0
    build = ROOT / ("build-cuda" if options.kind == "gpu" else "build")
    if not (build / "talon").exists():
        target = "cuda" if options.kind == "gpu" else "build"
        print(f"{build}/talon is not there: build it first (make {target})")
        return 1
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: the load average is {load:.1f}; figures need a quiet machine")
    folder = build / ("figures-quick" if options.quick else "figures")
    folder.mkdir(exist_ok=True)
    commit = options.commit or commit_name()
    fine = measure(options, figures, folder, commit)
    results = saved_results(folder, commit)
    machine = f"{os.cpu_count()} threads on {cpu_name()}"
    if options.kind == "gpu":
        pages = gpu_pages(results, describe_build(commit, gpu_name()))
    elif options.kind == "ranks":
        pages = rank_pages(results, describe_build(commit, machine))
    else:
        pages = cpu_pages(results, describe_build(commit, machine))
    for name, text in pages.items():
        page = (options.out or ROOT) / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
        print(f"wrote {page}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
