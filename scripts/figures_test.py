#!/usr/bin/env python3
"""Tests of figures.py and peer.py: commands, markers and tables, on made-up results."""

import re
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import figure_list  # noqa: E402
import figure_tables as tables  # noqa: E402
import figures  # noqa: E402
import gpu_tables  # noqa: E402
import peer  # noqa: E402


def mode(name, rate, ratio, tau=1.0):
    return {
        "mode": name,
        "tokens_per_second": rate,
        "ratio_to_plain": ratio,
        "worst_prompt_ratio": ratio / 2,
        "tau": tau,
        "acceptance_by_depth": [0.9, 0.5],
        "draft_share": 0.25,
        "identical": True,
        "same_tokens": 1.0,
    }


def decode_result(prompts):
    modes = [mode("plain", 1000.4, 1.0), mode("eagle3", 2000, 2.0, 3.25)]
    return {
        "prompts": f"tests/{prompts}.jsonl",
        "num_prompts": 13,
        "temperature": 0.7,
        "modes": modes,
    }


class CommandTest(unittest.TestCase):
    def test_every_table_has_a_command(self):
        for figure in figures.CPU + figures.GPU + figures.RANKS:
            self.assertTrue(figure.commands, figure.name)
            for command in figure.commands:
                self.assertRegex(command, r"^(mpirun -n \d .*)?build", figure.name)

    def test_quick_replaces_values(self):
        values = {"--repeats": "2", "--x": "1"}
        words = figures.with_values("talon --repeats 25 --nodes 1,4", values)
        self.assertEqual(words, ["talon", "--repeats", "2", "--nodes", "1,4"])

    def test_quick_flags_are_flags_of_the_commands(self):
        for figure in figures.CPU + figures.RANKS:
            for flag in figure.quick:
                self.assertTrue(all(flag in c.split() for c in figure.commands), figure.name)

    def test_long_commands_are_broken_at_flags(self):
        figure = figure_list.Figure("x", ["talon bench" + " --flag value" * 20], None)
        lines = figures.shown_commands(figure).splitlines()
        self.assertTrue(all(len(line) <= figures.WIDTH + 2 for line in lines))
        self.assertEqual(" ".join(lines[1:-1]).count("--flag value"), 20)


class PageTest(unittest.TestCase):
    def test_replaces_what_is_between_the_markers(self):
        page = "a\n<!-- figures x begin -->\nold\n<!-- figures x end -->\nb\n"
        self.assertEqual(
            figures.replace_between(page, "x", "new\n"),
            "a\n<!-- figures x begin -->\nnew\n<!-- figures x end -->\nb\n",
        )
        self.assertRaises(ValueError, figures.replace_between, page, "y", "new\n")

    def test_pages_have_the_markers_of_all_figures(self):
        pages = figures.cpu_pages({}, "Commit x.\n")
        for figure in figures.CPU:
            page = "README.md" if figure.is_text else "docs/benchmarks.md"
            self.assertIn(f"<!-- figures {figure.name} begin -->", pages[page])
        self.assertIn("docs/gpu.md", figures.gpu_pages({}, "Commit x.\n"))
        scale = figures.rank_pages({}, "Commit x.\n")["docs/scale.md"]
        self.assertEqual(scale.count(figures.EMPTY["ranks"]), len(figures.RANKS))

    def test_figures_of_one_commit_only(self):
        pages = figures.cpu_pages({}, "Commit x.\n")
        self.assertNotIn("tokens/s |", pages["docs/benchmarks.md"])
        results = {"speculation": [decode_result("docs"), decode_result("books")]}
        pages = figures.cpu_pages(results, "Commit x.\n")
        self.assertIn("| books | plain | 1000 | 1.00x | 1.00 |", pages["README.md"])
        self.assertIn("|  | eagle3 | 2000 | 2.00x | 3.25 |", pages["README.md"])
        self.assertIn("Commit x.", pages["README.md"])


