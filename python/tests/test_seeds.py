"""A seed means the same in `talon run`, over HTTP and in Python."""

import json
import os
import re
import subprocess
import threading
import urllib.request

import pytest

import talon
from conftest import PROMPT, ROOT, run_program

TOKENS = 24


@pytest.fixture(scope="module")
def url():
    """The address of a server."""
    command = [os.environ["TALON_PROGRAM"], "serve", "--port", "0", "--threads", "1"]
    command += ["--generation-config", "none", "--speculative-algorithm", "NONE"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as server:
        for line in server.stderr:
            if found := re.match(r"listening on (\S+)", line):
                break
        reader = threading.Thread(target=server.stderr.read)  # or the log would fill the pipe
        reader.start()
        yield found[1]
        server.terminate()
        reader.join()


def text_of_run(seed):
    flags = ["--speculative-algorithm", "NONE", "--max-tokens", TOKENS, "--temperature", 1]
    return run_program("--prompt", PROMPT, "--seed", seed, *flags)["text"]


def text_of_http(url, seed):
    body = {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 1, "seed": seed}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["choices"][0]["text"]


def text_of_python(engine, seed):
    params = talon.SamplingParams(max_tokens=TOKENS, temperature=1.0, seed=seed)
    return engine.generate(PROMPT, params)[0].text


@pytest.mark.parametrize("seed", [0, 5, -5])
def test_a_seed_gives_the_same_text_everywhere(engine, url, seed):
    text = text_of_run(seed)
    assert text_of_http(url, seed) == text
    assert text_of_python(engine, seed) == text


def test_minus_one_is_random_everywhere(engine, url):
    texts = [text_of_run(-1) for _ in range(2)]
    texts += [text_of_http(url, -1) for _ in range(2)]
    texts += [text_of_http(url, None) for _ in range(2)]
    texts += [text_of_python(engine, seed) for seed in (-1, -1, None, None)]
    assert len(set(texts)) == len(texts)
