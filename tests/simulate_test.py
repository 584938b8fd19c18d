"""`talon bench simulate` on small shapes: tau is that of the acceptance it is given.

Usage: simulate_test.py PATH_OF_TALON [unittest arguments]
"""

import json
import math
import sys

sys.dont_write_bytecode = True  # leaves nothing beside the sources
from cli import CliTest, main, talon  # noqa: E402

STEPS = 40


class SimulateTest(CliTest):
    def simulate(self, acceptance, *flags, context=64):
        path = self.path / "out.json"
        result = talon("bench", "simulate", "--shape", "tiny", "--steps", STEPS,
                       "--contexts", context,
                       "--acceptance", ",".join(map(str, acceptance)), "--json", path, *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in result.stdout.decode().splitlines():
            self.assertLessEqual(len(line), 107, line)
        return json.loads(path.read_text())

    def test_tau_is_the_expectation(self):
        acceptance = [0.8, 0.7, 0.5]
        for shape in (["--speculative-eagle-topk", 1],
                      ["--speculative-eagle-topk", 3, "--speculative-num-draft-tokens", 9],
                      ["--speculative-algorithm", "JETSPEC"]):
            out = self.simulate(acceptance, "--batches", "1,4", *shape)
            self.assertAlmostEqual(out["expected_tau"], 1 + 0.8 + 0.56 + 0.28)
            self.assertEqual([row["batch"] for row in out["rows"]], [1, 4])
            for row in out["rows"]:
                # A step's tokens are 1 to 4, so their deviation is at most 1.5.
                error = 1.5 / math.sqrt(STEPS * row["batch"])
                self.assertAlmostEqual(row["tau"], out["expected_tau"], delta=4 * error)
                shares = row["draft_share"] + row["verify_share"] + row["rest_share"]
                self.assertAlmostEqual(shares, 1)
                self.assertGreater(row["draft_share"], 0)
                self.assertAlmostEqual(
                    row["speed_up"], row["tokens_per_second"] / row["plain_tokens_per_second"])

    def test_extremes(self):
        for acceptance, tau in (([0, 1, 1], 1), ([1, 1, 1, 1], 5)):
            out = self.simulate(acceptance, "--batches", 2)
            self.assertEqual(out["rows"][0]["tau"], tau)

    def test_nodes(self):
        """Those of the whole tree, or as few as the policy takes of a head that is never right."""
        chain = ["--batches", 1, "--speculative-eagle-topk", 1]
        self.assertEqual(self.simulate([0.5, 0.5], *chain)["rows"][0]["nodes"], 3)
        out = self.simulate([0, 0, 0, 0], *chain, "--policy")
        self.assertLess(out["rows"][0]["nodes"], 2)

    def test_partial_verification(self):
        """Full passes confirm as many provisional tokens as they are told to, and fast mode all."""
        partial = ["--batches", 3, "--num-prompts", 2, "--specpv-partial-threshold", 128,
                   "--specpv-n-retrieval-blocks", 4]
        for agreement, confirmed in ((1, 1), (0, 0)):
            out = self.simulate([1, 1], *partial, "--specpv-agreement", agreement, context=512)
            self.assertEqual(out["retrieval_tokens"], 64)
            row = out["rows"][0]
            self.assertEqual(row["confirmed_share"], confirmed)
            self.assertGreater(row["partial_share"], 0.4)
            self.assertAlmostEqual(
                row["exact_to_full"], row["exact_tokens_per_second"] / row["tokens_per_second"])
            self.assertGreater(row["fast_tokens_per_second"], 0)

    def test_refusals(self):
        bench = ["bench", "simulate", "--shape", "tiny"]
        self.assert_refused(talon(*bench), "acceptance")
        self.assert_refused(talon(*bench, "--acceptance", "0.5,1.5"), "acceptance", "1.5")
        self.assert_refused(
            talon(*bench, "--acceptance", "0.5,0.4", "--speculative-num-steps", 3), "acceptance",
            "2 values", "3 levels")
        self.assert_refused(
            talon(*bench, "--acceptance", "0.5", "--speculative-algorithm", "SUFFIX"), "EAGLE3")
        self.assert_refused(
            talon(*bench, "--acceptance", "0.5,0.4,0.3", "--speculative-num-draft-tokens", 3),
            "num_draft_tokens", "4 nodes")
        self.assert_refused(
            talon(*bench, "--acceptance", "0.5", "--contexts", 999999), "contexts")


if __name__ == "__main__":
    main()