def ranks_result(ranks, threads, factor):
    return {
        "ranks": ranks,
        "threads": threads,
        "token_milliseconds": 50 * factor,
        "passes": [
            {
                "rows": 4,
                "milliseconds": 60 * factor,
                "exchange_milliseconds": 3,
                "messages": 33,
                "bytes": 640000,
            }
        ],
        "allocated": [{"weight_bytes": 70e6, "kv_bytes": 5000, "kv_tokens": 4}] * ranks,
    }


def reckoned_result(model):
    sizes = [
        {"ranks": ranks, "weight_bytes": 140e6 / ranks, "kv_bytes_per_token": 4096 // ranks}
        for ranks in (1, 2, 4, 8)
    ]
    return {"model": model, "weights": "auto", "reckoned": sizes}


class TableTest(unittest.TestCase):
    def check(self, text, row):
        self.assertIn(row, text.splitlines())
        widths = {len(re.findall(r"\|", line)) for line in text.splitlines() if line[:1] == "|"}
        self.assertEqual(len(widths), 1, text)

    def test_numbers_have_three_digits(self):
        for value, text in ((4.049, "4.05"), (13.44, "13.4"), (99.96, "100"), (1046.3, "1046")):
            self.assertEqual(tables.number(value), text)

    def test_ranks(self):
        text = tables.rank_times([ranks_result(1, 2, 1), ranks_result(2, 1, 1.1)])
        self.check(text, "| token of plain decoding | 50.0 | 55.0 | 1.10x |  |  |  |  |")
        self.check(text, "| pass of 4 rows | 60.0 | 66.0 | 1.10x | 3.00 | 4.5% | 33 | 640 KB |")
        text = tables.rank_sizes([reckoned_result("llama-8b")])
        self.check(text, "| llama-8b | 0.14 | 0.07 | 0.04 | 0.02 | 4 KiB |")
        text = tables.rank_memory([reckoned_result("small"), ranks_result(2, 1, 1)])
        self.check(text, "| 2 | 70.0 | 70.0 | 2048 | 1250 |")

    def test_printed_text_is_wrapped(self):
        text = tables.printed(["a " * 80 + "\n\nmodel  tiny\n"])
        self.assertEqual(text.splitlines()[-3:], ["", "model  tiny", "```"])
        self.assertTrue(all(len(line) <= 100 for line in text.splitlines()))

    def test_speculation(self):
        text = tables.speculation([decode_result("docs")])
        self.check(text, "|  | eagle3 | 2000 | 2.00x | 1.00x | 3.25 | 25% | yes |")

    def test_json_answers(self):
        modes = [m | {"forced_share": 0.5} for m in decode_result("json")["modes"]]
        text = tables.json_answers([{"modes": modes}])
        self.check(text, "| eagle3 | 2000 | 2.00x | 3.25 | 50% | yes |")

    def test_grammar(self):
        result = {"vocabulary": 8192, "schemas": 9, "compiled": 7, "instances": 40}
        result |= {"valid_refused": 2, "invalid_accepted": 0}
        result |= {"mask_us": {"mean": 12.34, "p99": 99.6}, "compile_ms": {"mean": 0.456}}
        text = tables.grammar([result])
        self.check(text, "| 8192 | 7 of 9 | 2 of 40 | 0 | 12.3 | 100 | 0.46 |")

    def test_eagle3(self):
        text = tables.eagle3([decode_result("docs")])
        self.check(text, "| docs | 0.7 | 3.25 | 0.90 0.50 | 2.00x | 25% |")

    def test_tasks(self):
        def result(weights, specpv, right):
            kinds = [{"kind": k, "right": n, "items": 20} for k, n in right.items()]
            total = {"kind": "all", "right": sum(right.values()), "items": 20 * len(right)}
            return {"weights": weights, "specpv": specpv, "kinds": kinds, "all": total}

        fast = {"mode": "fast", "retrieval_tokens": 256}
        text = tables.tasks(
            [result("auto", None, {"json": 7, "passage": 19}), result("auto", fast, {"passage": 18})]
        )
        self.check(text, "| kind | bf16 | SpecPV fast 256 |")
        self.check(text, "| passage | 19 of 20 | 18 of 20 |")
        self.check(text, "| all | 26 of 40 |  |")

    def test_agreement(self):
        row = {"selector": "quest", "budget": 512, "checked": 30, "disagreed": 3}
        row |= {"confirmed_of_trunk": 7.25}
        row["distances"] = [
            {"distance": 1, "checked": 10, "disagreed": 2},
            {"distance": 2, "checked": 20, "disagreed": 1},
        ]
        text = tables.agreement([{"trunk": 32, "contexts": [{"context": 8192, "rows": [row]}]}])
        self.check(text, "| context | selector | budget | from 1 | from 2 | all, % | kept of 32 |")
        self.check(text, "| 8192 | quest | 512 | 80.0 | 95.0 | 90.0 | 7.2 |")

    def test_recall(self):
        def result(selector, right):
            rows = [
                {"budget": budget, "buckets": [{"tokens": 1024, "right": n, "prompts": 3}]}
                for budget, n in ((0, 3), (128, right))
            ]
            return {"specpv": {"selector": selector}, "recall": rows}

        text = tables.recall([result("quest", 2), result("h2o", 1)])
        self.assertEqual(text.count("| full |"), 1)
        self.check(text, "| full |  | 3 of 3 |")
        self.check(text, "| quest | 128 | 2 of 3 |")
        self.check(text, "| h2o | 128 | 1 of 3 |")

    def test_batches(self):
        row = {"batch": 4, "off": 1000, "on": 1500, "adaptive": 1470}
        row |= {"adaptive_to_off": 1.47, "adaptive_to_best": 0.98}
        result = {"prompts": "data/docs.jsonl", "temperature": 0, "drafter": "SUFFIX"}
        text = tables.batches(
            [result | {"batches": [row]}, result | {"temperature": 0.7, "batches": [row]}]
        )
        self.check(text, "| docs, greedy | SUFFIX | 4 | 1000 | 1500 | 1470 | 1.47x | 0.98x |")
        self.assertIn("| docs, 0.7 |", text)

    def test_gpu_specpv(self):
        row = {"context": 65536, "batch": 8, "plain_tokens_per_second": 400}
        row |= {"tokens_per_second": 800, "exact_tokens_per_second": 1600, "exact_to_plain": 4}
        row |= {"fast_tokens_per_second": 2000, "exact_to_full": 2, "fast_to_full": 2.5}
        row |= {"confirmed_share": 0.75}
        text = gpu_tables.gpu_specpv([{"kv_offload": True, "rows": [row]}])
        self.check(
            text, "| 65536 | 8 | host | 400 | 800 | 1600 | 2000 | 4.00x | 2.00x | 2.50x | 75% |"
        )

    def test_verify(self):
        points = [
            {"nodes": n, "depth": d, "milliseconds": n + d, "c": n, "floor_milliseconds": 4}
            for n in (1, 8)
            for d in (0, 4)
        ]
        text = tables.verify([{"points": points}])
        self.check(text, "| 8 | 8.00 | 8.00 | 2.00x | 12.0 | 8.00 | 3.00x |")

    def test_scv(self):
        points = [
            {"chain": 16, "acceptance": a, "chunk": c, "ms_per_token": t}
            for a, c, t in ((0.1, 0, 4.0), (0.1, 4, 2.0), (0.9, 0, 1.0), (0.9, 4, 2.0))
        ]
        text = tables.scv([{"points": points}])
        self.check(text, "| 0.1 | 4: 2.00x |")
        self.check(text, "| 0.9 | one pass |")

    def test_nwor(self):
        direct = {"batch": 1, "nodes": 8, "mode": "direct", "reached": 0.3}
        direct |= {"block_bytes_per_token": 40e3, "block_bytes_ratio": 1, "bytes_per_token": 40e3}
        direct |= {"bytes_ratio": 1, "bytes_per_second": 12e6, "ms_per_token": 3.5, "time_ratio": 1}
        nwor = direct | {"mode": "nwor", "block_bytes_per_token": 16e3, "block_bytes_ratio": 0.4}
        nwor |= {"bytes_per_token": 50e3, "bytes_ratio": 1.25, "time_ratio": 1.01}
        text = tables.nwor([{"rows": [direct, nwor]}])
        self.check(text, "| 1 x 8 | direct | 0.30 | 40 KB |  | 40 KB |  | 12.0 | 3.50 |  |")
        self.check(text, "|  | nwor | 0.30 | 16 KB | -60% | 50 KB | +25% | 12.0 | 3.50 | 1.01x |")

    def test_remote(self):
        rates = {"plain": 50.0, "chain": 60.0, "tree": 75.0}
        link = {"link": "20 ms", "tokens_per_second": rates, "draft_time_hidden": 0.3}
        link |= {"hit_rate": 0.5, "identical": True}
        text = tables.remote([{"links": [link]}])
        self.check(text, "| 20 ms | 50.0 | 1.20x | 1.50x | 30% | 0.50 | yes |")

    def test_gpu(self):
        def point(context, nodes, ms):
            return {
                "sequences": 1,
                "context": context,
                "nodes": nodes,
                "milliseconds": ms,
                "floor_milliseconds": 2.0,
            }

        result = {
            "by_nodes": [point(1024, 1, 4.0), point(1024, 8, 5.0)],
            "partial": [point(65536, 16, 6.0), point(65536, 16, 3.0)],
        }
        self.check(gpu_tables.gpu_nodes([result]), "| 1024 | 8 | 5.00 | 2.50x | 1.25x |")
        self.check(gpu_tables.gpu_partial([result]), "| 1 | 65536 | 16 | 6.00 | 3.00 | 2.0x |")

    def test_gpu_heads(self):
        stages = [{"stage": "Propose", "device_seconds": 220e-6}, {"stage": "Verify", "device_seconds": 1}]
        mode = {"mode": "jetspec", "tau": 4.7, "tokens_per_second": 8520.0, "ratio_to_plain": 2.5}
        mode |= {"identical": True, "steps": {"steps": 2, "seconds": 1100e-6, "stages": stages}}
        text = gpu_tables.gpu_heads([{"prompts": "a/chats.jsonl", "temperature": 0.7, "modes": [mode]}])
        self.check(text, "| chats | 0.7 | jetspec | 4.70 | 110 | 550 | 8520 | 2.50x | yes |")

    def test_gpu_policy(self):
        row = {"batch": 8, "plain_tokens_per_second": 1120.0, "tokens_per_second": 1400.0}
        row |= {"speed_up": 1.25, "tau": 2.3, "nodes": 3.9}
        row |= {"plain_step_milliseconds": 7.14, "step_milliseconds": 13.1}
        text = gpu_tables.gpu_policy([{"model": "gpt-oss-120b (random weights)", "rows": [row]}])
        self.check(text, "| gpt-oss-120b | 8 | 1120 | 1400 | 1.25x | 2.30 | 3.9 | 7.14 | 13.1 |")


class PeerTest(unittest.TestCase):
    def test_ratios_are_of_the_peer_to_talon(self):
        times = {rows: 10.0 * rows for rows in peer.COMPARISONS[-1].rows}
        result = {"talon": times, "prompts": (300.0, 150.0)}
        result |= {"peer": {rows: 1.5 * ms for rows, ms in times.items()}}
        result |= {"floor": {rows: ms / 2 for rows, ms in times.items()}}
        lines = peer.comparison_table(peer.COMPARISONS[-1], result).splitlines()
        self.assertIn("| ratio | 1.50x | 1.50x | 1.50x | 1.50x |", lines)
        self.assertIn("| talon, time / floor | 2.00x | 2.00x | 2.00x | 2.00x |", lines)
        self.assertIn("Prompt of 512: talon 300 tokens/s, llama.cpp 150: 2.00x.", lines)

    def test_every_table_has_its_place(self):
        page = (figures.ROOT / peer.PAGE).read_text()
        for comparison in peer.COMPARISONS:
            self.assertIn("new table", figures.replace_between(page, comparison.name, "new table"))


if __name__ == "__main__":
    unittest.main()
