"""The talon program's commands around drafts: goldens of heads, the doctor, long contexts.

Usage: cli_draft_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import re
import shutil
import struct
import subprocess
import sys

sys.dont_write_bytecode = True  # leaves nothing beside the sources
import eagle3_golden  # noqa: E402
import head_goldens  # noqa: E402
from cli import *  # noqa: E402,F403


class CheckEagle3(CliTest):
    """`check --draft`: heads of every option and spelling against plain Python references."""

    BASE = {
        "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "vocab_size": 512, "draft_vocab_size": 160, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "max_position_embeddings": 4096}
    LAYERS = "eagle_aux_hidden_state_layer_ids"

    def make_head(self, config, rename=lambda name: name):
        target = eagle3_golden.read_tensors(LLAMA3 / "model.safetensors")
        known = eagle3_golden.read_tensors(LLAMA3 / "golden.safetensors")
        hidden = {layer: known[f"short.hidden.{layer}"] for layer in range(8)}
        head = eagle3_golden.Head(config, target, num_layers=8)
        golden = head.golden(known["short.input_ids"], known["short.greedy"][0], hidden,
                             k=3, steps=4, kept=11)
        self.file("config.json", json.dumps(config))
        eagle3_golden.write_tensors(self.path / "model.safetensors", head.checkpoint(rename))
        eagle3_golden.write_tensors(self.path / "golden.safetensors", golden)
        return golden

    def assert_passes(self, *args):
        result = talon("check", "--model", LLAMA3, "--draft", *args)
        lines = result.stdout.decode().splitlines()
        self.assertEqual(result.returncode, 0, "\n".join(lines) + result.stderr.decode())
        self.assertEqual(lines[-1], "7 passed, 0 failed")

    def test_golden_head(self):
        self.assert_passes(LLAMA3 / "eagle3", "--golden", LLAMA3 / "eagle3/golden.safetensors")

    def test_plain_head(self):
        self.make_head(self.BASE)
        self.assert_passes(self.path)

    def test_options_and_output_indices(self):
        self.make_head({**self.BASE, "norm_before_residual": True, "norm_before_fc": True,
                        "norm_output": True, "logit_scale": 0.5, "bias": True,
                        "attention_bias": True, "eagle_config": {self.LAYERS: [0, 2, 5]}})
        self.assert_passes(self.path)

    def test_other_hidden_size_with_own_embeddings(self):
        self.make_head({**self.BASE, "hidden_size": 48, "target_hidden_size": 64, "fc_norm": True,
                        "num_attention_heads": 6, self.LAYERS: [1, 3, 6]})
        self.assert_passes(self.path)

    def test_speculators_file_with_shared_head(self):
        layer = {key: value for key, value in self.BASE.items() if key != "draft_vocab_size"}
        self.make_head({"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
                        "transformer_layer_config": layer, self.LAYERS: [3, 7]},
                       lambda name: "model." + name.replace("midlayer.", "layers.0."))
        self.assert_passes(self.path)

    def test_differences_fail(self):
        golden = self.make_head(self.BASE)
        dtype, shape, tokens = golden["tree.tokens"]
        golden["tree.tokens"] = (dtype, shape, tokens[:-1] + [tokens[-1] ^ 1])
        golden["prefill.logits"][2][7] += 0.01
        eagle3_golden.write_tensors(self.path / "golden.safetensors", golden)
        result = talon("check", "--model", LLAMA3, "--draft", self.path)
        self.assertEqual(result.returncode, 1, result.stderr.decode())
        failed = [line for line in result.stdout.decode().splitlines() if line.startswith("FAIL")]
        self.assertEqual(len(failed), 2, failed)
        self.assertIn("prefill logits", failed[0])
        self.assertIn("tree tokens", failed[1])

    def test_bad_input(self):
        self.make_head(self.BASE)
        def check(*args):
            return talon("check", "--model", LLAMA3, "--draft", self.path, *args)

        self.assert_refused(talon("check", "--model", TINY, "--draft", self.path), "512", "8192")
        self.assert_refused(talon("check", "--model", TINY, "--draft", DRAFT,
                                  "--golden", self.path / "golden.safetensors"),
                            "a model of its own, not an EAGLE head")
        self.assert_refused(check("--golden", LLAMA3 / "golden.safetensors"), "input_ids")
        self.file("config.json", json.dumps({**self.BASE, "intermediate_size": 80}))
        self.assert_refused(check(), "mlp.gate_proj.weight", "[96, 64]", "[80, 64]")
        (self.path / "golden.safetensors").unlink()
        self.assert_refused(check(), self.path, "--golden")


class CheckHeads(CliTest):
    """`check --draft`: EAGLE-1 and block heads against plain Python references."""

    LAYER = {
        "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 4096}
    EAGLE = {"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1, **LAYER}
    BLOCK = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 2,
             "num_target_layers": 8, "block_size": 6, **LAYER}
    SHARED = ROOT.parent / "shared" / "goldens"

    def write_head(self, config, head, golden, **options):
        self.file("config.json", json.dumps(config))
        eagle3_golden.write_tensors(self.path / "model.safetensors", head.checkpoint())
        eagle3_golden.write_tensors(self.path / "golden.safetensors", golden)

    def target(self):
        known = eagle3_golden.read_tensors(LLAMA3 / "golden.safetensors")
        hidden = {layer: known[f"short.hidden.{layer}"] for layer in range(9)}
        return (eagle3_golden.read_tensors(LLAMA3 / "model.safetensors"), hidden,
                known["short.input_ids"], known["short.greedy"][0])

    def make_eagle(self, config):
        tensors, hidden, ids, sampled = self.target()
        head = head_goldens.Eagle1(config, tensors, num_layers=8)
        self.write_head(config, head, head.golden(ids, sampled, hidden, k=3, steps=4, kept=11))

    def make_block(self, config):
        tensors, hidden, ids, anchor = self.target()
        head = head_goldens.Block(config, tensors)
        self.write_head(config, head, head.golden(ids, anchor, hidden, width=3, nodes=17))

    def quantise(self, config, head):
        """Writes the head in int8; its values become those of the codes."""
        def high_half(value):
            return struct.unpack("<HH", struct.pack("<f", value))[1]

        def bf16(values):
            if isinstance(values, list):
                return [bf16(value) for value in values]
            return struct.unpack("<f", struct.pack("<HH", 0, high_half(values)))[0]

        head.tensors = {name: bf16(values) for name, values in head.tensors.items()}
        wide, narrow = self.path / "bf16", self.path / "int8"
        (wide / "held-out").mkdir(parents=True)  # as the trainers leave it; not copied
        eagle3_golden.write_tensors(wide / "model.safetensors", {
            name: ("BF16", shape, list(map(high_half, values))) if dtype == "F32" else
            (dtype, shape, values) for name, (dtype, shape, values) in head.checkpoint().items()})
        (wide / "config.json").write_text(json.dumps(config))
        tool = [sys.executable, ROOT / "tools/train/quantise.py"]
        subprocess.run([*tool, wide, narrow], check=True, stdout=subprocess.DEVNULL)
        for source, to, problem in ((self.path / "none", narrow, b"is not there"),
                                    (narrow, narrow, b"the same"),
                                    (narrow, self.path / "twice", b"no bf16 matrix")):
            result = subprocess.run([*tool, source, to], capture_output=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn(problem, result.stderr)
        tensors = eagle3_golden.read_tensors(narrow / "model.safetensors")
        for name, rows in head.tensors.items():
            if not isinstance(rows[0], list):
                continue
            name = name if name in tensors else name.replace("midlayer.", "layers.0.")
            for row, codes, (scale,) in zip(rows, tensors[name], tensors[name + "_scale"]):
                for i, code in enumerate(codes):
                    cut = abs(code) == 127 and abs(row[i]) > abs(code * scale)
                    self.assertTrue(cut or abs(row[i] - code * scale) <= scale / 2, name)
                    row[i] = code * scale
        return narrow

    def assert_passes(self, cases, draft, model=LLAMA3):
        result = talon("check", "--model", model, "--draft", draft)
        lines = result.stdout.decode().splitlines()
        self.assertEqual(result.returncode, 0, "\n".join(lines) + result.stderr.decode())
        self.assertEqual(lines[-1], f"{cases} passed, 0 failed")

    def test_eagle(self):
        self.make_eagle(self.EAGLE)
        self.assert_passes(7, self.path)

    def test_eagle_with_qkv_biases_and_a_config_that_names_a_llama(self):
        self.make_eagle({**self.EAGLE, "architectures": ["LlamaForCausalLM"], "bias": False,
                         "qkv_bias": True})
        self.assert_passes(7, self.path)

    def test_dflash(self):
        self.make_block({**self.BLOCK, "dflash_config": {"mask_token_id": 500,
                                                         "target_layer_ids": [1, 3, 5]}})
        self.assert_passes(10, self.path)

    def test_jetspec(self):
        self.make_block({**self.BLOCK, "dflash_config": {
            "mask_token_id": 7, "target_layer_ids": [0, 6], "causal_head": True}})
        self.assert_passes(10, self.path)

    def test_dspark(self):
        self.make_block({**self.BLOCK, "architectures": ["Qwen3DSparkModel"], "mask_token_id": 3,
                         "target_layer_ids": [2, 5], "markov_rank": 8})
        self.assert_passes(10, self.path)

    def test_dspark_in_the_speculators_layout(self):
        self.make_block({"speculators_model_type": "dspark", "mask_token_id": 3, "markov_rank": 8,
                         "aux_hidden_state_layer_ids": [2, 5], "sample_from_anchor": False,
                         "draft_vocab_size": 160, "block_size": 5,
                         "transformer_layer_config": {**self.LAYER, "num_hidden_layers": 1,
                                                      "model_type": "qwen3"}})
        self.assert_passes(8, self.path)

    def test_eagle_in_int8(self):
        tensors, hidden, ids, sampled = self.target()
        head = head_goldens.Eagle1(self.EAGLE, tensors, num_layers=8)
        folder = self.quantise(self.EAGLE, head)
        golden = head.golden(ids, sampled, hidden, k=3, steps=4, kept=11)
        eagle3_golden.write_tensors(folder / "golden.safetensors", golden)
        self.assert_passes(7, folder)

    def test_jetspec_in_int8(self):
        config = {**self.BLOCK, "dflash_config": {"mask_token_id": 7, "target_layer_ids": [0, 6],
                                                  "causal_head": True}}
        tensors, hidden, ids, anchor = self.target()
        head = head_goldens.Block(config, tensors)
        folder = self.quantise(config, head)
        golden = head.golden(ids, anchor, hidden, width=3, nodes=17)
        eagle3_golden.write_tensors(folder / "golden.safetensors", golden)
        self.assert_passes(10, folder)
        header = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(
            header.replace(b"layers.1.mlp.up_proj.weight_scale", b"layers.1.mlp.up_brok.weight_scale"))
        result = talon("check", "--model", LLAMA3, "--draft", folder)
        self.assert_refused(result, "tensor layers.1.mlp.up_brok.weight")

    def test_shared_goldens(self):
        for name, cases in [("eagle1/eagle", 6), ("dflash/head", 8)]:
            golden = self.SHARED / name
            if golden.exists():
                self.assert_passes(cases, golden, golden.parent)

    def test_wrong_heads_get_the_right_name(self):
        self.make_eagle(self.EAGLE)
        result = talon("run", "--model", LLAMA3, "--speculative-algorithm", "DFLASH",
                       "--speculative-draft-model-path", self.path, "--prompt-tokens", "1,2")
        self.assertEqual(result.returncode, 2, result.stderr.decode())
        self.assertIn(b"is an EAGLE-1 or EAGLE-2 head; use --speculative-algorithm EAGLE",
                      result.stderr)


class DoctorRuns(CliTest):
    """`doctor`: the checklist, the probe's figures and refusals."""

    HEAD = ROOT / "models" / "tiny-eagle3"
    SHORT = ["--contexts", "32,96", "--max-tokens", 32, "--texts", 2]

    def doctor(self, *args):
        figures = self.path / "figures.json"
        result = talon("doctor", "--json", figures, *args)
        text = result.stdout.decode()
        self.assertEqual(result.returncode, 0, text + result.stderr.decode())
        self.assertEqual(result.stderr, b"")
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
        return text, json.loads(figures.read_text())

    def check_figures(self, figures, contexts):
        probe = figures["probe"]
        self.assertTrue(probe["identical"])
        self.assertEqual([one["context"] for one in probe["contexts"]], contexts)
        for one in probe["contexts"]:
            fixed = one["fixed"]
            cost = fixed["verify_cost"] + fixed["draft_cost"]
            self.assertAlmostEqual(fixed["predicted_speed_up"], fixed["tau"] / cost, places=6)
            self.assertGreater(fixed["measured_speed_up"], 0)
            self.assertGreaterEqual(one["adaptive"]["tau"], 1)
        for depth in probe["by_depth"]:
            self.assertLessEqual(depth["accepted"], depth["tried"])
        self.assertTrue(figures["advice"]["limits"])
        self.assertTrue(figures["advice"]["next"])

    def test_bundled_head(self):
        text, figures = self.doctor(*self.SHORT)
        self.check_figures(figures, [32, 96])
        self.assertEqual(figures["draft"]["kind"], "EAGLE3")
        self.assertEqual(figures["draft"]["capture_layers"], [2, 8, 13])
        self.assertGreater(figures["probe"]["contexts"][0]["fixed"]["tau"], 1.2)
        for subject in ("vocabulary", "layers", "sizes", "positions", "types", "memory", "tree"):
            self.assertRegex(text, rf"(?m)^(ok|warning) +{subject} ")
        self.assertIn("Try next: ", text)

    def test_draft_model_on_given_prompts(self):
        prompts = self.file("prompts.jsonl", '{"prompt": "The sea was calm that day."}\n')
        _, figures = self.doctor("--draft", DRAFT, "--prompts", prompts, *self.SHORT)
        self.check_figures(figures, [32, 96])
        self.assertEqual(figures["draft"]["kind"], "STANDALONE")
        self.assertEqual(figures["probe"]["coverage"], 1)
        self.assertEqual(figures["probe"]["texts"], 1)

    def test_model_without_tokenizer(self):
        text, figures = self.doctor("--model", LLAMA3, "--draft", LLAMA3 / "eagle3",
                                    "--contexts", "16,99999", "--max-tokens", 8, "--texts", 1)
        self.check_figures(figures, [16, 4096 - 8 - 1])
        self.assertIn("no tokenizer", text.replace("\n", " "))

    def test_head_for_fewer_positions_is_a_warning(self):
        head = self.path / "head"
        shutil.copytree(self.HEAD, head)
        config = json.loads((head / "config.json").read_text())
        config["max_position_embeddings"] = 2048
        (head / "config.json").write_text(json.dumps(config))
        text, _ = self.doctor("--draft", head, "--contexts", 16, "--max-tokens", 8, "--texts", 1)
        self.assertRegex(text, r"(?m)^warning +positions ")
        self.assertIn("past 2048", re.sub(r"\s+", " ", text))

    def test_a_head_that_is_read_wrongly(self):
        """Its layers are not those that it was trained with: they are found."""
        prompts = TINY.parent.parent / "tests/data/prompts/chats.jsonl"
        text, figures = self.doctor("--eagle3-capture-layers", "0,4,10", "--claimed", 4.0,
                                    "--prompts", prompts, "--contexts", 64, "--texts", 2,
                                    "--max-tokens", 16)
        tau = {one["name"]: one["tau"] for one in figures["alternatives"]}
        self.assertGreater(tau["captured layers 2,8,13"], 1.3 * tau["as it is"])
        self.assertRegex(text, "'captured layers 2,8,13' raises acceptance from")
        self.assertIn("--eagle3-capture-layers 2,8,13", text)
        self.assertIn("norm_before_fc true", tau)  # which it has no weights for
        self.assertEqual(tau["norm_before_fc true"], 0)

    def test_refused(self):
        self.assert_refused(talon("doctor", "--model", QWEN3), "--draft")
        self.assert_refused(talon("doctor", "--draft", self.path / "none"), "no such directory")
        self.assert_refused(talon("doctor", "--model", LLAMA3, "--draft", self.HEAD), "8192", "512")
        self.assert_refused(talon("doctor", "--model", LLAMA3, "--draft", DRAFT), "8192", "512")
        self.assert_refused(talon("doctor", "--speculative-algorithm", "STANDALONE", "--draft",
                                  self.HEAD), "EAGLE3")
        self.assert_refused(talon("doctor", "--contexts", "0"), "contexts")
        broken = self.path / "broken"
        shutil.copytree(self.HEAD, broken)
        weights = broken / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        self.assert_refused(talon("doctor", "--draft", broken), "model.safetensors")


