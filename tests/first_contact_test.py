"""What a new user tries first: works, or is told what to do instead.

Usage: first_contact_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import os
import pty
import select
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import *  # noqa: E402,F403

HEAD = ROOT / "models" / "tiny-eagle3"
POINTER = b"version https://git-lfs.example/spec/v1\noid sha256:4d7a\nsize 4976698672\n"


class WhatIsNotAModel(CliTest):
    """What people give as a model, and what they are told. The unit tests have more of it."""

    def refused(self, model, *expected, flags=()):
        self.assert_refused(talon("run", "--model", model, *flags), model, *expected)

    def model(self, *names):
        """A directory with these files of the bundled model."""
        path = self.path / "model"
        path.mkdir()
        for name in names:
            shutil.copy(TINY / name, path)
        return path

    def test_a_name_of_the_hub(self):
        self.refused("meta-llama/Llama-3.1-8B", "hf download meta-llama/Llama-3.1-8B")

    def test_a_gguf_file(self):
        self.refused(self.file("model.gguf", b"GGUF\x03\0\0\0"), "GGUF file", "safetensors")

    def test_weights_of_pytorch(self):
        path = self.model("config.json", "tokenizer.json")
        (path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
        self.refused(path, "pytorch_model.bin", "python3 -c", "save_pretrained")
        self.refused(path / "pytorch_model.bin", "python3 -c", f"give the directory: {path}")
        (path / "adapter.safetensors").write_bytes(b"")
        self.refused(path, "PyTorch's pytorch_model.bin", "python3 -c")

    def test_check_of_what_is_not_a_model(self):
        self.assert_refused(talon("check", "--model", "Qwen/Qwen3-0.6B"),
                            "hf download Qwen/Qwen3-0.6B")
        self.assert_refused(talon("check", "--model", self.file("m.gguf", b"GGUF\x03\0\0\0")),
                            "GGUF file")

    def test_pointers_of_git_lfs(self):
        path = self.model("config.json")
        (path / "model.safetensors").write_bytes(POINTER)
        self.refused(path, "model.safetensors", f"git -C {path} lfs pull")
        shutil.copy(TINY / "model.safetensors", path)
        (path / "tokenizer.json").write_bytes(POINTER)
        self.refused(path, "tokenizer.json", f"git -C {path} lfs pull")

    def test_a_link_that_leads_nowhere(self):
        path = self.model("config.json")
        (path / "model.safetensors").symlink_to("../../blobs/gone")
        self.refused(path, "model.safetensors", "symbolic link to '../../blobs/gone'")

    def test_a_tokenizer_of_sentencepiece(self):
        path = self.model("config.json", "model.safetensors")
        (path / "tokenizer.model").write_bytes(b"\n\x05<unk>")
        self.refused(path, "tokenizer.model", "AutoTokenizer")
        self.assert_refused(talon("tokenize", self.file("p.jsonl", ""), "--model", path),
                            "tokenizer.model", "AutoTokenizer")

    def test_a_draft_model_that_is_none(self):
        self.assert_refused(talon("run", "--speculative-draft-model-path", self.path),
                            "draft_model_path", self.path, "config.json")


class Flags(CliTest):
    def refused(self, *args):
        *args, expected = args
        self.assert_refused(talon(*args), *expected)

    def test_a_mistyped_flag_beside_a_prompt(self):
        self.refused("run", "--prompt", "hi", "--temprature", 0.3, ["--temperature?"])

    def test_flags_that_are_cut_short_or_of_other_engines(self):
        self.refused("run", "--temp", 0.3, ["--temperature?"])
        for flag in ("--tp", "--helpme"):
            result = talon("run", flag, 1)
            self.assert_refused(result, f"unknown flag {flag}")
            self.assertNotIn(b"did you mean", result.stderr)

    def test_flags_of_other_commands(self):
        self.refused("serve", "--max-rounds", 5, ["--max-rounds", "'talon run'"])
        self.refused("serve", "--target-address", "host:1", ["--target-address", "'talon run'"])
        text = talon("serve", "--help").stdout.decode()
        for flag in ("--target-address", "--max-rounds", "--max-output-tokens", "--telemetry"):
            self.assertNotIn(flag, text)
        settings = self.file("serve.yaml", "remote_config: {target_address: 'host:1'}")
        self.refused("serve", "--config", settings, ["target_address", "the server's model runs"])

    def test_origins_that_no_browser_sends(self):
        self.refused("serve", "--cors-origin", "example.com", ["'https://example.com'"])
        self.refused("serve", "--cors-origin", "https://example.com/", ["'https://example.com'"])

    def test_tokenize_without_a_file(self):
        self.refused("tokenize", ["FILE", "JSON lines"])

    def test_names_of_other_engines(self):
        plain = self.run_json("-m", TINY, "-p", "The sea", "-n", 5)
        flags = ["--disable-cuda-graph", "--enable-nan-detection", "--max-tokens", 5]
        same = self.run_json("The sea", "--model-path", TINY, *flags)
        self.assertEqual(plain["tokens"], same["tokens"])
        self.refused("run", "--enable-nan-detection", "false", ["enable_nan_detection", "always"])

    def test_a_schema_or_grammar_in_place_of_its_file(self):
        """It was taken for a file's name: "cannot open"."""
        for flag, text, form in [
            ("--json-schema", ' {"enum": ["left", "right"]}', r'"(left|right)"'),
            ("--grammar", 'root ::= "left" | "right"', "left|right"),
        ]:
            inline = self.run_json("Turn", flag, text, "-n", 20)["text"]
            self.assertRegex(inline, rf"\A({form})\Z")
            from_file = self.run_json("Turn", flag, self.file("form", text), "-n", 20)["text"]
            self.assertEqual(inline, from_file)
        missing = self.path / "missing"
        self.refused("run", "--json-schema", missing, ["json_schema", missing, "begins with {"])
        self.refused("run", "--grammar", missing, ["grammar", missing, "root ::="])
        self.refused("run", "--json-schema", '{"type": "strin"}', ["strin"])
        self.refused("run", "--json-schema", '{"type"', ["schema: not valid JSON at byte 8"])

    def test_a_limit_beyond_the_models(self):
        result = talon("run", "-n", 2, "--max-length", 9999999)
        self.assertEqual(result.returncode, 0)
        self.assertIn(b"max_length: 9999999, but the model's context is 32768", result.stderr)
        self.assertNotIn(b"max_length", talon("run", "-n", 2, "--max-length", 100).stderr)


