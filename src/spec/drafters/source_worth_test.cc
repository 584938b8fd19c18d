#include "spec/drafters/source_worth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

namespace talon {
namespace {

constexpr StepPrices kPrices{.token = 5e-3, .row = 5e-4};
constexpr int kSteps = 1000;

double Quiet(int) { return 1; }

// A source whose proposals take 2 ms and add four rows, which is worth 0.8 tokens. The sources
// before it promise half a draft.
struct Source {
  double added;   // tokens
  int from = 0;   // the step from which on it adds them, nothing before
  int asked = 0;  // in how many steps
  SourceWorth worth;

  Source& Run(const std::function<double(int step)>& slowdown = Quiet) {
    for (int step = 0; step < kSteps; ++step) {
      const bool asks = worth.Choose(std::array{0.5}, kPrices)[0];
      if (asks) worth.ObserveProposal(slowdown(step) * 2e-3, 4);
      const double more = asks && step >= from ? added : 0;
      const double tokens = 1 + step % 2 + more;
      worth.ObserveTokens(std::array{SourceWorth::Gained{0.5, asks, static_cast<int>(tokens)}});
      asked += asks ? 1 : 0;
    }
    return *this;
  }
};

TEST(SourceWorth, IsAskedWhereItPays) {
  EXPECT_EQ(Source{.added = 1}.Run().asked, kSteps);
  EXPECT_LT(Source{.added = 0}.Run().asked, 0.04 * kSteps);
}

// Each of its rows must be paid for as well.
TEST(SourceWorth, RowsAreWeighed) {
  SourceWorth free, dear;
  for (int step = 0; step < 200; ++step) {
    for (SourceWorth* worth : {&free, &dear}) {
      worth->ObserveProposal(2e-3, 4);
      const int tokens = step % 5 < 3 ? 3 : 2;  // 0.6 more than promised
      worth->ObserveTokens(std::array{SourceWorth::Gained{1.0, true, tokens}});
    }
  }
  EXPECT_TRUE(free.Choose(std::array{1.0}, {.token = 5e-3, .row = 0})[0]);
  EXPECT_FALSE(dear.Choose(std::array{1.0}, kPrices)[0]);
}

// Half of the first steps used to go without it, for each strength of what the others promise.
TEST(SourceWorth, ANewSourceIsTriedAtOnceAndGivenUpSoon) {
  SourceWorth good, bad;
  int of_good = 0, of_bad = 0;
  for (int step = 0; step < 20; ++step) {
    const double promised = step % 4 * 0.4;
    for (SourceWorth* worth : {&good, &bad}) {
      const bool asks = worth->Choose(std::array{promised}, kPrices)[0];
      if (asks) worth->ObserveProposal(2e-3, 4);
      const int tokens = asks && worth == &good ? 5 : 1 + static_cast<int>(promised);
      worth->ObserveTokens(std::array{SourceWorth::Gained{promised, asks, tokens}});
      (worth == &good ? of_good : of_bad) += asks ? 1 : 0;
    }
  }
  EXPECT_EQ(of_good, 20);
  EXPECT_LT(of_bad, 15);
}

TEST(SourceWorth, ATextThatChangesIsNoticed) {
  Source late{.added = 3, .from = kSteps / 2};
  late.Run();
  EXPECT_GT(late.asked, 0.1 * kSteps);
}

// Slow steps count by what proposals take, of which outliers are forgotten.
TEST(SourceWorth, SlowSteps) {
  for (int slow_step = 0; slow_step < 12; ++slow_step) {
    const auto slow = [slow_step](int step) { return step == slow_step ? 100.0 : 1.0; };
    EXPECT_GT(Source{.added = 2}.Run(slow).asked, 0.9 * kSteps) << slow_step;
    EXPECT_LT(Source{.added = 0}.Run(slow).asked, 0.04 * kSteps) << slow_step;
  }
  const auto now_and_then = [](int step) { return step % 97 == 50 ? 15.0 : 1.0; };
  EXPECT_GT(Source{.added = 2}.Run(now_and_then).asked, 0.97 * kSteps);
}

// ---- Ahead of the host: no proposal is timed ----

// In how many of the steps the source is asked for each sequence of a batch. It takes 4 ms however
// many it is asked for; a weak sequence gains three tokens by it, a strong one loses two.
std::vector<int> AskedInBatch(const std::vector<double>& promised) {
  SourceWorth worth;
  const StepPrices prices{.token = 5e-3 / static_cast<double>(promised.size())};
  std::vector<int> asked(promised.size());
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<bool> asks = worth.Choose(promised, prices);
    bool any = false;
    std::vector<SourceWorth::Gained> gained;
    for (size_t i = 0; i < promised.size(); ++i) {
      const int gain = promised[i] < 1 ? 3 : -2;
      const int alone = 1 + static_cast<int>(promised[i]);
      gained.push_back({promised[i], asks[i], alone + (asks[i] ? gain : 0)});
      asked[i] += asks[i] ? 1 : 0;
      any |= asks[i];
    }
    worth.ObserveTokens(gained);
    worth.ObserveStep(promised.size(), any, any ? 14e-3 : 10e-3);
  }
  return asked;
}

// What it costs is shared by the sequences it is asked for, so a few must not pay for a step.
TEST(SourceWorth, IsAskedForTheSequencesItHelpsIfTheyAreMany) {
  std::vector<double> promised(32, 6.0);
  promised[3] = 0;
  for (const int asked : AskedInBatch(promised)) EXPECT_LT(asked, 0.03 * kSteps);
  std::fill(promised.begin(), promised.begin() + 16, 0.0);
  const std::vector<int> asked = AskedInBatch(promised);
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
  const std::vector<double> promised(48, 0.0);
  int asked = 0;
  for (int step = 0; step < kSteps; ++step) {
    const bool asks = worth.Choose(promised, {.token = 5e-3 / 48})[0];
    const int tokens = asks && step % 100 != 99 ? 12 : 1;
    worth.ObserveTokens(std::vector<SourceWorth::Gained>(48, {0.0, asks, tokens}));
    worth.ObserveStep(48, asks, asks ? 14e-3 : 5e-3);
    asked += asks ? 1 : 0;
  }
  EXPECT_GT(asked, 0.97 * kSteps);
}

// One slow step among the first with a source used to keep it from being asked for thousands of
// steps, and one among those without it made the source look good for as long.
TEST(SourceWorth, OneSlowStepAheadOfTheHostIsForgotten) {
  for (int slow_step = 0; slow_step < 8; ++slow_step) {
    for (const int tokens : {4, 2}) {
      SourceWorth worth;
      int asked = 0;
      for (int step = 0; step < kSteps; ++step) {
        const bool asks = worth.Choose(std::array{1.0}, {.token = 5e-3})[0];
        worth.ObserveTokens(std::array{SourceWorth::Gained{1.0, asks, asks ? tokens : 2}});
        worth.ObserveStep(1, asks, (step == slow_step ? 100 : 1) * (asks ? 14e-3 : 10e-3));
        asked += asks ? 1 : 0;
      }
      if (tokens == 4) {
        EXPECT_GT(asked, 0.97 * kSteps) << slow_step;
      } else {
        EXPECT_LT(asked, 0.05 * kSteps) << slow_step;
      }
    }
  }
}

// A lookup whose first proposal took long used to be weighed like a model for many steps.
TEST(SourceWorth, ASlowFirstProposalIsForgotten) {
  SourceWorth lookup;
  EXPECT_FALSE(lookup.IsCheap(kPrices.token)) << "it was never asked";
  lookup.ObserveProposal(0.1, 1);
  EXPECT_FALSE(lookup.IsCheap(kPrices.token));
  lookup.ObserveProposal(1e-6, 1);
  EXPECT_TRUE(lookup.IsCheap(kPrices.token));
  SourceWorth model;
  for (int i = 0; i < 5; ++i) model.ObserveProposal(1e-3, 1);
  EXPECT_FALSE(model.IsCheap(kPrices.token));
  EXPECT_TRUE(model.IsCheap(/*token_seconds=*/0)) << "time does not matter";
}

}  // namespace
}  // namespace talon
