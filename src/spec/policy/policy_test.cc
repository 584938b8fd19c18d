#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/file.h"
#include "spec/policy/adaptive.h"
#include "spec/policy/calibration.h"
#include "spec/policy/test_simulation.h"
#include "spec/policy/verify_curve.h"

namespace talon {
namespace {

TEST(VerifyCurve, InterpolatesAndExtends) {
  const VerifyCurve curve = CheapRows();
  const StepShape one{.sequences = 1, .context = 0};
  EXPECT_DOUBLE_EQ(curve.Seconds(one, 1), 1e-3);
  EXPECT_NEAR(curve.Seconds(one, 3), 1.2e-3, 1e-12);
  EXPECT_NEAR(curve.Seconds(one, 128), 14.6e-3, 1e-12);
  EXPECT_NEAR(curve.Ratio(one, 4), 1.3, 1e-12);
  EXPECT_NEAR(curve.Seconds({.sequences = 1, .context = 10000}, 1), 2e-3, 1e-12);
  EXPECT_NEAR(curve.Seconds({.sequences = 2, .context = 10000}, 1), 1.1e-3 + 2e-3, 1e-12);
}

// One row seems to take as long as eight, two with the long context as eight: both were disturbed.
TEST(VerifyCurve, FewerRowsNeverCostMore) {
  const VerifyCurve curve = FitVerifyCurve(
      {{1, 2.0e-3, 1.5e-3}, {2, 1.2e-3, 2.4e-3}, {4, 1.4e-3, 1.8e-3}, {8, 2.0e-3, 2.4e-3}}, 100,
      1100);
  const auto seconds = [&](int rows, int context) {
    return curve.Seconds({.sequences = 1, .context = context}, rows);
  };
  EXPECT_NEAR(seconds(1, 100), 1.2e-3, 1e-9);
  EXPECT_NEAR(seconds(1, 1100), 1.5e-3, 1e-9);
  EXPECT_NEAR(seconds(2, 100), 1.2e-3, 1e-4);
  EXPECT_NEAR(seconds(2, 1100), 1.8e-3, 1e-4);
  EXPECT_NEAR(seconds(8, 100), 2.0e-3, 1e-9);
  EXPECT_NEAR(seconds(8, 1100), 2.4e-3, 1e-9);
}

TEST(VerifyCurve, TwiceTheRowsCostAtMostTwiceAsMuch) {
  const VerifyCurve curve =
      FitVerifyCurve({{1, 1e-3, 1e-3}, {2, 1.2e-3, 9e-3}, {4, 6e-3, 3e-3}}, 100, 1100);
  const auto seconds = [&](int rows, int context) {
    return curve.Seconds({.sequences = 1, .context = context}, rows);
  };
  EXPECT_NEAR(seconds(2, 1100), 2e-3, 1e-9);
  EXPECT_NEAR(seconds(4, 100), 2.4e-3, 1e-9);
  EXPECT_NEAR(seconds(4, 1100), 3e-3, 1e-9);
}

// It ended at 128 rows and was taken to be proportional from there on.
TEST(VerifyCurve, GoesOnWhileRowsCostLessThanInProportion) {
  const std::vector<PassTimes> flat = {{64, 4.8e-3, 5e-3}, {128, 5.4e-3, 6e-3}};
  EXPECT_EQ(NextCurveRows(flat, 2048), 256);
  EXPECT_EQ(NextCurveRows(flat, 200), 200);
  EXPECT_EQ(NextCurveRows(flat, 128), 0);
  const std::vector<PassTimes> steep = {{64, 5e-3, 5e-3}, {128, 9.5e-3, 9.6e-3}};
  EXPECT_EQ(NextCurveRows(steep, 2048), 0);
  EXPECT_EQ(NextCurveRows(std::span(flat).first(1), 2048), 0);
}

TEST(VerifyCurve, SavesAndLoads) {
  const std::string path = testing::TempDir() + "/talon_curve.json";
  ASSERT_TRUE(CheapRows().Save(path).ok());
  const auto loaded = VerifyCurve::Load(path);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->points().size(), 4u);
  EXPECT_DOUBLE_EQ(loaded->points()[2].base, 1.3e-3);
  for (const char* bad : {"{}", "{\"points\": []}", "{\"points\": [{\"rows\": 2}]}",
                          "{\"points\": [{\"rows\": 2, \"base\": 1, \"per_token\": 0}]}"}) {
    ASSERT_TRUE(WriteFile(path, bad).ok());
    EXPECT_FALSE(VerifyCurve::Load(path).ok()) << bad;
  }
}

TEST(Calibration, LearnsWhatScoresMean) {
  Calibration calibration;
  EXPECT_FLOAT_EQ(calibration.Estimate(1, 0.95f), 0.95f);  // until it was tried
  for (int i = 0; i < 200; ++i) calibration.Record(1, 0.95f, i % 10 == 0);
  EXPECT_NEAR(calibration.Estimate(1, 0.95f), 0.1, 0.02);
  EXPECT_DOUBLE_EQ(calibration.Estimate(2, 0.95f), calibration.Estimate(1, 0.95f));
  EXPECT_FLOAT_EQ(calibration.Estimate(1, 0.05f), 0.25f);
  EXPECT_DOUBLE_EQ(calibration.Estimate(20, 0.5f), calibration.Estimate(8, 0.5f));
}

TEST(Calibration, EstimatesDecayWithoutTrials) {
  Calibration calibration;
  for (int i = 0; i < 100; ++i) calibration.Record(1, 0.95f, false);
  for (int i = 0; i < 100; ++i) calibration.Record(2, 0.95f, false);
  const double known = calibration.Estimate(2, 0.95f);
  for (int i = 0; i < 1000; ++i) calibration.Forget(1, 0.95f);
  EXPECT_NEAR(calibration.Estimate(1, 0.95f), 0.95, 0.04);
  EXPECT_NEAR(calibration.Estimate(2, 0.95f), known, 0.02);
}

// How often lookups are asked while a drafter beside them is not worth its time. They cost a tenth
// of a step and give so many tokens.
int StepsWithLookupsAlone(int tokens) {
  AdaptivePolicy policy(VerifyCurve({{1, 1e-3, 0}, {64, 2e-3, 0}}));
  const StepShape shape{.sequences = 1};
  int lookups = 0;
  for (int step = 0; step < 400; ++step) {
    policy.BeginStep(shape);
    const bool drafts = policy.Budget(shape, {.max_nodes = 8, .max_depth = 4}).max_nodes > 1;
    const bool alone = policy.AllowsLookups();
    EXPECT_FALSE(drafts && alone);
    if (step < 2) {  // plain steps are timed
      EXPECT_FALSE(drafts || alone) << step;
    }
    lookups += alone ? 1 : 0;
    policy.ObserveStep(shape, {.rows = drafts || alone ? 8 : 1,
                               .emitted = alone ? tokens : 1,
                               .drafted = drafts || alone,
                               .lookups_only = alone,
                               .draft_seconds = drafts ? 1e-4 : 0,
                               .total_seconds = drafts || alone ? 1.1e-3 : 1e-3});
  }
  return lookups;
}

TEST(AdaptivePolicy, AsksLookupsAloneAsLongAsTheyGainTime) {
  EXPECT_GT(StepsWithLookupsAlone(/*tokens=*/3), 250);
  EXPECT_LT(StepsWithLookupsAlone(/*tokens=*/1), 60);
}

// Trees that the host does not see: large where rows are nearly free, small where they cost.
TEST(AdaptivePolicy, ChoosesTheSizeOfTreesItDoesNotSee) {
  AdaptivePolicy policy(VerifyCurve({{1, 1e-3, 0}, {8, 1.02e-3, 0}, {64, 1.3e-3, 0}}));
  TokenTree chain(0);  // its first two drafts are always right, the others never
  for (int i = 0; i < 15; ++i) chain.Add(i, i, 0.9f);
  const std::vector<int32_t> path = {0, 1, 2};
  for (int i = 0; i < 100; ++i) policy.ObserveTree(chain, path, /*ahead=*/true);
  EXPECT_EQ(policy.NodesAhead({.sequences = 1}, 16), 4);
  EXPECT_EQ(policy.NodesAhead({.sequences = 8}, 16), 4);
  EXPECT_EQ(policy.NodesAhead({.sequences = 8}, 3), 3);
  EXPECT_EQ(policy.NodesAhead({.sequences = 64}, 16), 2);  // four times the rows it knows
  const std::vector<int32_t> wrong = {0};
  for (int i = 0; i < 10000; ++i) policy.ObserveTree(chain, wrong, /*ahead=*/true);
  EXPECT_EQ(policy.NodesAhead({.sequences = 1}, 16), 16);  // the second time
  EXPECT_EQ(policy.NodesAhead({.sequences = 1}, 16), 2);
  int largest = 0;
  for (int i = 0; i < 640; ++i) largest += policy.NodesAhead({.sequences = 64}, 16) == 16;
  EXPECT_EQ(largest, 15);  // now and then, at first often
  for (int i = 0; i < 10000; ++i) policy.ObserveTree(chain, path, /*ahead=*/false);
  EXPECT_EQ(policy.NodesAhead({.sequences = 2}, 16), 2) << "trees of other drafters tell nothing";
}

TEST(SizeWorth, AddsUpWhatRanksGained) {
  SizeWorth sizes;
  TokenTree tree(0);  // the second node is the likelier one
  tree.Add(0, 1, 0.2f);
  tree.Add(0, 2, 0.7f);
  tree.Add(2, 3, 0.9f);
  const std::vector<int32_t> path = {0, 2, 3};
  EXPECT_EQ(sizes.Tokens(3), (std::vector<double>{1, 1.5, 2}));
  for (int i = 0; i < 1000; ++i) sizes.Observe(tree, path);
  const std::vector<double> tokens = sizes.Tokens(5);
  EXPECT_NEAR(tokens[1], 2, 0.01);
  EXPECT_NEAR(tokens[2], 3, 0.01);
  EXPECT_NEAR(tokens[3], 3, 0.02);
  EXPECT_NEAR(tokens[4], 3, 0.02);  // not known: as the one before
}

TEST(AdaptivePolicy, SpeculatesWhereItPays) {
  const auto [time, nodes] = Simulation{.acceptance = 0.8}.Run();
  EXPECT_LT(time, 0.55);  // the best fixed chain here reaches about 0.5
  EXPECT_GT(nodes, 4);
}

// Lookups whose first drafts happened to be wrong (here seven in a row) used to be trimmed away
// ever after: an estimate that keeps nodes from being tried was never corrected.
TEST(AdaptivePolicy, RecoversFromEarlyRejections) {
  for (int seed = 1; seed <= 100; ++seed) {
    const Simulation lookups{.acceptance = 0.5, .draft_seconds = 2e-6, .steps = 1000, .seed = seed};
    EXPECT_LT(lookups.Run().time, 0.8) << "seed " << seed;
  }
}

TEST(AdaptivePolicy, StopsWhereItDoesNot) {
  const auto [time, nodes] = Simulation{.acceptance = 0.02}.Run();
  EXPECT_LT(time, 1.02);
  EXPECT_LT(nodes, 1.3);
}

TEST(AdaptivePolicy, ProbesBecomeRareButGoOn) {
  std::vector<int> gaps;
  int last = 0;
  Simulation dear{.acceptance = 0.5, .draft_seconds = 1e-3, .steps = 20000};
  dear.on_draft = [&](int step) {
    if (step > last + 1) gaps.push_back(step - last);
    last = step;
  };
  dear.Run();
  ASSERT_GT(gaps.size(), 8u);
  EXPECT_LT(gaps[1], 64);
  EXPECT_GT(gaps.back(), 200);
  EXPECT_LT(*std::max_element(gaps.begin(), gaps.end()), 1100);
}

TEST(AdaptivePolicy, CountsTheDraftersCost) {
  const auto [dear, dear_nodes] = Simulation{.acceptance = 0.5, .draft_seconds = 2e-3}.Run();
  EXPECT_LT(dear, 1.03);
  EXPECT_LT(dear_nodes, 1.3);
  const auto [fair, fair_nodes] = Simulation{.acceptance = 0.8, .draft_seconds = 1e-4}.Run();
  EXPECT_LT(fair, 0.7);
  EXPECT_GT(fair_nodes, 3);
}

TEST(AdaptivePolicy, LedgerBoundsTheLossOfAWrongCurve) {
  // Extra rows cost 20 times what the curve says: every speculative step loses.
  const auto [time, nodes] = Simulation{.acceptance = 0.5, .wrong_curve = 20}.Run();
  EXPECT_LT(time, 1.03);
}

// 3.5 plain steps of 1 ms are lost, of which a fresh engine affords 3 ms; the rest takes 1 % of 50
// plain ones.
TEST(AdaptivePolicy, TimeLostElsewhereCountsInTheLedger) {
  AdaptivePolicy policy(CheapRows());
  const StepShape shape{.sequences = 1, .context = 100};
  const double plain = CheapRows().Seconds(shape, 1);
  const auto drafts_after = [&](int plain_steps) {
    for (int i = 0; i < plain_steps; ++i) {
      policy.ObserveStep(shape, {.rows = 1, .emitted = 1, .total_seconds = plain});
    }
    policy.BeginStep(shape);
    const bool drafts = policy.Budget(shape, {.max_nodes = 9, .max_depth = 8}).max_nodes > 1;
    EXPECT_EQ(drafts, policy.Affords(shape));
    return drafts;
  };
  EXPECT_TRUE(drafts_after(3));
  policy.Charge(shape, 5.5 * plain, /*plain_steps=*/2);
  EXPECT_FALSE(drafts_after(1));
  EXPECT_FALSE(drafts_after(40));
  EXPECT_TRUE(drafts_after(10));
  policy.Charge(shape, 10 * plain, /*plain_steps=*/9.5);
  EXPECT_FALSE(drafts_after(1));
  policy.Charge(shape, 6 * plain, /*plain_steps=*/8);  // gained
  EXPECT_TRUE(drafts_after(1));
}

// Over a long prefix, where 3 ms are less than a step.
TEST(AdaptivePolicy, AFreshEngineAffordsAPlainStep) {
  const StepShape shape{.sequences = 1, .context = 100000};
  const double plain = CheapRows().Seconds(shape, 1);
  for (const double lost : {1.0, 1.2}) {
    AdaptivePolicy policy(CheapRows());
    policy.ObserveStep(shape, {.rows = 1, .emitted = 1, .total_seconds = plain});
    policy.Charge(shape, (3 + lost) * plain, /*plain_steps=*/3);
    EXPECT_EQ(policy.Affords(shape), lost < 1.1);
  }
}

TEST(AdaptivePolicy, PartialPassesHaveALedgerOfTheirOwn) {
  AdaptivePolicy policy(CheapRows());
  const StepShape full{.sequences = 1, .context = 100};
  const StepShape partial{.sequences = 1, .context = 100, .partial = true};
  policy.Charge(partial, /*seconds=*/1, /*plain_steps=*/1);
  EXPECT_FALSE(policy.Affords(partial));
  EXPECT_TRUE(policy.Affords(full));
}

TEST(AdaptivePolicy, SettlingPassesKeepWhatIsWorthARow) {
  const auto kept = [](double row_seconds, double token_seconds) {
    AdaptivePolicy policy(VerifyCurve({{1, 1e-3, 0}, {64, 1e-3 + 63 * row_seconds, 0}}));
    const StepShape shape{.sequences = 1};
    policy.ObserveStep(shape, {.rows = 2, .emitted = 1, .total_seconds = token_seconds});
    TokenTree tree(0);  // a chain of unknown drafts: half, a quarter, ..
    for (int i = 0; i < 6; ++i) tree.Add(i, i, 0.5f);
    policy.TrimSettling(shape, 20, &tree);
    return tree.size() - 1;
  };
  EXPECT_EQ(kept(1e-6, 1e-3), 6);
  EXPECT_EQ(kept(1e-3, 1e-3), 1);  // 0.5 * (1 + 1.15) > 1
  EXPECT_EQ(kept(1e-3, 4e-3), 2);
  EXPECT_EQ(kept(1e-2, 1e-3), 0);
}

TEST(AdaptivePolicy, TrimKeepsAValidTree) {
  AdaptivePolicy policy(CheapRows());
  TokenTree tree(0);
  std::mt19937 random(2);
  for (int i = 1; i < 40; ++i) {
    tree.Add(static_cast<int>(random() % i), i, static_cast<float>(random() % 100) / 100);
  }
  tree = CanonicalTree(tree);
  policy.Trim({.sequences = 4, .context = 50}, &tree);
  EXPECT_GE(tree.size(), 1);
  EXPECT_TRUE(ValidateTree(tree, {.vocab_size = 100, .max_length = 1000}).ok());
}

// On a simulated machine whose verify curve is exact, a batch that fills it is not slowed down by
// what paid for one sequence. Rows beyond the first 64 cost as much as the first, so drafts lose
// there and win below. `talon bench batch` measures real ones.
TEST(AdaptivePolicy, SimulatedBatchesLoseLittleWhereDraftsDoNotPay) {
  const VerifyCurve curve({{1, 1e-3, 0}, {16, 1.1e-3, 0}, {64, 4e-3, 0}, {128, 8e-3, 0}});
  AdaptivePolicy policy(curve);
  std::mt19937 random(3);
  for (int round = 0; round < 2; ++round) {  // the second time it knows every size
    for (const int batch : {1, 2, 4, 8, 16, 32, 64}) {
      const StepShape shape{.sequences = batch};
      double seconds = 0, tokens = 0;
      for (int step = 0; step < 600; ++step) {
        policy.BeginStep(shape);
        StepCost cost;
        for (int i = 0; i < batch; ++i) {
          TokenTree tree(0);
          const DraftBudget budget = policy.Budget(shape, {.max_nodes = 5, .max_depth = 4});
          cost.drafted |= budget.max_nodes > 1;
          for (int n = 1; n < budget.max_nodes; ++n) tree.Add(n - 1, n, 0.6f);
          if (tree.size() > 1) policy.Trim(shape, &tree);
          std::vector<int32_t> path = {0};
          while (static_cast<int>(path.size()) < tree.size() &&
                 std::bernoulli_distribution(0.6)(random)) {
            path.push_back(static_cast<int32_t>(path.size()));
          }
          if (tree.size() > 1) policy.ObserveTree(tree, path, /*ahead=*/false);
          cost.rows += tree.size();
          cost.emitted += static_cast<int>(path.size());
        }
        cost.draft_seconds = cost.drafted ? 1e-4 * batch : 0;
        const double verify = curve.Seconds(shape, static_cast<double>(cost.rows) / batch);
        cost.total_seconds = verify + cost.draft_seconds;
        policy.ObserveStep(shape, cost);
        seconds += cost.total_seconds;
        tokens += cost.emitted;
      }
      const double plain = tokens / batch * curve.Seconds(shape, 1);
      EXPECT_LT(seconds / plain, 1.03) << "batch " << batch;
      if (batch == 1) {
        EXPECT_LT(seconds / plain, 0.7);
      }
    }
  }
}

// What follows the target costs something even if it is not asked.
TEST(AdaptivePolicy, LeavesAUselessDrafterAlone) {
  struct Followed {
    int steps = 0;
    int in_a_row = 1000;
    int least = 1000;  // in a row before the drafter was asked
    double time = 0;
  };
  const auto run = [](double acceptance, int text_changes_at = 0) {
    Followed followed;
    const auto on_step = [&followed](bool drafts, bool follows) {
      if (drafts) followed.least = std::min(followed.least, followed.in_a_row);
      followed.in_a_row = follows ? followed.in_a_row + 1 : 0;
      followed.steps += follows ? 1 : 0;
    };
    followed.time = Simulation{.acceptance = acceptance,
                               .text_changes_at = text_changes_at,
                               .draft_seconds = 2e-4,
                               .steps = 10000,
                               .on_step = on_step}
                        .Run()
                        .time;
    return followed;
  };
  const Followed useless = run(0.02);
  EXPECT_LT(useless.steps, 3000);
  EXPECT_GE(useless.least, 31) << "it knows the last rows when it is asked";
  EXPECT_EQ(run(0.9).steps, 10000);
  const Followed later = run(0.9, 3000);
  EXPECT_LT(later.steps, 9500);
  EXPECT_GT(later.steps, 4000) << "it is asked again after the text has changed";
  EXPECT_LT(later.time, 0.7);
}

}  // namespace
}  // namespace talon
