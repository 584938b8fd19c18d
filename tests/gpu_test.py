#!/usr/bin/env python3
"""Runs the talon program on the GPU: golden references, and speculation against plain decoding.
Needs a GPU, so ctest runs it under the label `gpu` only.

    tests/gpu_test.py PROGRAM
"""

import json
import sys

sys.dont_write_bytecode = True
from cli import LLAMA3, ROOT, TINY, CliTest, main, talon  # noqa: E402

PROMPTS = TINY / "prompts_tokens.jsonl"
GPU = ["--device", "cuda"]


def golden_models():
    """Directories with references."""
    goldens = ROOT / "tests" / "data" / "goldens"
    return [TINY] + sorted(path.parent for path in goldens.glob("*/golden.safetensors"))


class Gpu(CliTest):
    def prompt(self, name):
        for line in PROMPTS.read_text().splitlines():
            entry = json.loads(line)
            if entry["id"] == name:
                return "@" + str(self.file(f"{name}.jsonl", line))
        raise KeyError(name)

    def passes(self, *arguments):
        result = talon(*arguments)
        self.assertEqual(result.returncode, 0, result.stdout.decode() + result.stderr.decode())

    def test_goldens(self):
        for model in golden_models():
            with self.subTest(model=model.name):
                self.passes("check", *GPU, "--model", model,
                            "--golden", model / "golden.safetensors")

    def test_eagle3_golden(self):
        self.passes("check", *GPU, "--model", LLAMA3, "--draft", LLAMA3 / "eagle3")

    def assert_same(self, name, variants, *flags):
        common = [*GPU, "--prompt-tokens", self.prompt(name), "--max-tokens", 96,
                  "--speculative-adaptive=false", *flags]
        plain = self.run_json(*common)
        self.assertEqual(len(plain["tokens"]), 96)
        for variant in variants:
            with self.subTest(prompt=name, variant=variant):
                out = self.run_json(*common, *variant)
                self.assertEqual(out["tokens"], plain["tokens"])
                self.assertGreater(out["stats"]["accepted"], 0)

    def test_speculation_gives_the_same_tokens(self):
        variants = [["--speculative-algorithm", name]
                    for name in ("EAGLE3", "STANDALONE", "NGRAM", "SUFFIX", "EAGLE3,SUFFIX")]
        for name in ("docs-0", "book-400-0"):
            self.assert_same(name, variants, "--ignore-eos")
            self.assert_same(name, variants[:1], "--ignore-eos", "--temperature", 0.8, "--seed", 7)

    def test_partial_verification_gives_the_same_tokens(self):
        partial = ["--speculative-algorithm", "EAGLE3", "--enable-specpv",
                   "--specpv-partial-threshold", 1024, "--specpv-n-retrieval-blocks", 32]
        self.assert_same("book-28000-0", [partial, [*partial, "--kv-offload"]], "--ignore-eos")

    def test_same_answer_twice(self):
        flags = [*GPU, "--prompt-tokens", self.prompt("book-400-1"), "--max-tokens", 64]
        self.assertEqual(self.run_json(*flags)["tokens"], self.run_json(*flags)["tokens"])

    def test_without_cuda_graphs_the_tokens_are_the_same(self):
        self.assert_same("docs-0", [["--speculative-algorithm", "EAGLE3", "--disable-cuda-graph"]],
                         "--ignore-eos")

    def test_a_kv_pool_beyond_the_memory_is_refused(self):
        result = talon("run", *GPU, "--prompt-tokens", 1, "--kv-tokens", 1 << 30)
        self.assert_refused(result, "GiB of device memory", "are free")

    def test_a_device_that_is_not_there(self):
        self.assert_refused(talon("run", "--device", "cuda:99", "--prompt-tokens", 1), "cuda:99")


if __name__ == "__main__":
    main()
