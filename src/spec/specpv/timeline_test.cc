// What the policy and the payoff decide together, over whole texts.
#include <gtest/gtest.h>

#include <cmath>

#include "spec/specpv/test_timeline.h"

namespace talon {
namespace {

constexpr unsigned kTexts = 20;

double Speed(const Timeline::Options& options) {
  const Timeline::Outcome outcome = Timeline(options).Run();
  return outcome.plain_seconds / outcome.seconds;
}

// Geometric mean of the speed against plain steps over some texts of these stretches.
double MeanSpeed(Timeline::Options options) {
  double sum = 0;
  for (options.seed = 1; options.seed <= kTexts; ++options.seed) sum += std::log(Speed(options));
  return std::exp(sum / kTexts);
}

// No text of a length at which 3 % are four tokens loses more.
TEST(PayoffTimeline, RoundsThatNeverPayCostLessThanThreePercent) {
  for (const int context : {5000, 7500, 15000, 30000}) {
    for (const double odds : {0.4, 0.7, 1.0}) {
      Timeline::Options options{.context = context, .drafts = false, .text = {{128, odds}}};
      for (options.seed = 1; options.seed <= kTexts; ++options.seed) {
        EXPECT_GT(Speed(options), 0.97) << context << " tokens, odds " << odds;
      }
    }
  }
}

TEST(PayoffTimeline, NeitherDraftsNorRoundsPay) {
  for (const int context : {7500, 15000, 30000}) {
    EXPECT_GT(MeanSpeed({.context = context, .text = {{128, 1, 0.1}}}), 0.97) << context;
  }
}

TEST(PayoffTimeline, RoundsThatPayAreFoundWithinAFewTokens) {
  for (const int context : {7500, 15000, 30000}) {
    Timeline::Options options{.context = context, .text = {{128, 0.005, 0.1}}};
    int found = 0;
    for (options.seed = 1; options.seed <= kTexts; ++options.seed) {
      const Timeline::Outcome outcome = Timeline(options).Run();
      found += outcome.first_partial >= 0 && outcome.first_partial <= 24 ? 1 : 0;
    }
    EXPECT_GE(found, kTexts * 3 / 4) << context;
  }
  EXPECT_GT(MeanSpeed({.context = 7500, .text = {{128, 0.005, 0.1}}}), 1.2);
  EXPECT_GT(MeanSpeed({.context = 30000, .text = {{128, 0.005, 0.1}}}), 2.2);
}

// A text that agrees and then no longer gives little back; the other way round it is found out.
TEST(PayoffTimeline, ATextThatChangesMidway) {
  for (const int context : {7500, 15000, 30000}) {
    const Stretch good{.tokens = 256, .odds = 0.005, .acceptance = 0.1};
    const Stretch bad{.tokens = 256, .odds = 0.7, .acceptance = 0.1};
    Timeline::Options options{.context = context, .drafts = false};
    const auto seconds = [&](std::vector<Stretch> text) {
      double sum = 0;
      options.text = std::move(text);
      for (options.seed = 1; options.seed <= kTexts; ++options.seed) {
        sum += Timeline(options).Run().seconds;
      }
      return sum / kTexts;
    };
    const double alone = seconds({good});
    const double plain =
        Timeline({.context = context + 256, .drafts = false, .partial = false, .text = {bad}})
            .Run()
            .seconds;
    EXPECT_LT(seconds({good, bad}) - alone, 1.05 * plain) << context;
    if (context < 15000) continue;  // where little can be gained, finding it takes longer
    EXPECT_LT(seconds({bad, good, good}), seconds({bad}) + 0.9 * 2 * plain) << context;
  }
}

// Full steps that draft well are what rounds have to beat.
TEST(PayoffTimeline, RoundsCostLittleWhereDraftsPay) {
  for (const int context : {7500, 15000, 30000}) {
    for (const double odds : {0.3, 1.0}) {
      Timeline::Options options{.context = context, .text = {{128, odds, 0.8}}};
      const double exact = MeanSpeed(options);
      options.partial = false;
      EXPECT_GT(exact, 0.97 * MeanSpeed(options)) << context << " tokens, odds " << odds;
    }
  }
}

// What a partial view costs is measured: the curve does not know it.
TEST(PayoffTimeline, ADearViewIsFoundOut) {
  for (const double view_key : {3.0, 6.0}) {
    const Timeline::Options options{
        .context = 15000, .view_key = view_key, .drafts = false, .text = {{1024, 0.005, 0.1}}};
    EXPECT_GT(MeanSpeed(options), 0.97) << view_key;
  }
}

}  // namespace
}  // namespace talon
