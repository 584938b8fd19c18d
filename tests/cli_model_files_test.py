"""Model folders that are not what they should be: the talon program says what is wrong.

Usage: cli_model_files_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import shutil
import sys

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import *  # noqa: E402,F403


class ModelFiles(CliTest):
    """Bad model directories."""

    def setUp(self):
        super().setUp()
        self.model = self.path / "model"
        shutil.copytree(LLAMA3, self.model, ignore=shutil.ignore_patterns("eagle3", "golden*"))
        self.weights = self.model / "model.safetensors"
        self.header, self.data = read_safetensors(self.weights)
        self.first, self.second = [name for name in self.header if name != "__metadata__"][:2]

    def refused(self, *expected):
        self.assert_refused(talon("run", "--model", self.model), *expected)

    def write(self, header=None, data=None, length=None):
        write_safetensors(
            self.weights,
            self.header if header is None else header,
            self.data if data is None else data,
            length,
        )

    def edit_config(self, **changes):
        path = self.model / "config.json"
        config = json.loads(path.read_text())
        config.update(changes)
        path.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))

    def test_directory_is_a_file(self):
        path = self.file("weights.bin", "x")
        self.assert_refused(talon("run", "--model", path), path, "is a file")

    def test_directory_is_missing(self):
        path = self.path / "nowhere"
        self.assert_refused(talon("run", "--model", path), path, "no such directory")

    def test_no_config(self):
        (self.model / "config.json").unlink()
        self.refused("config.json")

    def test_config_is_not_json(self):
        (self.model / "config.json").write_text('{"architectures": [')
        self.refused("config.json")

    def test_no_weights(self):
        self.weights.unlink()
        self.refused(self.model, "safetensors")

    def test_no_tokenizer(self):
        self.refused(self.model, "tokenizer.json")

    def test_bad_tokenizer(self):
        (self.model / "tokenizer.json").write_text('{"model": {"type": "Magic"}}')
        self.refused("tokenizer.json")

    def test_nan_weights_give_no_tokens(self):
        broken = write_broken_model(self.path / "broken")
        for flags in ([], ["--temperature", 1], ["--speculative-algorithm", "NGRAM"]):
            with self.subTest(flags=flags):
                result = talon("run", "--model", broken, "--json", *flags)
                self.assertEqual(result.returncode, 1)
                self.assertIn(b"the model's logits are not finite", result.stderr)
                report = json.loads(result.stdout)
                self.assertEqual(report["finish_reason"], "error")
                self.assertEqual(report["tokens"], [])

    def test_tokens_past_the_vocabulary(self):
        shutil.copy(TINY / "tokenizer.json", self.model)  # 8192 tokens, the model has 512
        self.refused("token", "512")

    def test_unsupported_architecture_lists_the_supported(self):
        self.edit_config(architectures=["GPT2LMHeadModel"])
        self.refused("GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM")

    def test_config_sizes(self):
        cases = [
            ({"hidden_size": -64}, "hidden_size"),
            ({"num_hidden_layers": 0}, "num_hidden_layers"),
            ({"num_hidden_layers": "many"}, "num_hidden_layers"),
            ({"vocab_size": 1 << 40}, "vocab_size"),
            ({"num_attention_heads": 7}, "7"),
            ({"num_attention_heads": ...}, "num_attention_heads"),
            ({"rms_norm_eps": -1}, "rms_norm_eps"),
        ]
        original = (self.model / "config.json").read_text()
        for changes, expected in cases:
            with self.subTest(changes=changes):
                (self.model / "config.json").write_text(original)
                self.edit_config(**changes)
                self.refused("config.json", expected)

    def test_shapes_contradict_config(self):
        self.edit_config(intermediate_size=168)
        self.refused("mlp", "168")

    def test_missing_tensor(self):
        del self.header["model.layers.3.mlp.up_proj.weight"]
        self.write()
        self.refused("model.layers.3.mlp.up_proj.weight")

    def test_truncated_weights(self):
        whole = self.weights.read_bytes()
        for size in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
            with self.subTest(size=size):
                self.weights.write_bytes(whole[:size])
                self.refused(self.weights)

    def test_offsets_past_the_end(self):
        self.header[self.first]["data_offsets"][1] = 1 << 62
        self.write()
        self.refused(self.weights, self.first)

    def test_overlapping_tensors(self):
        first, second = self.header[self.first], self.header[self.second]
        size = second["data_offsets"][1] - second["data_offsets"][0]
        start = first["data_offsets"][0]
        second["data_offsets"] = [start, start + size]
        self.write()
        self.refused(self.weights)

    def test_negative_and_reversed_offsets(self):
        for offsets in ([-8, 8], [64, 0], [0], "all", [0.5, 8]):
            with self.subTest(offsets=offsets):
                self.header[self.first]["data_offsets"] = offsets
                self.write()
                self.refused(self.weights)

    def test_huge_header_length(self):
        for length in (1 << 63, 1 << 40, len(self.weights.read_bytes())):
            with self.subTest(length=length):
                self.write(length=length)
                self.refused(self.weights)

    def test_huge_shape(self):
        self.header[self.first]["shape"] = [1 << 62, 1 << 62]
        self.write()
        self.refused(self.weights, self.first)

    def test_wrong_dtype(self):
        for dtype in ("I64", "F128", 7):
            with self.subTest(dtype=dtype):
                self.header[self.first]["dtype"] = dtype
                self.write()
                self.refused(self.weights, self.first)

    def test_header_is_not_json(self):
        self.write(header=b"{" * 4096)
        self.refused(self.weights)

    def test_index_names_a_missing_shard(self):
        self.weights.unlink()
        index = {"weight_map": {self.first: "model-00001-of-00002.safetensors"}}
        (self.model / "model.safetensors.index.json").write_text(json.dumps(index))
        self.refused("model-00001-of-00002.safetensors")


if __name__ == "__main__":
    main()