class RunReport(CliTest):
    def test_a_run_compares_with_its_own_plain_steps(self):
        stats = json.loads(talon("run", "--json", "--prompt", "Hello", "--max-tokens", 64,
                                 "--ignore-eos", "--speculative-adaptive", "true").stdout)["stats"]
        self.assertGreaterEqual(stats["plain_passes"], 1)
        self.assertAlmostEqual(stats["plain_tokens_per_second"],
                               stats["plain_passes"] / stats["plain_seconds"], places=3)
        plain = stats["plain_seconds"] / stats["plain_passes"]
        self.assertAlmostEqual(stats["measured_speed_up"],
                               64 * plain / stats["decode_seconds"], places=3)


class Nwor(CliTest):
    """`bench nwor`: acceptance is reached, and bytes follow from it."""

    def test_figures(self):
        path = self.path / "figures.json"
        result = talon("bench", "nwor", "--model", LLAMA3, "--batches", "1,2", "--nodes", "8,20",
                       "--tokens", 40, "--repeats", 1, "--json", path)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        lines = result.stdout.decode().splitlines()
        self.assertEqual([line for line in lines[1:] if len(line) > 80], [])
        rows = json.loads(path.read_text())["rows"]
        self.assertEqual(len(rows), 2 * 2 * 4 * 3)
        for direct, nwor, scv in zip(rows[0::3], rows[1::3], rows[2::3]):
            with self.subTest(**{key: nwor[key] for key in ("batch", "nodes", "acceptance")}):
                self.assertEqual((direct["mode"], nwor["mode"], scv["mode"]),
                                 ("direct", "nwor", "nwor+scv"))
                for row in (direct, nwor, scv):
                    self.assertLess(abs(row["reached"] - row["acceptance"]), 0.1)
                self.check_bytes(direct, nwor, scv)

    def check_bytes(self, direct, nwor, scv):
        # All that is accepted reaches a block once, whatever the mode; a last token may not.
        accepted = nwor["block_bytes_per_token"]
        self.assertAlmostEqual(scv["block_bytes_per_token"], accepted, delta=0.05 * accepted)
        self.assertEqual(direct["bytes_per_token"], direct["block_bytes_per_token"])
        self.assertGreaterEqual(nwor["bytes_per_token"], 2 * accepted)
        if nwor["acceptance"] == 1:
            self.assertAlmostEqual(direct["block_bytes_per_token"], accepted, delta=0.05 * accepted)
        else:
            self.assertLess(nwor["block_bytes_ratio"], 0.2 + nwor["acceptance"])
        # Chunks leave out what follows a miss.
        self.assertLessEqual(scv["bytes_per_token"], nwor["bytes_per_token"])

    def test_bad_arguments(self):
        for args, *expected in [(["--modes", "fast"], "--modes", "fast"),
                                (["--acceptances", "2"], "--acceptances", "2"),
                                (["--nodes", "1"], "--nodes", "1")]:
            with self.subTest(args=args):
                self.assert_refused(talon("bench", "nwor", *args), *expected)


