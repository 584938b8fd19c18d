"""`talon check` on quantised checkpoints: a model packed in each format by plain Python, written from
the formats' descriptions, against the same model with the values that the packed ones stand for.

Usage: cli_quantised_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import random
import struct
import sys

sys.dont_write_bytecode = True  # leaves nothing beside the sources
import eagle3_golden  # noqa: E402
import experts_golden  # noqa: E402
from cli import *  # noqa: E402,F403

eagle3_golden.FORMATS.update({"U8": "B", "F8_E4M3": "B", "I8": "b"})

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def e4m3(bits):
    sign, exponent, fraction = -1 if bits & 128 else 1, bits >> 3 & 15, bits & 7
    if exponent == 0:
        return sign * fraction / 8 * 2.0 ** -6
    return sign * (1 + fraction / 8) * 2.0 ** (exponent - 7)


def pack(fields, bits=4):
    """A list of small numbers, the first in the lowest bits, as int32."""
    word = sum(value << (bits * i) for i, value in enumerate(fields))
    return struct.unpack("<i", struct.pack("<I", word))[0]


class Packer:
    """Replaces a matrix by a quantised form; returns the values that it stands for."""

    def __init__(self, seed=3):
        self.random = random.Random(seed)

    def codes(self, rows, cols, bits):
        return [[self.random.randrange(1 << bits) for _ in range(cols)] for _ in range(rows)]

    def scale(self):
        return self.random.choice((0.0625, 0.03125, 0.046875))

    def float8(self, base, rows, cols, shape, scale_name):
        codes = [[self.random.choice((0, 1, 56, 60, 184, 190, 40, 168, 8)) for _ in range(cols)]
                 for _ in range(rows)]
        scales = [[self.scale() for _ in range(shape[1])] for _ in range(shape[0])]
        by_row = 1 if shape[0] == rows else -(-rows // shape[0])
        by_col = -(-cols // shape[1])
        if shape not in ((1, 1), (rows, 1)):
            by_row = by_col = 16
        values = [[e4m3(codes[r][c]) * scales[r // by_row][c // by_col] for c in range(cols)]
                  for r in range(rows)]
        flat = sum(scales, [])
        tensors = {base + "weight": ("F8_E4M3", [rows, cols], sum(codes, [])),
                   base + scale_name: ("F32", [1] if shape == (1, 1) else list(shape), flat)}
        return tensors, values

    def int8(self, base, rows, cols):
        codes = [[self.random.randrange(-127, 128) for _ in range(cols)] for _ in range(rows)]
        scales = [self.scale() / 64 for _ in range(rows)]
        tensors = {base + "weight": ("I8", [rows, cols], sum(codes, [])),
                   base + "weight_scale": ("F32", [rows, 1], scales)}
        return tensors, [[q * scales[r] for q in codes[r]] for r in range(rows)]

    def groups(self, cols, size, shuffled):
        group_of = [c // size for c in range(cols)]
        if shuffled:
            self.random.shuffle(group_of)
        return group_of, -(-cols // size)

    def tables(self, rows, groups, bits, symmetric):
        middle = 1 << (bits - 1)
        scales = [[self.scale() for _ in range(rows)] for _ in range(groups)]
        zeros = [[middle if symmetric else self.random.randrange(1, 1 << bits)
                  for _ in range(rows)] for _ in range(groups)]
        return scales, zeros

    @staticmethod
    def values(codes, scales, zeros, group_of):
        return [[scales[group_of[c]][r] * (q - zeros[group_of[c]][r]) for c, q in enumerate(row)]
                for r, row in enumerate(codes)]

    def gptq(self, base, rows, cols, size, bits=4, shuffled=False, symmetric=True, minus=1):
        per, codes = 32 // bits, self.codes(rows, cols, bits)
        group_of, groups = self.groups(cols, size, shuffled)
        scales, zeros = self.tables(rows, groups, bits, symmetric)
        words = [pack([codes[r][c + i] for i in range(per)], bits)
                 for c in range(0, cols, per) for r in range(rows)]
        packed = [pack([zeros[g][r + i] - minus for i in range(per)], bits)
                  for g in range(groups) for r in range(0, rows, per)]
        tensors = {base + "qweight": ("I32", [cols // per, rows], words),
                   base + "qzeros": ("I32", [groups, rows // per], packed),
                   base + "scales": ("F32", [groups, rows], sum(scales, [])),
                   base + "g_idx": ("I32", [cols], group_of)}
        return tensors, self.values(codes, scales, zeros, group_of)

    def awq(self, base, rows, cols, size):
        codes = self.codes(rows, cols, 4)
        group_of, groups = self.groups(cols, size, False)
        scales, zeros = self.tables(rows, groups, 4, symmetric=False)
        words = [pack([codes[r + k][c] for k in AWQ_ORDER])
                 for c in range(cols) for r in range(0, rows, 8)]
        packed = [pack([zeros[g][r + k] for k in AWQ_ORDER])
                  for g in range(groups) for r in range(0, rows, 8)]
        tensors = {base + "qweight": ("I32", [cols, rows // 8], words),
                   base + "qzeros": ("I32", [groups, rows // 8], packed),
                   base + "scales": ("F32", [groups, rows], sum(scales, []))}
        return tensors, self.values(codes, scales, zeros, group_of)

    def compressed(self, base, rows, cols, size, symmetric=True, shuffled=False):
        codes = self.codes(rows, cols, 4)
        group_of, groups = self.groups(cols, size, shuffled)
        scales, zeros = self.tables(rows, groups, 4, symmetric)
        words = [pack(row[c:c + 8]) for row in codes for c in range(0, cols, 8)]
        tensors = {base + "weight_packed": ("I32", [rows, cols // 8], words),
                   base + "weight_scale": ("F32", [rows, groups],
                                           [scales[g][r] for r in range(rows)
                                            for g in range(groups)]),
                   base + "weight_shape": ("I64", [2], [rows, cols])}
        if shuffled:
            tensors[base + "weight_g_idx"] = ("I32", [cols], group_of)
        if not symmetric:
            tensors[base + "weight_zero_point"] = (
                "I32", [rows // 8, groups],
                [pack([zeros[g][r + i] for i in range(8)]) for r in range(0, rows, 8)
                 for g in range(groups)])
        return tensors, self.values(codes, scales, zeros, group_of)


class CheckQuantised(CliTest):
    # All layers are dense.
    CONFIG = {"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
              "intermediate_size": 64, "vocab_size": 64, "rms_norm_eps": 1e-5,
              "max_position_embeddings": 256, "rope_theta": 10000.0, "num_experts": 2,
              "num_experts_per_tok": 1, "moe_intermediate_size": 8, "mlp_only_layers": [0, 1]}

    @staticmethod
    def compressed_config(form, bits):
        return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
                "config_groups": {"group_0": {"targets": ["Linear"],
                                              "weights": {"num_bits": bits}}}}

    def check(self, quantization, form):
        """A model whose projections are packed, its reference from the values they stand for."""
        model = experts_golden.Model(self.CONFIG, "separate")
        for i, layer in enumerate(model.layers):
            parts = [("self_attn", layer, part) for part in "qkvo"]
            parts += [("mlp", layer["mlp"], part) for part in ("gate", "up", "down")]
            for folder, owner, part in parts:
                base = f"model.layers.{i}.{folder}.{part}_proj."
                del model.files[base + "weight"]
                tensors, values = form(base, len(owner[part]), len(owner[part][0]))
                model.files.update(tensors)
                owner[part] = values
        self.file("config.json", json.dumps({**self.CONFIG, "quantization_config": quantization}))
        eagle3_golden.write_tensors(self.path / "model.safetensors", model.files)
        eagle3_golden.write_tensors(self.path / "golden.safetensors", model.golden(length=12))
        return talon("check", "--model", self.path)

    def assert_same(self, quantization, form):
        result = self.check(quantization, form)
        self.assertEqual(result.returncode, 0, result.stdout.decode() + result.stderr.decode())
        self.assertIn("3 passed, 0 failed", result.stdout.decode())

    def test_fp8(self):
        packer = Packer()
        for shape, name in (((1, 1), "weight_scale"), ((0, 1), "weight_scale"),
                            ((0, 0), "weight_scale_inv")):
            def form(base, rows, cols, shape=shape, name=name):
                actual = {(1, 1): (1, 1), (0, 1): (rows, 1),
                          (0, 0): (-(-rows // 16), -(-cols // 16))}[shape]
                return packer.float8(base, rows, cols, actual, name)
            self.assert_same({"quant_method": "fp8", "weight_block_size": [16, 16]}, form)

    def test_gptq(self):
        packer = Packer()
        config = {"quant_method": "gptq", "bits": 4, "group_size": 16}
        self.assert_same(config, lambda *m: packer.gptq(*m, size=16))
        self.assert_same(config, lambda *m: packer.gptq(*m, size=16, shuffled=True))
        self.assert_same({**config, "sym": False},
                         lambda *m: packer.gptq(*m, size=16, symmetric=False))
        self.assert_same({**config, "checkpoint_format": "gptq_v2"},
                         lambda *m: packer.gptq(*m, size=16, minus=0))
        self.assert_same({**config, "group_size": -1}, lambda *m: packer.gptq(*m, size=1024))
        self.assert_same({**config, "bits": 8}, lambda *m: packer.gptq(*m, size=32, bits=8))

    def test_awq(self):
        packer = Packer()
        for size in (16, 1024):
            self.assert_same({"quant_method": "awq", "bits": 4, "version": "gemm"},
                             lambda *m: packer.awq(*m, size=size))

    def test_compressed_tensors(self):
        packer = Packer()
        four = self.compressed_config("pack-quantized", 4)
        self.assert_same(four, lambda *m: packer.compressed(*m, size=16))
        self.assert_same(four, lambda *m: packer.compressed(*m, size=16, symmetric=False))
        self.assert_same(four, lambda *m: packer.compressed(*m, size=16, shuffled=True))
        self.assert_same(four, lambda *m: packer.compressed(*m, size=1024))
        self.assert_same(self.compressed_config("float-quantized", 8),
                         lambda base, rows, cols: packer.float8(base, rows, cols, (rows, 1),
                                                                "weight_scale"))
        self.assert_same(self.compressed_config("int-quantized", 8), packer.int8)

    def test_broken_files_are_refused(self):
        packer = Packer()

        def broken(change):
            def form(*m):
                tensors, values = packer.gptq(*m, size=16)
                change(m[0], tensors)
                return tensors, values
            return form

        def drop_scales(base, tensors):
            del tensors[base + "scales"]

        def wrong_group(base, tensors):
            tensors[base + "g_idx"][2][3] = 99

        def wrong_shape(base, tensors):
            dtype, shape, values = tensors[base + "qzeros"]
            tensors[base + "qzeros"] = (dtype, shape[::-1], values)

        for change, message in ((drop_scales, "_proj.scales is missing"),
                                (wrong_group, "names group 99 of"),
                                (wrong_shape, "_proj.qzeros is i32")):
            packed = self.check({"quant_method": "gptq", "bits": 4}, broken(change))
            self.assertEqual(packed.returncode, 2)
            self.assertIn(message, packed.stderr.decode())


if __name__ == "__main__":
    main()
