// The adaptive policy on a machine that does other things too. What is compared is what steps take
// by themselves, so a disturbance counts only by what the policy makes of it.
#include <gtest/gtest.h>

#include "spec/policy/test_simulation.h"

namespace talon {
namespace {

constexpr int kRuns = 10;

// Speed against plain decoding, the mean of runs with different seeds.
double Speed(Simulation simulation) {
  simulation.steps = 1000;
  double sum = 0;
  for (int run = 1; run <= kRuns; ++run) {
    simulation.seed = run;
    sum += 1 / simulation.Run().time;
  }
  return sum / kRuns;
}

Simulation GoodDrafts() { return {.acceptance = 0.8, .draft_seconds = 1e-4}; }
Simulation WrongDrafts() { return {.acceptance = 0, .draft_seconds = 2e-4}; }
Simulation DearDrafts() { return {.acceptance = 0.5, .draft_seconds = 2e-3}; }

Simulation With(Simulation simulation, std::function<double(int)> slowdown) {
  simulation.slowdown = std::move(slowdown);
  return simulation;
}

TEST(Disturbance, QuietMachine) {
  EXPECT_GT(Speed(GoodDrafts()), 1.45);
  EXPECT_GT(Speed(WrongDrafts()), 0.98);
  EXPECT_GT(Speed(DearDrafts()), 0.96);
}

// The fourth step is the first that drafts. One such outlier used to stop drafting for thousands
// of steps: all that the ledger allows had been lost at once.
TEST(Disturbance, OneSlowFirstDraft) {
  const auto slow = [](int step) { return step == 3 ? 20.0 : 1.0; };
  EXPECT_GT(Speed(With(GoodDrafts(), slow)), 1.4);
  EXPECT_GT(Speed(With(WrongDrafts(), slow)), 0.98);
}

TEST(Disturbance, SlowStepsNowAndThen) {
  const auto slow = [](int step) { return step % 97 == 50 ? 15.0 : 1.0; };
  EXPECT_GT(Speed(With(GoodDrafts(), slow)), 1.4);
  EXPECT_GT(Speed(With(WrongDrafts(), slow)), 0.98);
}

// All steps are slower for a while: no reason to stop, nor to go on with drafts that lose.
TEST(Disturbance, Bursts) {
  const auto slow = [](int step) { return step % 300 > 270 ? 2.5 : 1.0; };
  EXPECT_GT(Speed(With(GoodDrafts(), slow)), 1.45);
  EXPECT_GT(Speed(With(WrongDrafts(), slow)), 0.98);
  EXPECT_GT(Speed(With(DearDrafts(), slow)), 0.955);
}

TEST(Disturbance, AMachineThatBecomesSlowerOrFaster) {
  for (const double later : {0.5, 2.0}) {
    const auto slow = [later](int step) { return step < 400 ? 1.0 : later; };
    EXPECT_GT(Speed(With(GoodDrafts(), slow)), 1.45);
    EXPECT_GT(Speed(With(WrongDrafts(), slow)), 0.98);
    EXPECT_GT(Speed(With(DearDrafts(), slow)), 0.96);
  }
}

// What drafting lost in slow steps used to be compared with plain steps of the fast machine: they
// were many, and drafts that had become good waited until 1 % of the time made up for them.
TEST(Disturbance, LossesOfASlowTimeAreNotWeighedByAFastOne) {
  Simulation late = GoodDrafts();
  late.text_changes_at = 60;
  const double quiet = Speed(late);
  EXPECT_GT(quiet, 1.3);
  EXPECT_GT(Speed(With(late, [](int step) { return step < 60 ? 10.0 : 1.0; })), 0.95 * quiet);
}

// Plain steps that look slow flatter the drafts; they used to be kept as long as drafts went
// on.
TEST(Disturbance, SlowPlainStepsAtFirst) {
  const auto slow = [](int step) { return step < 3 ? 4.0 : 1.0; };
  EXPECT_GT(Speed(With(GoodDrafts(), slow)), 1.45);
  EXPECT_GT(Speed(With(WrongDrafts(), slow)), 0.97);
  EXPECT_GT(Speed(With(DearDrafts(), slow)), 0.94);
}

// The verify curve was measured while something else ran: by it rows cost so much that no draft is
// worth one, and none was ever tried.
TEST(Disturbance, ACurveOfABusyMachine) {
  Simulation good = GoodDrafts(), wrong = WrongDrafts();
  for (Simulation* each : {&good, &wrong}) {
    each->curve = VerifyCurve({{1, 1e-3, 0}, {2, 2e-3, 0}, {4, 3.7e-3, 0}, {16, 5.8e-3, 0}});
  }
  good.wrong_curve = 0.15;
  EXPECT_GT(Speed(good), 1.6);
  EXPECT_GT(Speed(wrong), 0.98);
  wrong.draft_seconds = 0;
  EXPECT_GT(Speed(wrong), 0.98);
}

// Other work takes a core for a few steps, four times of ten.
TEST(Disturbance, ABusyMachine) {
  const auto slow = [](int step) {
    std::minstd_rand spell(step / 5 + 1), now(step + 1);
    spell.discard(3);
    now.discard(3);
    const double hit = std::uniform_real_distribution<>(1, 6)(now);
    return std::bernoulli_distribution(0.4)(spell) ? hit : 1.0;
  };
  EXPECT_GT(Speed(With(GoodDrafts(), slow)), 1.45);
  EXPECT_GT(Speed(With(WrongDrafts(), slow)), 0.96);
}

}  // namespace
}  // namespace talon
