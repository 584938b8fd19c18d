"""The talon program as its users meet it: what it prints, and how it refuses bad input.

Usage: cli_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import os
import re
import signal
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import *  # noqa: E402,F403


class BadFlags(CliTest):
    """Bad prompts, numbers, names and settings files, on the bundled model."""

    def refused(self, args, *expected, stdin=b""):
        with self.subTest(args=args):
            self.assert_refused(talon("run", *args, stdin=stdin), *expected)

    def test_prompts(self):
        self.refused(["--prompt", b"caf\xe9"], "prompt", "byte 3")
        self.refused(["-"], "byte 0", stdin=b"\xff\xfe")
        self.refused(["--prompt", ""], "prompt: empty")
        self.refused(["-"], "prompt: empty")
        self.refused(["--prompt-file", self.file("empty.txt", "")], "prompt: empty")
        self.refused(["--prompt-file", self.path / "none.txt"], "none.txt")
        self.refused(["--prompt-file", self.path], self.path, "directory")
        self.refused(["--prompt", "a", "-"], "--prompt")

    def test_prompt_longer_than_the_context(self):
        prompt = self.file("long.txt", "word " * 40000)
        self.refused(["--prompt-file", prompt], "32768")
        self.refused(["--prompt", "word " * 100, "--max-length", 64], "64")

    def test_pool_too_small(self):
        self.refused(["--kv-tokens", 16, "--prompt", "word " * 30], "kv", "blocks")

    def test_token_ids_past_the_vocabulary(self):
        self.refused(["--stop-token-ids", 8192], "stop_token_ids", "8192")
        self.refused(["--stop-token-ids", "1,-1"], "stop_token_ids", "-1")
        self.refused(["--logit-bias", "8192=1"], "logit_bias", "8192")
        self.refused(["--logit-bias", "-1=1"], "logit_bias", "-1")

    def test_malformed_values(self):
        self.refused(["--logit-bias", "17"], "logit_bias", "17")
        self.refused(["--logit-bias", "17=1x"], "logit_bias", "17=1x")
        self.refused(["--max-tokens", "many"], "--max-tokens", "many")
        self.refused(["--max-tokens", 1 << 40], "--max-tokens")
        self.refused(["--seed", 1 << 64], "--seed", 1 << 64)
        self.refused(["--ignore-eos", "-"], "--ignore-eos")

    def test_sizes_out_of_range(self):
        for flag in ("max-tokens", "threads", "kv-tokens", "max-length", "prefill-chunk",
                     "max-sequences", "block-size", "min-tokens", "top-k",
                     "speculative-num-steps", "speculative-eagle-topk",
                     "speculative-num-draft-tokens", "scv-chunk-size", "ngram-max-depth"):
            key = flag.replace("speculative-", "").replace("-", "_")
            self.refused([f"--{flag}", -3], key, "-3")
        self.refused(["--block-size", 24], "block_size", "24")
        # Where the system promises memory that it does not have, the run just succeeds.
        overcommit = talon("run", "--kv-tokens", 1 << 30, "--max-tokens", 1, "--prompt", "x")
        if overcommit.returncode != 0:
            self.assert_refused(overcommit, "memory")

    def test_shares_out_of_range(self):
        for flag in ("top-p", "min-p", "draft-min-prob", "speculative-accept-threshold-single",
                     "speculative-accept-threshold-acc"):
            key = flag.replace("speculative-", "").replace("-", "_")
            for value in ("-0.5", "1.5", "nan"):
                self.refused([f"--{flag}", value], key, value)
        for value in ("-1", "nan", "inf"):
            self.refused(["--temperature", value], "temperature", value)

    def test_unknown_names(self):
        self.refused(["--weights", "int3"], "weights", "int3", "int8 or int4")
        self.refused(["--activations", "int8"], "activations", "int8", "auto or fp8")
        self.refused(["--activations", "fp8", "--weights", "int8"],
                     "activations: fp8, but no dense layer of the model has fp8 weights")
        self.refused(["--kv-dtype", "int4"], "kv_dtype", "int4", "bf16")
        for device in ("tpu", "cuda:x", "cpu:0"):
            self.refused(["--device", device], "device", device, "cuda:N")
        self.refused(["--log-level", "loud"], "log_level", "loud")
        self.refused(["--speculative-acceptance", "maybe"], "acceptance", "maybe")
        self.refused(["--speculative-algorithm", "MAGIC"], "MAGIC", "NGRAM", "STANDALONE")
        self.refused(["--speculative-algorithm", "NEXTN"], "NEXTN", "multi-token prediction layers")
        for name in ("EAGLE", "DFLASH", "DSPARK"):
            self.refused(["--speculative-algorithm", name], name, "--speculative-draft-model-path")

    def test_partial_verification(self):
        for flag in ("block-size", "n-sink-blocks", "n-retrieval-blocks", "n-window-blocks",
                     "n-spec-tokens-buf", "partial-threshold", "full-refresh-interval"):
            key = "specpv_" + flag.replace("-", "_")
            self.refused([f"--specpv-{flag}", -3], key, "-3")
            self.refused([f"--specpv-{flag}", "some"], f"--specpv-{flag}", "some", "whole number")
        self.refused(["--specpv-n-window-blocks", 0], "specpv_n_window_blocks", "0", "1 to")
        for flag in ("shadow-rate", "error-target"):
            for value in ("-0.5", "1.5", "nan"):
                self.refused([f"--specpv-{flag}", value], "specpv_" + flag.replace("-", "_"), value)
        self.refused(["--specpv-mode", "quick"], "specpv_mode", "quick", "exact or fast")
        self.refused(["--specpv-selector", "best"], "specpv_selector", "best", "quest_bound")
        self.refused(["--specpv-reduce", "last"], "specpv_reduce", "last", "mean, max or root")
        self.refused(["--enable-specpv", "perhaps"], "--enable-specpv", "perhaps")
        self.refused(["--specpv-modes", "fast"], "--specpv-modes", "--specpv-mode?")

    def test_unknown_flags_name_the_nearest(self):
        self.refused(["--temperatur", 1], "--temperatur", "--temperature?", "talon run --help")
        self.refused(["--kv_dtype=f16"], "--kv_dtype", "--kv-dtype?")
        self.refused(["--zzzzzzzzzzzz"], "--zzzzzzzzzzzz")
        self.refused(["-t", 4], "-t")
        self.assert_refused(talon("--model", "x", "run"), "--model", "after 'talon run'")

    def test_unknown_commands(self):
        self.assert_refused(talon(), "run", "check", "bench")
        self.assert_refused(talon("rum"), "rum", "did you mean run?")
        self.assert_refused(talon("bench", "decod"), "decod", "did you mean decode?")
        self.assert_refused(talon("bench", "decode", "--nope"), "talon bench decode --help")

    def test_standalone_drafters(self):
        standalone = ["--speculative-algorithm", "STANDALONE"]
        path = "--speculative-draft-model-path"
        self.refused(standalone + ["--model", TINY], path)
        self.refused(standalone + [path, self.path / "none"], "none")
        self.refused(standalone + [path, LLAMA3], "512", "8192")
        both = "EAGLE3,STANDALONE"
        self.refused(["--speculative-algorithm", both], both, "one draft_model_path")

    def test_flags_that_would_be_ignored(self):
        self.refused(["--logprobs", 2], "--logprobs", "--json")
        self.refused(["--max-output-tokens", 2], "--max-output-tokens", "--target-address")
        target = ["--target-address", "127.0.0.1:1"]
        self.refused(target + ["--weights", "int8"], "--weights", "target worker")

    def test_bench_gpu_without_a_device(self):
        self.assert_refused(talon("bench", "gpu"), "--device cuda")

    def test_tokenize_only_what_is_there(self):
        prompts = self.file("prompts.jsonl", '{"id": "a", "prompt": "one"}\n')
        self.assert_refused(talon("tokenize", prompts, "--only", "a,nope"), "nope", prompts)

    def test_settings_files(self):
        cases = [
            ("max_tokens: [1", "1", "YAML"),
            ("\tmax_tokens: 1", "1", "YAML"),
            ("- max_tokens", "not a map"),
            ("model: m\nmax_token: 3", "2", "max_token", "'max_tokens'?"),
            ("max_tokens: many", "1", "max_tokens", "many", "whole number"),
            ("temperature: {a: 1}", "temperature", "a map"),
            ("ignore_eos: perhaps", "ignore_eos", "perhaps", "true or false"),
            ("model:", "model", "no value"),
            ("num_steps: 3", "num_steps", "speculative_config"),
            ("speculative_config: NGRAM", "speculative_config", "map"),
            ("speculative_config:\n  methd: NGRAM", "2", "methd", "'method'?"),
            ("speculative_config: {method: MAGIC}", "MAGIC", "NGRAM"),
            ("speculative_config: {num_steps: -3}", "num_steps", "-3"),
            ("speculative_config: {specpv_mode: quick}", "specpv_mode", "quick"),
            ("speculative_config: {specpv_full_refresh_steps: 0}", "full_refresh", "0"),
            ("enable_specpv: true", "1", "enable_specpv", "speculative_config"),
        ]
        for text, *expected in cases:
            self.refused(["--config", self.file("talon.yaml", text)], *expected)
        self.refused(["--config", self.path / "none.yaml"], "none.yaml")

    def test_check_without_references(self):
        self.assert_refused(talon("check", "--model", DRAFT), DRAFT, "--golden")
        self.assert_refused(talon("check", "--golden", self.path / "none"), "none")
        self.assert_refused(talon("check", "--draft", self.path / "none"), "none", "no such dir")
        golden = self.file("golden.safetensors", "short")
        self.assert_refused(talon("check", "--golden", golden), golden)


class GoodRuns(CliTest):
    def test_a_bare_flag_means_true(self):
        """Once it meant its default."""
        flags = ["--max-tokens", 6, "--prompt", "The", "--enable-specpv", "--specpv-mode", "fast",
                 "--enable-nwor", "false"]
        result = talon("run", *flags)
        self.assert_refused(result, "enable_specpv", "enable_nwor")

    def test_default_run_streams_text_then_a_table(self):
        result = talon("run")
        self.assertEqual(result.returncode, 0, result.stderr)
        text, table = result.stdout.decode(), result.stderr.decode()
        self.assertTrue(text.startswith("Once upon a time there was a "), text)
        for row in ("model", "device", "loaded +in [0-9.]+ s", "prompt", "first token +after [0-9.]+ s",
                    "generated +128 tokens", "seed", "memory"):
            self.assertRegex(table, rf"(?m)^{row}")

    def test_tables_and_help_fit_80_columns(self):
        table = talon("run", "--speculative-algorithm", "NGRAM",
                      "--speculative-adaptive", "true").stderr.decode()
        self.assertRegex(table, r"(?m)^speculation  NGRAM, tau \d")
        self.assertRegex(table, r"(?m)^speed-up     \d+\.\d+x of plain decoding's \d+ tokens/s, \d")
        outputs = [line for line in table.splitlines() if not line.startswith("model")]
        for command in ("", "run", "chat", "show", "bench tasks", "check", "bench", "bench decode", "bench longcontext",
                        "bench simulate", "bench verify", "doctor", "tokenize"):
            result = talon(*command.split(), "--help")
            self.assertEqual(result.returncode, 0)
            outputs += result.stdout.decode().splitlines()
        self.assertEqual([line for line in outputs if len(line) > 80], [])

    def test_help_shows_flags_with_defaults(self):
        text = re.sub(r"\s+", " ", talon("run", "--help").stdout.decode())
        self.assertIn(
            "--kv-dtype TEXT Type of the KV cache; fp8 (e4m3) and int8 have a scale for each token and "
            "head: f32, f16, bf16, fp8, fp8_e4m3 (the same) or int8 (default bf16)",
            text,
        )
        self.assertIn("--max-tokens N New tokens at most; 1 or more (default 128)", text)

    def test_version(self):
        self.assertRegex(talon("--version").stdout.decode(),
                         r"^talon \d+\.\d+\.\d+ \(devices: cpu[^\n]*\)\n$")

    def test_json(self):
        out = self.run_json("--max-tokens", 12, "--logprobs", 2, "--seed", 5,
                            "--speculative-algorithm", "NONE")
        self.assertEqual(out["seed"], 5)
        self.assertEqual(out["finish_reason"], "length")
        self.assertEqual(len(out["tokens"]), 12)
        self.assertEqual(out["stats"]["generated_tokens"], 12)
        self.assertEqual(out["stats"]["tau"], 1)
        self.assertEqual([len(entry["top"]) for entry in out["logprobs"]], [2] * 12)
        self.assertTrue(out["text"])

    def test_reported_seed_repeats_the_text(self):
        sampling = ["--temperature", 1, "--max-tokens", 30]
        first = self.run_json(*sampling)
        again = self.run_json(*sampling, "--seed", first["seed"])
        other = self.run_json(*sampling, "--seed", first["seed"] + 1)
        self.assertEqual(first["tokens"], again["tokens"])
        self.assertNotEqual(first["tokens"], other["tokens"])

    def test_prompt_sources_agree(self):
        prompt = "The caf\u00e9 by the sea"
        flags = ["--max-tokens", 10]
        by_flag = self.run_json("--prompt", prompt, *flags)
        by_file = self.run_json("--prompt-file", self.file("prompt.txt", prompt), *flags)
        by_input = self.run_json("-", *flags, stdin=prompt.encode())
        self.assertEqual(by_flag["tokens"], by_file["tokens"])
        self.assertEqual(by_flag["tokens"], by_input["tokens"])

    def test_stop_string_cuts_the_text(self):
        whole = self.run_json("--max-tokens", 40)["text"]
        stop = whole.split()[8]
        cut = self.run_json("--max-tokens", 40, "--stop", stop)
        self.assertEqual(cut["text"], whole[: whole.index(stop)])
        self.assertEqual(cut["finish_reason"], "stop")

    def test_bad_words_stay_out_of_the_middle_of_a_sentence(self):
        arguments = ["--prompt", "Once upon a time there was a", "--max-tokens", 60]
        words = re.findall(r"(?<= )[a-z]{4,}(?=[ .,])", self.run_json(*arguments)["text"])
        word = max(words, key=words.count)
        text = self.run_json(*arguments, "--bad-words", word)["text"]
        self.assertNotRegex(text, rf"\b{word}\b")
        # With its space it is one spelling, as before.
        text = self.run_json(*arguments, "--bad-words", f" {word}")["text"]
        self.assertNotRegex(text, rf" {word}\b")

    def test_stop_token_and_min_tokens(self):
        tokens = self.run_json("--max-tokens", 12)["tokens"]
        stop = tokens[3]
        cut = self.run_json("--max-tokens", 12, "--stop-token-ids", stop)["tokens"]
        self.assertEqual(cut, tokens[: tokens.index(stop) + 1])
        held = self.run_json("--max-tokens", 12, "--stop-token-ids", stop, "--min-tokens", 8)
        self.assertNotIn(stop, held["tokens"][:8])

    def test_flags_win_over_the_settings_file(self):
        config = self.file(
            "talon.yaml",
            f"model: {TINY}\nmax_tokens: 5\ntemperature: 0.7\nseed: 11\nkv_dtype: f32\n"
            "speculative_config:\n  method: NGRAM\n  adaptive: false\n",
        )
        by_file = self.run_json("--config", config)
        self.assertEqual(len(by_file["tokens"]), 5)
        self.assertEqual((by_file["seed"], by_file["drafter"]), (11, "NGRAM"))
        by_flags = self.run_json("--config", config, "--max-tokens", 7, "--seed", 12,
                                 "--speculative-algorithm", "NONE")
        self.assertEqual(len(by_flags["tokens"]), 7)
        self.assertEqual((by_flags["seed"], by_flags["drafter"]), (12, "NONE"))

    def test_without_target_trees_decoding_is_plain(self):
        out = self.run_json("--max-tokens", 4, "--speculative-algorithm", "NGRAM",
                            "--enable-target-tree", "false")
        self.assertEqual(out["drafter"], "NONE")

    def test_show_drafts_only_adds_colour(self):
        flags = ["--max-tokens", 60, "--temperature", 0,
                 "--prompt", "One \u2014 two \u2014 one \u2014 two \u2014 one",
                 "--speculative-algorithm", "SUFFIX", "--speculative-adaptive", "false"]
        plain = talon("run", *flags).stdout
        coloured = talon("run", *flags, "--show-drafts").stdout
        self.assertIn(b"\033[32m", coloured)
        self.assertEqual(re.sub(rb"\033\[[0-9;]*m", b"", coloured), plain)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_full_disk_is_a_failure_where_dev_full_exists(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([program(), "run", "--max-tokens", "4"], stdout=full,
                                    stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"standard output", result.stderr)

    def test_weights_and_kv_types(self):
        for weights in ("f32", "f16", "bf16", "int8", "int4"):
            out = self.run_json("--weights", weights, "--max-tokens", 3)
            self.assertEqual(len(out["tokens"]), 3)
        for kv_dtype in ("f32", "f16", "fp8", "FP8_E4M3", "int8"):
            out = self.run_json("--kv-dtype", kv_dtype, "--max-tokens", 3)
            self.assertEqual(len(out["tokens"]), 3)


class SameTokens(CliTest):
    """Speculation changes the speed and nothing else."""

    PROMPT = "The sun rose over the hills, and the sun set over the hills, and the sun"
    STANDALONE = ["--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", DRAFT]
    MODES = {
        "ngram": ["--speculative-algorithm", "NGRAM"],
        "ngram prob": ["--speculative-algorithm", "NGRAM", "--ngram-mode", "PROB"],
        "suffix": ["--speculative-algorithm", "suffix"],
        "chain": STANDALONE,
        "tree": STANDALONE + ["--speculative-eagle-topk", 3, "--speculative-num-steps", 3,
                              "--speculative-num-draft-tokens", 12],
        "bundled drafts in a list": ["--speculative-algorithm", "STANDALONE,SUFFIX"],
        "chunked": STANDALONE + ["--speculative-num-steps", 8, "--scv-chunk-size", 4],
        "written at once": ["--speculative-algorithm", "NGRAM", "--enable-nwor", "false"],
    }

    def compare(self, *sampling):
        flags = ["--prompt", self.PROMPT, "--max-tokens", 64, "--kv-audit", *sampling]
        plain = self.run_json(*flags, "--speculative-algorithm", "NONE")
        self.assertEqual(plain["stats"]["drafted"], 0)
        for name, mode in self.MODES.items():
            with self.subTest(mode=name):
                out = self.run_json(*flags, *mode)
                self.assertEqual(out["tokens"], plain["tokens"])
                self.assertEqual(out["text"], plain["text"])
                self.assertGreater(out["stats"]["drafted"], 0)
        with self.subTest(mode="adaptive"):
            out = self.run_json(*flags, *self.STANDALONE, "--speculative-adaptive", "true")
            self.assertEqual(out["tokens"], plain["tokens"])

    def test_greedy(self):
        self.compare()

    def test_trees_that_are_written_at_once_have_room(self):
        flags = ["--max-tokens", 40, "--speculative-algorithm", "EAGLE3",
                 "--speculative-num-steps", 5, "--speculative-eagle-topk", 8,
                 "--speculative-num-draft-tokens", 64, "--speculative-adaptive", "false"]
        staged = self.run_json(*flags)
        direct = self.run_json(*flags, "--enable-nwor", "false")
        self.assertEqual(direct["stats"]["passes"], staged["stats"]["passes"])
        self.assertGreater(direct["stats"]["tau"], 1)
        self.assertNotIn("nwor_fallback_total", str(direct["metrics"]))

    def test_seeded(self):
        self.compare("--temperature", 0.8, "--seed", 42, "--top-p", 0.95,
                     "--repetition-penalty", 1.1)

    def test_greedy_with_4_bit_weights(self):
        self.compare("--weights", "int4", "--speculative-draft-weights", "int4")

    def test_speculation_accepts_drafts(self):
        out = self.run_json("--prompt", self.PROMPT, *self.MODES["tree"],
                            "--speculative-adaptive", "false")
        self.assertGreater(out["stats"]["tau"], 1.2)
        self.assertIn("draft", out["origins"])

    def test_suffix_corpus(self):
        flags = ["--max-tokens", 32, "--speculative-adaptive", "false"]
        suffix = [*flags, "--speculative-algorithm", "SUFFIX"]
        plain = self.run_json(*flags, "--speculative-algorithm", "NONE",
                              "--suffix-corpus", self.path / "none")  # no use for it
        answer = json.dumps({"prompt": "Once upon a time there was a" + plain["text"]})
        corpus = self.file("corpus.txt", f"[1] A note.\n{answer}\n")
        known = self.run_json(*suffix, "--suffix-corpus", corpus)
        self.assertEqual(known["tokens"], plain["tokens"])
        self.assertGreater(known["stats"]["tau"], 1.5 * self.run_json(*suffix)["stats"]["tau"])
        self.assert_refused(talon("run", *suffix, "--suffix-corpus", self.path / "none"), "none")

    def test_threshold_acceptance_says_that_it_is_lossy(self):
        flags = ["--temperature", 1, "--max-tokens", 40, "--speculative-adaptive", "false",
                 *self.STANDALONE]
        self.assertFalse(self.run_json(*flags)["stats"]["lossy"])
        result = talon("run", "--json", *flags, "--speculative-accept-threshold-single", 0.3)
        self.assertTrue(json.loads(result.stdout)["stats"]["lossy"])
        self.assertIn(b"lossy", result.stderr)

    def test_verify_curve_is_saved_and_loaded(self):
        curve = self.path / "curve.json"
        flags = ["--max-tokens", 4, "--speculative-algorithm", "NGRAM",
                 "--speculative-adaptive", "true", "--speculative-verify-curve", curve]
        self.run_json(*flags)
        saved = curve.read_bytes()
        self.run_json(*flags)
        self.assertEqual(curve.read_bytes(), saved)
        curve.write_text("{}")
        self.assert_refused(talon("run", *flags), curve)


class Check(CliTest):
    def test_bundled_model_passes(self):
        result = talon("check", "--model", TINY)
        self.assertEqual(result.returncode, 0, result.stdout.decode())
        last = result.stdout.decode().splitlines()[-1]
        self.assertRegex(last, r"^[1-9]\d* passed, 0 failed$")

    def test_wrong_reference_fails(self):
        result = talon("check", "--model", LLAMA3, "--golden", QWEN3 / "golden.safetensors")
        self.assertEqual(result.returncode, 1, result.stderr.decode())
        self.assertRegex(result.stdout.decode(), r"(?m)^FAIL ")
        self.assertRegex(result.stdout.decode().splitlines()[-1], r"^\d+ passed, [1-9]\d* failed$")

    def test_perplexity_of_quantised_weights(self):
        text = self.file("text.txt", "The list of names is sorted by length. " * 8)
        result = talon("check", "--perplexity", text, "--weights", "int4", "--kv-dtype", "f32")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        values = re.findall(r"^(?:perplexity|against) +([0-9.]+) ", result.stdout.decode(), re.M)
        change = float(re.search(r"^change +([-+0-9.]+)%$", result.stdout.decode(), re.M)[1])
        self.assertNotEqual(*values)
        self.assertAlmostEqual(change, 100 * (float(values[0]) / float(values[1]) - 1), 1)
        self.assert_refused(talon("check", "--perplexity", self.file("a", "")), "two tokens")
        self.assert_refused(talon("check", "--against", TINY), "--perplexity")

    def test_changed_tokenizer_reference_fails(self):
        cases = json.loads((TINY / "tokenizer_golden.json").read_text())[:3]
        cases[1]["ids"] = cases[1]["ids"] + [7]
        golden = self.file("golden.json", json.dumps(cases))
        result = talon("check", "--tokenizer-golden", golden)
        self.assertEqual(result.returncode, 1, result.stderr.decode())
        self.assertEqual(result.stdout.decode().splitlines()[-1], "2 passed, 1 failed")


class Interrupt(CliTest):
    def interrupt(self, *args):
        """Sends SIGINT once text has begun to come; returns stdout, stderr and the exit code."""
        process = subprocess.Popen(
            [program(), "run", "--ignore-eos", "--max-tokens", "30000", *args],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        begun = os.read(process.stdout.fileno(), 64)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=TIMEOUT_S)
        return begun + out, error.decode(), process.returncode

    def test_ends_with_the_statistics_so_far(self):
        text, table, code = self.interrupt()
        self.assertEqual(code, 0, table)
        self.assertTrue(text.endswith(b"\n"))
        self.assertRegex(table, r"(?m)^generated +[1-9]\d* tokens, \d+ tokens/s, ended by cancel")

    def test_while_speculating(self):
        _, table, code = self.interrupt("--speculative-algorithm", "SUFFIX",
                                        "--speculative-adaptive", "false")
        self.assertEqual(code, 0, table)
        self.assertRegex(table, r"(?m)^speculation  SUFFIX, tau ")


if __name__ == "__main__":
    main()
