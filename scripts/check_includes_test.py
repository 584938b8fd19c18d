#!/usr/bin/env python3
"""Tests of check_includes.py on small made-up source trees."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_includes  # noqa: E402


def problems_of(path, *lines):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        source = root / path
        source.parent.mkdir(parents=True)
        source.write_text("\n".join(lines) + "\n")
        num_files, problems = check_includes.check_tree(root)
        assert num_files == 1
        return [problem.removeprefix(f"{folder}/") for problem in problems]


class CheckIncludesTest(unittest.TestCase):
    def test_downward_includes_pass(self):
        self.assertEqual(problems_of("kv/pool.cc", '#include "kv/pool.h"', "#include <vector>"), [])
        self.assertEqual(problems_of("engine/a.h", '#include "text/tokenizer/tokenizer.h"'), [])
        self.assertEqual(problems_of("apps/main.cc", '#include "serve/http/server.h"'), [])
        self.assertEqual(problems_of("python/a.cc", '#include "setup/loader.h"'), [])

    def test_upward_include_names_file_and_line(self):
        problems = problems_of("base/log.cc", "#include <string>", '#include "kv/pool.h"')
        self.assertEqual(problems, ["base/log.cc:2: base may not include kv (kv/pool.h)"])

    def test_kv_and_model_do_not_know_each_other(self):
        self.assertEqual(len(problems_of("kv/a.cc", '#include "model/config.h"')), 1)
        self.assertEqual(len(problems_of("model/a.cc", '#  include "kv/pool.h"')), 1)

    def test_angle_brackets_do_not_hide_a_violation(self):
        self.assertEqual(len(problems_of("text/a.cc", "#include <engine/engine.h>")), 1)

    def test_heavy_dependencies_stay_in_their_place(self):
        for place, elsewhere, header in [
            ("compute/cuda/a.cu", "compute/cpu/a.cc", "<cuda_runtime.h>"),
            ("compute/cuda/a.cu", "apps/a.cc", "<cub/cub.cuh>"),
            ("compute/cpu/a.cc", "compute/dtype.cc", "<hwy/highway.h>"),
            ("compute/cpu/a.cc", "model/a.cc", '"hwy/highway.h"'),
            ("serve/grpc/a.cc", "serve/http/a.cc", "<grpcpp/grpcpp.h>"),
        ]:
            self.assertEqual(problems_of(place, f"#include {header}"), [], place)
            self.assertEqual(len(problems_of(elsewhere, f"#include {header}")), 1, elsewhere)

    def test_folders_of_cuda_include_downwards_too(self):
        for path, header in [
            ("compute/cuda/cuda_backend.cc", "gemm/gemm.h"),
            ("compute/cuda/testing/a.cu", "attention/plan.h"),
            ("compute/cuda/attention/a.cu", "runtime/launch.h"),
            ("compute/cuda/runtime/a.cc", "device/convert.cuh"),
            ("compute/cuda/experts/a.cu", "gemm/weight.h"),
            ("compute/backend_test.cc", "testing/trap.h"),
        ]:
            self.assertEqual(problems_of(path, f'#include "compute/cuda/{header}"'), [], path)
        for path, header in [
            ("compute/cuda/device/a.cuh", "runtime/launch.h"),
            ("compute/cuda/runtime/a.cc", "kv/kv_ops.h"),
            ("compute/cuda/attention/a.cuh", "elementwise.h"),
            ("compute/cuda/experts/a.cu", "attention/plan.h"),
            ("compute/cuda/gemm/a.cu", "testing/trap.h"),
        ]:
            self.assertEqual(len(problems_of(path, f'#include "compute/cuda/{header}"')), 1, path)

    def test_quoted_includes_start_at_the_source_root(self):
        self.assertEqual(len(problems_of("kv/a.cc", '#include "pool.h"')), 1)
        self.assertEqual(len(problems_of("kv/a.cc", '#include "../base/log.h"')), 1)

    def test_unknown_module_is_reported(self):
        self.assertEqual(len(problems_of("util/a.cc", "int x;")), 1)


if __name__ == "__main__":
    unittest.main()