class Prompts(CliTest):
    def test_a_prompt_without_a_flag(self):
        by_flag = self.run_json("--prompt", "Call me", "-n", 6)
        self.assertEqual(self.run_json("Call me", "-n", 6)["tokens"], by_flag["tokens"])
        self.assert_refused(talon("run", "Call", "me"), "'me'", "quotes")
        self.assert_refused(talon("run", TINY), "directory", "--model")

    def test_the_last_line_end_is_not_part_of_it(self):
        plain = self.run_json("The sea was", "-n", 6)
        for text in ("The sea was\n", "The sea was\r\n"):
            by_input = self.run_json("-", "-n", 6, stdin=text.encode())
            by_file = self.run_json("--prompt-file", self.file("p.txt", text), "-n", 6)
            self.assertEqual(by_input["tokens"], plain["tokens"])
            self.assertEqual(by_file["tokens"], plain["tokens"])
        two = self.run_json("-", "-n", 6, stdin=b"The sea was\n\n")
        self.assertEqual(two["stats"]["prompt_tokens"], plain["stats"]["prompt_tokens"] + 1)

    def test_long_prompts_are_not_echoed(self):
        long = "word " * 400
        self.assertLess(len(talon("run", long, "-n", 3).stdout), 200)  # three tokens
        self.assertTrue(talon("run", long, "-n", 3, "--echo").stdout.startswith(long.encode()))
        self.assertTrue(talon("run", "A word", "-n", 3).stdout.startswith(b"A word"))
        short = talon("run", "A word", "-n", 3, "--echo", "false").stdout
        self.assertNotIn(b"A word", short)

    def test_progress_of_a_long_prompt_on_a_terminal(self):
        terminal, side = pty.openpty()
        command = [program(), "run", "word " * 600, "-n", "2", "--prefill-chunk", "64"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=side)
        os.close(side)
        shown = b""
        while select.select([terminal], [], [], TIMEOUT_S)[0]:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # the other side is closed
                break
            shown += part
        os.close(terminal)
        self.assertEqual(process.wait(timeout=TIMEOUT_S), 0)
        self.assertRegex(shown, rb"prompt: 64 of \d+ tokens, \d+ tokens/s")


