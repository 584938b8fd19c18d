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

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import figure_tables as tables  # noqa: E402
from figure_list import CPU, FIGURES, GPU, GPU_TITLES, RANKS  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 118  # columns of a command's line
EMPTY = {
    "cpu": "Run `make figures`.\n",
    "gpu": "Run `make gpu-figures`.\n",
    "ranks": "Run `make figures ARGS=--ranks`.\n",
}


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
        command = shlex.join(map(str, words))
        raise RuntimeError("\n".join([f"exit code {done.returncode}: {command}", *lines]))
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
