#!/usr/bin/env python3
"""Runs the talon program on token ids, which must work in builds without a tokenizer too.

    tests/cli_tokens_test.py PROGRAM
"""

import json
import sys

sys.dont_write_bytecode = True
from cli import LLAMA3, QWEN3, ROOT, TINY, CliTest, main, talon  # noqa: E402

PROMPTS = TINY / "prompts_tokens.jsonl"


def read_prompts():
    return [json.loads(line) for line in PROMPTS.read_text().splitlines()]


class Tokens(CliTest):
    def setUp(self):
        super().setUp()
        self.prompts = read_prompts()
        self.ids = self.prompts[0]["tokens"]
        self.list = ",".join(map(str, self.ids))
        texts = self.file("texts.jsonl", '{"prompt": "a"}')
        self.has_tokenizer = talon("tokenize", texts).returncode == 0

    def short_prompts(self, count=2):
        lines = [json.dumps(prompt) for prompt in self.prompts[:count]]
        return self.file("prompts.jsonl", "\n".join(lines))

    def test_the_bundled_prompts_are_small_and_one_is_long(self):
        self.assertLessEqual(PROMPTS.stat().st_size, 60_000)
        self.assertEqual(max(len(prompt["tokens"]) for prompt in self.prompts), 1500)

    def test_sources_of_ids_agree(self):
        flags = ["--max-tokens", 8]
        by_flag = self.run_json("--prompt-tokens", self.list, *flags)
        self.assertEqual(len(by_flag["tokens"]), 8)
        self.assertEqual(by_flag["stats"]["prompt_tokens"], len(self.ids))
        listed = self.file("ids.txt", self.list.replace(",", "\n"))
        for source in (f"@{listed}", f"@{PROMPTS}"):
            self.assertEqual(self.run_json("--prompt-tokens", source, *flags)["tokens"],
                             by_flag["tokens"])

    def test_text_where_there_is_a_tokenizer_else_ids(self):
        result = talon("run", "--prompt-tokens", self.list, "--max-tokens", 4)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        shown = result.stdout.decode()
        if self.has_tokenizer:
            self.assertTrue(shown.startswith("---\ntitle: "), shown)
        else:
            self.assertRegex(shown, rf"^{' '.join(map(str, self.ids))}( \d+){{4}}\n$")

    def test_ids_give_the_same_as_their_text_in_builds_with_a_tokenizer(self):
        if not self.has_tokenizer:
            self.skipTest("this build has no tokenizer")
        text = "The sea was"
        lines = talon("tokenize", self.file("one.jsonl", json.dumps({"prompt": text}))).stdout
        ids = ",".join(map(str, json.loads(lines)["tokens"]))
        flags = ["--max-tokens", 12]
        self.assertEqual(self.run_json("--prompt-tokens", ids, *flags)["text"],
                         self.run_json("--prompt", text, *flags)["text"])

    def test_tokenize_gives_the_bundled_prompts_in_builds_with_a_tokenizer(self):
        if not self.has_tokenizer:
            self.skipTest("this build has no tokenizer")
        docs = ROOT / "tests" / "data" / "prompts" / "docs.jsonl"
        lines = talon("tokenize", docs, "--only", "docs-0,docs-3").stdout.decode().splitlines()
        self.assertEqual([json.loads(line) for line in lines], self.prompts[:2])
        cut = talon("tokenize", docs, "--only", "docs-0", "--max-tokens", 5).stdout
        self.assertEqual(json.loads(cut)["tokens"], self.ids[:5])

    def test_speculation_gives_the_same_tokens(self):
        flags = ["--prompt-tokens", self.list, "--max-tokens", 16, "--speculative-adaptive=false"]
        plain = self.run_json(*flags)
        for algorithm in ("EAGLE3", "STANDALONE", "SUFFIX"):
            out = self.run_json(*flags, "--speculative-algorithm", algorithm)
            self.assertEqual(out["tokens"], plain["tokens"], algorithm)
            if algorithm == "EAGLE3":
                self.assertGreater(out["stats"]["accepted"], 0)

    def test_check(self):
        for arguments in (["--model", LLAMA3], ["--model", QWEN3],
                          ["--model", LLAMA3, "--draft", LLAMA3 / "eagle3"]):
            result = talon("check", *arguments)
            self.assertEqual(result.returncode, 0, result.stdout.decode() + result.stderr.decode())

    def test_benchmarks(self):
        figures = self.path / "figures.json"
        common = ["--speculative-adaptive=false", "--json", figures, "--repeats", 1]
        prompts = self.short_prompts()
        for arguments in (
            ["decode", "--prompts", prompts, "--modes", "plain,eagle3", "--max-tokens", 6],
            ["longcontext", "--prompts", prompts, "--contexts", 64, "--budgets", 16,
             "--modes", "plain,eagle3+specpv-exact", "--prompts-per-context", 1,
             "--specpv-partial-threshold", 16, "--max-tokens", 6],
        ):
            result = talon("bench", *arguments, *common)
            self.assertEqual(result.returncode, 0, result.stderr.decode())
            self.assertNotIn('"identical": false', figures.read_text())
        result = talon("bench", "verify", "--nodes", "1,2", "--depths", "0", "--repeats", 1)
        self.assertEqual(result.returncode, 0, result.stderr.decode())

    def test_bad_ids(self):
        for value, *expected in (("1,x", "'x'"), ("8192", "8192", "8191"), ("-1", "-1"),
                                 (",", "empty"), ("@none.txt", "none.txt")):
            with self.subTest(value=value):
                self.assert_refused(talon("run", f"--prompt-tokens={value}"), *expected)
        self.assert_refused(talon("run", "--prompt-tokens", "1", "--prompt", "a"), "--prompt")
        bad = self.file("bad.jsonl", '{"tokens": [0]}\n{"tokens": [8192]}\n')
        self.assert_refused(talon("bench", "decode", "--modes", "plain", "--prompts", bad),
                            "bad.jsonl:2", "8192")

    def test_text_is_refused_in_builds_without_a_tokenizer(self):
        if self.has_tokenizer:
            self.skipTest("this build has a tokenizer")
        prompts = self.file("texts.jsonl", '{"prompt": "The sea was"}')
        ids = ["--prompt-tokens", self.list]
        for arguments in (["run"], ["run", "--prompt", "a"], ["run", *ids, "--stop", "a"],
                          ["run", *ids, "--bad-words", "a"], ["tokenize", prompts],
                          ["bench", "decode", "--modes", "plain", "--prompts", prompts]):
            with self.subTest(arguments=arguments):
                self.assert_refused(talon(*arguments), "this build has no tokenizer", "PCRE2",
                                    "--prompt-tokens")


if __name__ == "__main__":
    main()