class Speculation(CliTest):
    def test_the_drafter_follows_from_the_draft_model(self):
        for path, name, words in ((HEAD, "EAGLE3,SUFFIX", b"an EAGLE-3 head"),
                                  (DRAFT, "STANDALONE", b"a model of its own")):
            flags = ["--speculative-draft-model-path", path, "-n", 4]
            result = talon("run", "--json", *flags)
            self.assertEqual(json.loads(result.stdout)["drafter"], name)
            self.assertIn(words, result.stderr)
            off = self.run_json(*flags, "--speculative-algorithm", "NONE")
            self.assertEqual(off["drafter"], "NONE")

    def test_it_is_on_by_default_and_does_not_change_the_text(self):
        flags = ["-n", 24, "--speculative-adaptive", "false"]
        drafted = self.run_json(*flags)
        self.assertEqual(drafted["drafter"], "EAGLE3,SUFFIX")
        self.assertGreater(drafted["stats"]["drafted"], 0)
        plain = self.run_json(*flags, "--speculative-algorithm", "NONE")
        self.assertEqual(plain["stats"]["drafted"], 0)
        self.assertEqual(drafted["tokens"], plain["tokens"])

    def test_a_head_in_the_models_folder_drafts(self):
        for model, drafter in ((LLAMA3, "EAGLE3,SUFFIX"), (QWEN3, "SUFFIX")):
            out = self.run_json("--model", model, "--prompt-tokens", "1,2,3,1,2,3", "-n", 4)
            self.assertEqual(out["drafter"], drafter)

    def test_the_table_explains_itself(self):
        result = talon("run", "--speculative-adaptive", "true", "--speculative-algorithm", "SUFFIX")
        table = result.stderr.decode()
        self.assertRegex(table, r"(?m)^speculation  SUFFIX, tau \d+\.\d+ \(tokens per pass of the m")
        self.assertRegex(table, r"(?m)^speed-up     [\d.]+x of plain decoding's \d+ tokens/s")

    def test_ngram_corpus(self):
        flags = ["-n", 32, "--speculative-adaptive", "false", "--speculative-algorithm", "NGRAM"]
        without = self.run_json(*flags)
        text = "Once upon a time there was a" + without["text"]
        corpus = self.file("corpus.txt", json.dumps(text) + "\n")
        known = self.run_json(*flags, "--ngram-corpus", corpus)
        self.assertEqual(known["tokens"], without["tokens"])
        self.assertGreater(known["stats"]["tau"], 1.5 * without["stats"]["tau"])
        self.assert_refused(talon("run", *flags, "--ngram-corpus", self.path / "none"), "none")


class DeadTarget(CliTest):
    def test_is_told_while_it_is_waited_for(self):
        command = [program(), "run", "--target-address", "127.0.0.1:1", "--timeout-s", "600"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        line = process.stderr.readline().decode()
        if "built without" in line:
            self.skipTest("needs gRPC")
        self.assertIn("target worker 127.0.0.1:1", line)
        self.assertIn("trying for 600 s", line)
        self.assertIsNone(process.poll())


if __name__ == "__main__":
    main()
