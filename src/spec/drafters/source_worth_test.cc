#include "spec/drafters/source_worth.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

namespace talon {
namespace {

constexpr double kTokenSeconds = 5e-3;
constexpr int kSteps = 1000;

struct Step {
  int tokens;
  double seconds;
};
constexpr Step kPlain{.tokens = 2, .seconds = 10e-3};
constexpr Step kGood{.tokens = 4, .seconds = 14e-3};  // two tokens more for less than one's time
constexpr Step kUseless{.tokens = 2, .seconds = 14e-3};

double Quiet(int) { return 1; }

// In how many of the steps the source is asked. `slowdown`: how many times slower than by itself
// the machine is in a step. The first twelve are tried with and without the source by turns.
int Asked(const Step& with, const std::function<double(int step)>& slowdown = Quiet) {
  SourceWorth worth;
  int asked = 0;
  for (int step = 0; step < kSteps; ++step) {
    const SourceWorth::Batch batch = SourceWorth::BatchOf(std::array{0.7});
    const bool asks = worth.Choose(batch, kTokenSeconds)[0];
    const Step& taken = asks ? with : kPlain;
    worth.ObserveTokens(std::array{SourceWorth::Gained{batch.strengths[0], asks, taken.tokens}});
    worth.ObserveStep(batch, asks, slowdown(step) * taken.seconds);
    asked += asks ? 1 : 0;
  }
  return asked;
}

TEST(SourceWorth, IsAskedWhereItPays) {
  EXPECT_GT(Asked(kGood), 0.97 * kSteps);
  EXPECT_LT(Asked(kUseless), 0.03 * kSteps);
}

// One slow step among the first with a source used to keep it from being asked for thousands of
// steps, and one among those without it made the source look good for as long.
TEST(SourceWorth, OneSlowStepIsForgotten) {
  for (int slow_step = 0; slow_step < 12; ++slow_step) {
    const auto slow = [slow_step](int step) { return step == slow_step ? 100.0 : 1.0; };
    EXPECT_GT(Asked(kGood, slow), 0.97 * kSteps) << slow_step;
    EXPECT_LT(Asked(kUseless, slow), 0.03 * kSteps) << slow_step;
  }
}

TEST(SourceWorth, SlowStepsNowAndThen) {
  const auto slow = [](int step) { return step % 97 == 50 ? 15.0 : 1.0; };
  EXPECT_GT(Asked(kGood, slow), 0.97 * kSteps);
  EXPECT_LT(Asked(kUseless, slow), 0.03 * kSteps);
}

// Where a slow spell leaves one kind of steps looking slow, it is hardly taken any more: the few
// times that are measured afterwards must count.
TEST(SourceWorth, SlowSpells) {
  int good = 0, useless = 0;
  for (int length = 20; length <= 200; length += 20) {
    const auto slow = [length](int step) { return step >= 200 && step < 200 + length ? 3.0 : 1.0; };
    good += Asked(kGood, slow);
    useless += Asked(kUseless, slow);
  }
  EXPECT_GT(good, 10 * 0.5 * kSteps);
  EXPECT_LT(useless, 10 * 0.05 * kSteps);
}

// In how many of the steps the source is asked for each sequence of a batch. It takes 4 ms however
// many it is asked for; a weak sequence gains three tokens by it, a strong one loses two.
std::vector<int> AskedInBatch(const std::vector<double>& expected) {
  SourceWorth worth;
  const SourceWorth::Batch batch = SourceWorth::BatchOf(expected);
  std::vector<int> asked(expected.size());
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<bool> asks = worth.Choose(batch, kTokenSeconds / expected.size());
    bool any = false;
    std::vector<SourceWorth::Gained> gained;
    for (size_t i = 0; i < expected.size(); ++i) {
      const int gain = expected[i] < 1 ? 3 : -2;
      gained.push_back({batch.strengths[i], asks[i], 4 + (asks[i] ? gain : 0)});
      asked[i] += asks[i] ? 1 : 0;
      any |= asks[i];
    }
    worth.ObserveTokens(gained);
    worth.ObserveStep(batch, any, any ? 14e-3 : 10e-3);
  }
  return asked;
}

// What it costs is shared by the sequences it is asked for, so a few must not pay for a step.
TEST(SourceWorth, IsAskedForTheSequencesItHelpsIfTheyAreMany) {
  std::vector<double> expected(32, 6.0);
  expected[3] = 0;
  for (const int asked : AskedInBatch(expected)) EXPECT_LT(asked, 0.03 * kSteps);
  std::fill(expected.begin(), expected.begin() + 16, 0.0);
  const std::vector<int> asked = AskedInBatch(expected);
  for (size_t i = 0; i < asked.size(); ++i) {
    if (i < 16) {
      EXPECT_GT(asked[i], 0.96 * kSteps) << i;
    } else {
      EXPECT_LT(asked[i], 0.04 * kSteps) << i;
    }
  }
}

// Where all sequences begin a new text at once, a lookup finds nothing for a step. It used to be
// forgotten that it had been right all the time, and it was not asked for many steps.
TEST(SourceWorth, OneBadStepOfABatchIsForgotten) {
  SourceWorth worth;
  const SourceWorth::Batch batch = SourceWorth::BatchOf(std::vector<double>(48, 0.0));
  int asked = 0;
  for (int step = 0; step < kSteps; ++step) {
    const bool asks = worth.Choose(batch, kTokenSeconds / 48)[0];
    const int tokens = asks && step % 100 != 99 ? 12 : 1;
    worth.ObserveTokens(std::vector<SourceWorth::Gained>(48, {batch.strengths[0], asks, tokens}));
    worth.ObserveStep(batch, asks, asks ? 14e-3 : 5e-3);
    asked += asks ? 1 : 0;
  }
  EXPECT_GT(asked, 0.97 * kSteps);
}

// A lookup whose first proposal took long used to be weighed like a model for many steps.
TEST(SourceWorth, ASlowFirstProposalIsForgotten) {
  SourceWorth lookup;
  EXPECT_FALSE(lookup.IsCheap(kTokenSeconds)) << "it was never asked";
  lookup.ObserveProposal(0.1);
  EXPECT_FALSE(lookup.IsCheap(kTokenSeconds));
  lookup.ObserveProposal(1e-6);
  EXPECT_TRUE(lookup.IsCheap(kTokenSeconds));
  SourceWorth model;
  for (int i = 0; i < 5; ++i) model.ObserveProposal(1e-3);
  EXPECT_FALSE(model.IsCheap(kTokenSeconds));
  EXPECT_TRUE(model.IsCheap(/*token_seconds=*/0)) << "time does not matter";
}

}  // namespace
}  // namespace talon
