"""Conversations by the program: talon chat, talon show and talon bench tasks."""

import json
import os
import pty
import re
import select
import subprocess
import time

from cli import TIMEOUT_S, TINY, CliTest, main, program, talon
from server import Server

GREEDY = ["--temperature", 0, "--max-tokens", 12, "--ignore-eos"]


class Terminal:
    """The program on a terminal of its own. Use as a context."""

    def __init__(self, *args):
        self.shown = b""
        main, other = pty.openpty()
        self.main = main
        command = [program()] + [str(arg) for arg in args]
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other,
                                        start_new_session=True, preexec_fn=make_controlling(other))
        os.close(other)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.main)

    def type(self, text):
        os.write(self.main, text)

    def wait_for(self, pattern):
        """Until what is shown from here on has the pattern."""
        deadline = time.monotonic() + TIMEOUT_S
        while not re.search(pattern, self.shown):
            if time.monotonic() > deadline:
                raise AssertionError(f"{pattern} is not in {self.shown}")
            if select.select([self.main], [], [], 0.1)[0]:
                self.shown += os.read(self.main, 4096)
        self.shown = self.shown[re.search(pattern, self.shown).end():]


def make_controlling(terminal):
    """So that Ctrl-C becomes a signal."""
    def prepare():
        import fcntl
        import termios
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    return prepare


def has_line_editor():
    listed = subprocess.run(["ldd", program()], capture_output=True, check=False)
    return b"libedit" in listed.stdout


class Chat(CliTest):
    def chat(self, lines, *flags):
        result = talon("chat", *GREEDY, *flags, stdin=lines)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout

    def test_lines_of_a_pipe_are_messages(self):
        shown = self.chat(b"Hello\n/stats\n")
        self.assertRegex(shown, rb"12 tokens in \d+ passes: \d+\.\d\d tokens per pass")
        self.assertNotIn(b"\033", shown)

    def test_drafts_do_not_change_the_answers(self):
        lines = b'Hello\n"""two\nlines"""\n'
        plain = self.chat(lines, "--speculative-algorithm", "NONE")
        self.assertEqual(self.chat(lines, "--speculative-adaptive", "false"), plain)

    def prompts(self, lines, *flags):
        """The tokens of each prompt."""
        shown = self.chat(lines.replace(b"\n", b"\n/stats\n"), *flags)
        return [int(tokens) for tokens in re.findall(rb"prompt (\d+) tokens", shown)]

    def test_a_prompt_has_the_turns_before_and_the_system_prompt(self):
        first, second = self.prompts(b"Hello\nHello\n")
        self.assertGreater(second, first + 12)  # the answer
        (with_system,) = self.prompts(b"Hello\n", "--system", "Answer in capitals.")
        self.assertGreater(with_system, first)

    def test_a_server_gives_the_same_answers(self):
        with Server("--max-sequences", 1) as server:
            url = ["--url", f"http://127.0.0.1:{server.port}"]
            self.assertEqual(self.chat(b"Hello\nMore\n", *url, "--seed", 1),
                             self.chat(b"Hello\nMore\n", "--seed", 1))
            self.assertIn(b"12 tokens in ", self.chat(b"Hello\n/stats\n", *url))
            self.refused(url + ["--model", TINY], "--model", "server's to say")
        self.refused(url, "no answer")

    def test_a_server_may_ask_for_a_key(self):
        with Server("--api-key", "secret") as server:
            url = ["--url", f"http://127.0.0.1:{server.port}"]
            self.refused(url, "--api-key")
            self.assertTrue(self.chat(b"Hello\n", *url, "--api-key", "secret"))

    def test_refused(self):
        self.refused(["--url", "ftp://nowhere"], "ftp://nowhere")
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            (self.path / name).symlink_to(TINY / name)
        self.refused(["--model", self.path], "--chat-template")
        self.refused(["--chat-template", self.path / "none"], "none")

    def refused(self, flags, *words):
        self.assert_refused(talon("chat", *flags, stdin=b"Hello\n"), *words)


