"""`talon check` on models with experts, sliding windows and sinks against plain Python references.

Usage: cli_experts_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import sys

sys.dont_write_bytecode = True  # leaves nothing beside the sources
import eagle3_golden  # noqa: E402
import experts_golden  # noqa: E402
from cli import *  # noqa: E402,F403

eagle3_golden.FORMATS["U8"] = "B"


class CheckExperts(CliTest):
    BASE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 32, "vocab_size": 64,
            "rms_norm_eps": 1e-5, "max_position_embeddings": 256, "bos_token_id": 1,
            "eos_token_id": 2}
    YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32,
            "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
    GPT = {**BASE, "architectures": ["GptOssForCausalLM"], "sliding_window": 9,
           "num_local_experts": 6, "num_experts_per_tok": 3,
           "rope_parameters": {**YARN, "rope_theta": 150000.0}}
    QWEN = {**BASE, "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 6,
            "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True,
            "rope_theta": 10000.0, "sliding_window": None}

    def check(self, config, form, *args):
        model = experts_golden.Model(config, form)
        self.file("config.json", json.dumps(config))
        eagle3_golden.write_tensors(self.path / "model.safetensors", model.files)
        eagle3_golden.write_tensors(self.path / "golden.safetensors", model.golden())
        return talon("check", "--model", self.path, *args)

    def assert_passes(self, config, form):
        result = self.check(config, form)
        self.assertEqual(result.returncode, 0, result.stdout.decode() + result.stderr.decode())
        self.assertIn("3 passed, 0 failed", result.stdout.decode())

    def test_gpt_oss_unpacked(self):
        self.assert_passes(self.GPT, "input_first")

    def test_gpt_oss_packed(self):
        self.assert_passes({**self.GPT, "quantization_config": {"quant_method": "mxfp4"}}, "mxfp4")

    def test_gpt_oss_in_the_public_spelling(self):
        config = {key: value for key, value in self.GPT.items()
                  if key not in ("rope_parameters", "num_local_experts", "num_experts_per_tok")}
        config.update(rope_theta=150000.0, rope_scaling=self.YARN, num_experts=5,
                      experts_per_token=2, swiglu_limit=0.5)
        self.assert_passes(config, "input_first")

    def test_qwen_with_separate_experts(self):
        self.assert_passes(self.QWEN, "separate")

    def test_qwen_with_stacked_experts(self):
        self.assert_passes(self.QWEN, "stacked")

    def test_qwen_with_input_first_experts(self):
        self.assert_passes({**self.QWEN, "moe_intermediate_size": 16}, "input_first")

    def test_qwen_with_dense_layers_and_weights_of_all_experts(self):
        self.assert_passes({**self.QWEN, "norm_topk_prob": False, "mlp_only_layers": [1]},
                           "separate")
        self.assert_passes({**self.QWEN, "decoder_sparse_step": 2}, "stacked")

    def test_qwen2_has_biases_and_no_norms_of_heads(self):
        config = {**self.BASE, "architectures": ["Qwen2ForCausalLM"], "rope_theta": 10000.0}
        self.assert_passes(config, "separate")

    def test_packed_files_run_as_they_lie(self):
        config = {**self.GPT, "quantization_config": {"quant_method": "mxfp4"}}
        result = self.check(config, "mxfp4", "--weights", "auto", "--tolerance", "0.02")
        self.assertEqual(result.returncode, 0, result.stdout.decode() + result.stderr.decode())

    def test_other_formats_are_refused_by_name(self):
        config = {**self.GPT, "quantization_config": {"quant_method": "bitnet"}}
        result = self.check(config, "input_first")
        self.assertEqual(result.returncode, 2)
        self.assertIn('quant_method "bitnet" is not supported', result.stderr.decode())


if __name__ == "__main__":
    main()
