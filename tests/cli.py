"""What the tests of the talon program share."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

TIMEOUT_S = 300  # until something counts as hung; machines may be slow, busy or stopped for seconds
ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = ROOT / "models" / "tiny"
DRAFT = ROOT / "models" / "tiny-draft"
EAGLE3 = ROOT / "models" / "tiny-eagle3"
LLAMA3 = ROOT / "tests" / "data" / "goldens" / "llama3"
QWEN3 = ROOT / "tests" / "data" / "goldens" / "qwen3"


def program():
    """The path of the program, the first argument of every test."""
    return sys.argv[1]


# Tests run side by side, so one thread each is fastest; measuring a verify curve takes longer than
# most of what is run; and the sampling that the bundled model suggests has another seed each time.
DEFAULTS = {"--threads": "1", "--speculative-adaptive": "false", "--generation-config": "none"}


def defaults(flags):
    """DEFAULTS but for what `flags` already say."""
    given = [str(flag) for flag in flags]
    missing = [name for name in DEFAULTS if not any(name in flag for flag in given)]
    return [word for name in missing for word in (name, DEFAULTS[name])]


def talon(*args, stdin=b""):
    """Runs the program, `talon run` and `serve` with DEFAULTS. Arguments may be paths or bytes."""
    if args[:1] in (("run",), ("serve",)):
        args = (args[0], *defaults(args), *args[1:])
    command = [program()] + [arg if isinstance(arg, bytes) else str(arg) for arg in args]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)


def wait_for(pattern, read, process):
    """The match of a pattern in what `read` returns, once the running process has written it."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        ended = process.poll() is not None or time.monotonic() > deadline
        text = read()
        found = re.search(pattern, text)
        if found:
            return found
        if ended:
            raise AssertionError(f"{pattern} is not in the output:\n{text}")
        time.sleep(0.02)


def read_safetensors(path):
    """The header as a dict, and the data after it."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def write_safetensors(path, header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def write_broken_model(path):
    """The bundled model with NaN for every weight."""
    path.mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(TINY / name, path)
    header, data = read_safetensors(TINY / "model.safetensors")
    write_safetensors(path / "model.safetensors", header, b"\xff" * len(data))
    return path


class CliTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = pathlib.Path(self.directory.name)

    def file(self, name, content):
        path = self.path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def assert_refused(self, result, *expected):
        """Exit code 2, nothing on stdout, one line on stderr that has all of `expected`."""
        error = result.stderr.decode(errors="replace")
        self.assertEqual(result.returncode, 2, error)
        self.assertEqual(result.stdout, b"")
        self.assertRegex(error, r"\Atalon: [^\n]+\n\Z")
        for part in expected:
            self.assertIn(str(part), error)

    def run_json(self, *args, stdin=b""):
        result = talon("run", "--json", *args, stdin=stdin)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return json.loads(result.stdout)


def main():
    sys.argv[1] = os.path.abspath(sys.argv[1])
    os.chdir(ROOT)
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:])