class LongContext(CliTest):
    """`bench longcontext`: a small run, and what it refuses."""

    MODES = "plain,suffix,suffix+specpv-exact,suffix+specpv-fast"
    RECALL = ROOT / "tests" / "data" / "prompts" / "recall.jsonl"

    def test_figures(self):
        path = self.path / "figures.json"
        result = talon("bench", "longcontext", "--contexts", "768,384", "--budgets", "64,128",
                       "--modes", self.MODES, "--max-tokens", 24, "--recall", self.RECALL,
                       "--specpv-partial-threshold", 128, "--specpv-n-window-blocks", 2,
                       "--speculative-adaptive", "false", "--weights", "int8", "--threads", 1,
                       "--json", path)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        lines = result.stdout.decode().splitlines()
        self.assertEqual([line for line in lines[1:] if len(line) > 80], [])
        figures = json.loads(path.read_text())
        self.assertEqual([each["context"] for each in figures["contexts"]], [384, 768])
        for context in figures["contexts"]:
            rows = {row["label"]: row for row in context["rows"]}
            self.assertEqual(list(rows), ["plain", "suffix", "suffix exact 64", "suffix exact 128",
                                          "suffix fast 64", "suffix fast 128"])
            for label in ("suffix", "suffix exact 64", "suffix exact 128"):
                self.assertTrue(rows[label]["identical"], label)
            self.assertEqual(rows["suffix"]["partial"]["steps"], 0)
            exact = rows["suffix exact 64"]
            self.assertGreater(exact["partial"]["steps"], 0)
            self.assertEqual(exact["refreshes"]["init"], 1)
            self.assertLess(exact["partial"]["kv_bytes_read"], exact["full"]["kv_bytes_read"])
            self.assertGreater(exact["kv_bytes"], rows["suffix"]["kv_bytes"])
        self.assertEqual([row["label"] for row in figures["agreement"]],
                         ["suffix exact 64", "suffix exact 128"])
        flat = figures["flatness"][0]
        self.assertEqual((flat["context"], flat["base_context"]), (768, 384))
        recall = {row["label"]: row["buckets"] for row in figures["recall"]}
        self.assertEqual(recall["suffix exact 64"], recall["suffix"])
        self.assertEqual(sum(bucket["prompts"] for bucket in recall["suffix fast 64"]), 3)
        parts = [row["part"] for row in figures["roofline"][-1]["rows"]]
        self.assertEqual(parts, ["", ""] + ["partial", "full"] * 4)

    def test_bad_arguments(self):
        books = ROOT / "tests" / "data" / "prompts" / "books.jsonl"
        cases = [
            (["--contexts", "40000"], "contexts", "40000", "32768"),
            (["--contexts", "many"], "--contexts", "many"),
            (["--budgets", "100"], "budgets", "100", "16"),
            (["--modes", "suffix"], "first must be plain"),
            (["--modes", "plain,magic"], "magic", "SUFFIX"),
            (["--modes", "plain,suffix+specpv-quick"], "specpv-quick", "+specpv-exact"),
            (["--prompts", self.path / "none.jsonl"], "none.jsonl"),
            (["--recall", books], books, "answer"),
            (["--repeats", "0"], "--repeats"),
            (["--specpv-mod", "fast"], "--specpv-mod", "--specpv-mode?"),
        ]
        for args, *expected in cases:
            with self.subTest(args=args):
                self.assert_refused(talon("bench", "longcontext", *args), *expected)