class ChatOnATerminal(CliTest):
    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        with Terminal("chat", "--max-tokens", 30000, "--ignore-eos", "--temperature", 0,
                      "--speculative-adaptive", "false") as terminal:
            terminal.wait_for(rb"drafter EAGLE3,SUFFIX")
            terminal.wait_for(rb"> ")
            terminal.type(b"Hello\r")
            terminal.wait_for(rb"\033\[32m")  # a draft
            terminal.type(b"\x03")
            terminal.wait_for(rb"\(stopped\)")
            terminal.wait_for(rb"> ")
            terminal.type(b"half a line\x03")
            terminal.wait_for(rb"> ")
            terminal.type(b"Again\r")
            terminal.wait_for(rb"\033\[32m")
            terminal.type(b"\x03")
            terminal.wait_for(rb"\(stopped\)")
            terminal.wait_for(rb"> ")
            terminal.type(b"/stats\r")
            terminal.wait_for(rb"tokens in \d+ passes")
            terminal.wait_for(rb"> ")
            if has_line_editor():
                terminal.type(b"\x1b[A\r")  # the last line once more
                terminal.wait_for(rb"tokens in \d+ passes")
                terminal.wait_for(rb"> ")
            terminal.type(b"\x04")
            self.assertEqual(terminal.process.wait(timeout=TIMEOUT_S), 0)


class Show(CliTest):
    def test_three_lines_at_the_end(self):
        result = talon("show", "--prompt", "Hello", *GREEDY)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        lines = result.stdout.decode().splitlines()
        self.assertEqual(lines[0], "> Hello")
        self.assertRegex(lines[-3], r"\d\.\d\d tokens per pass of the model: \d+ of 12 tokens were")
        self.assertRegex(lines[-2], r"\d\.\d\dx the speed of plain decoding: \d+ against \d+ tok.*"
                                    r"the same text")
        self.assertRegex(lines[-1], r"talon chat, or \S*talon serve")
        self.assertNotIn("\033", result.stdout.decode())

    def test_drafts_after_the_end_of_the_answer_are_not_counted(self):
        """Each pass but the last adds a token of the model's own."""
        result = talon("show", "--temperature", 0, "--speculative-adaptive", "false")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        line = result.stdout.decode().splitlines()[-3]
        tau, drafted, tokens = re.search(r"([\d.]+) tokens per .*: (\d+) of (\d+)", line).groups()
        passes = round(int(tokens) / float(tau))
        self.assertGreater(passes, 1, line)
        self.assertLessEqual(int(drafted), int(tokens) - (passes - 1), line)

    def test_colours_on_a_terminal(self):
        with Terminal("show", "--prompt", "Hello", *GREEDY) as terminal:
            terminal.wait_for(rb"\033\[1m> Hello")
            terminal.wait_for(rb"the same text")


class Tasks(CliTest):
    def bench(self, items, *flags):
        path = self.file("tasks.jsonl", "".join(json.dumps(item) + "\n" for item in items))
        out = self.path / "out.json"
        result = talon("bench", "tasks", "--tasks", path, "--json", out, *flags)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return json.loads(out.read_text()), result.stdout.decode()

    def item(self, name, kind, text, **answer):
        messages = [{"role": "user", "content": text}]
        return {"id": name, "kind": kind, "messages": messages, "max_tokens": 8, **answer}

    def test_right_answers_are_counted_by_kind(self):
        """The right answers are the model's own, so the test holds for every model."""
        asked = [self.item("a-1", "a", "One"), self.item("a-2", "a", "Two"),
                 self.item("b-1", "b", "Three")]
        answers = {one["id"]: one["text"] for one in self.bench(asked)[0]["answers"]}
        self.assertEqual(set(answers), {"a-1", "a-2", "b-1"})
        asked[0]["answer"] = answers["a-1"]
        asked[1]["answer"] = answers["a-2"] + "x"
        asked[2]["json"] = {"not": "what it says"}
        for flags in ([], ["--speculative-algorithm", "NONE"], ["--max-sequences", 1]):
            out, table = self.bench(asked, "--wrong", *flags)
            by_kind = {kind["kind"]: (kind["right"], kind["items"]) for kind in out["kinds"]}
            self.assertEqual(by_kind, {"a": (1, 2), "b": (0, 1)})
            self.assertEqual(out["all"]["right"], 1)
            self.assertRegex(table, r"(?m)^a +1 +2 +50\.0%")
            self.assertIn("a-2\n  expected ", table)

    def test_refused(self):
        asked = [self.item("a-1", "a", "One")]
        path = self.file("tasks.jsonl", json.dumps(asked[0]))
        self.assert_refused(talon("bench", "tasks", "--tasks", path, "--kinds", "c"), "'c'")
        self.assert_refused(talon("bench", "tasks", "--tasks", self.path / "none"), "none")
        self.assert_refused(talon("bench", "tasks", "--tasks", self.file("bad.jsonl", "[]\n")),
                            "bad.jsonl:1")


if __name__ == "__main__":
    main()