class PartialVerification(CliTest):
    """`bench agreement` and `bench payoff`: small runs, and what they refuse."""

    SMALL = ["--specpv-n-window-blocks", 2, "--weights", "int8", "--threads", 1]

    def test_agreement(self):
        path = self.path / "agreement.json"
        result = talon("bench", "agreement", "--contexts", 512, "--budgets", "64,384",
                       "--selectors", "quest,attention,streaming", "--prompts-per-context", 1,
                       "--tokens", 48, "--refresh", 8, "--json", path, *self.SMALL,
                       "--speculative-algorithm", "NONE")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        rows = json.loads(path.read_text())["contexts"][0]["rows"]
        self.assertEqual([(row["selector"], row["budget"]) for row in rows],
                         [(name, budget) for name in ("quest", "attention", "streaming")
                          for budget in (64, 384)])
        for row in rows:
            self.assertEqual(row["checked"], sum(each["checked"] for each in row["distances"]))
            self.assertGreater(row["checked"], 30)
        whole = [row for row in rows if row["budget"] == 384 and row["selector"] != "streaming"]
        for row in whole:  # nearly all of the prompt is seen
            self.assertLess(row["disagreed"], 0.2 * row["checked"], row)
        self.assertGreater(rows[4]["disagreed"], whole[0]["disagreed"])
        self.assertEqual(rows[4]["distances"], rows[5]["distances"])  # it retrieves nothing

    def test_payoff(self):
        path = self.path / "payoff.json"
        prompts = ROOT / "tests" / "data" / "prompts" / "recall.jsonl"
        result = talon("bench", "payoff", "--prompts", prompts, "--tokens", 24,
                       "--temperatures", "0,0.5", "--specpv-partial-threshold", 128,
                       "--specpv-n-retrieval-blocks", 4, "--speculative-adaptive", "false",
                       "--json", path, *self.SMALL, "--speculative-algorithm", "SUFFIX")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        rows = json.loads(path.read_text())["rows"]
        self.assertEqual(len(rows), 6)
        self.assertEqual([row["ratio"] for row in rows], sorted(row["ratio"] for row in rows))
        for row in rows:
            self.assertTrue(row["identical"], row)
            self.assertGreater(row["partial_passes"], 0)
            best = max(row["plain"], row["full"])
            self.assertAlmostEqual(row["ratio"], row["exact"] / best)

    def test_bad_arguments(self):
        cases = [
            (["agreement", "--contexts", "40000"], "contexts", "40000", "32768"),
            (["agreement", "--selectors", "best"], "best", "quest"),
            (["payoff"], "prompts"),
            (["payoff", "--prompts", self.path / "none.jsonl"], "none.jsonl"),
        ]
        for args, *expected in cases:
            with self.subTest(args=args):
                self.assert_refused(talon("bench", *args), *expected)


if __name__ == "__main__":
    main()
