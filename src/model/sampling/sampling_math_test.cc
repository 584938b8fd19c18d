#include "model/sampling/sampling_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "model/sampling/test_logits.h"

namespace talon {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Tokens by descending logit, ties to the lower id.
std::vector<int32_t> Ranked(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  return ids;
}

void Renormalize(std::vector<double>* probs) {
  const double sum = std::accumulate(probs->begin(), probs->end(), 0.0);
  for (double& prob : *probs) prob /= sum;
}

// Steps 4 to 7 as the specification reads, in double, one full sort.
std::vector<double> ReferenceProbabilities(const std::vector<float>& logits, const Truncation& t) {
  const std::vector<int32_t> ranked = Ranked(logits);
  std::vector<double> probs(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    probs[i] = std::exp((static_cast<double>(logits[i]) - logits[ranked[0]]) / t.temperature);
  }
  Renormalize(&probs);
  if (t.top_k > 0) {
    for (size_t rank = t.top_k; rank < ranked.size(); ++rank) probs[ranked[rank]] = 0;
    Renormalize(&probs);
  }
  double sum = 0;
  for (const int32_t token : ranked) {
    if (sum >= t.top_p && sum > 0) probs[token] = 0;
    sum += probs[token];
  }
  Renormalize(&probs);
  const double lowest = t.min_p * *std::max_element(probs.begin(), probs.end());
  for (double& prob : probs) prob = prob < lowest ? 0 : prob;
  Renormalize(&probs);
  return probs;
}

void ExpectMatchesReference(const std::vector<float>& logits, const Truncation& truncation) {
  std::vector<float> probs;
  FinalProbabilities(logits, truncation, &probs);
  const std::vector<double> expected = ReferenceProbabilities(logits, truncation);
  ASSERT_EQ(probs.size(), expected.size());
  for (size_t i = 0; i < probs.size(); ++i) {
    ASSERT_NEAR(probs[i], expected[i], 1e-6 * expected[i] + 1e-12) << "token " << i;
  }
}

TEST(SamplingMath, ArgMaxTiesToLowestId) {
  std::vector<float> logits(1000, 1.0f);
  logits[137] = logits[731] = 4.0f;
  EXPECT_EQ(ArgMax(logits), 137);
  EXPECT_EQ(ArgMax(std::vector<float>(100, -kInfinity)), -1);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, -2, kNan, -1}), 3);
  EXPECT_EQ(ArgMax(std::vector<float>{}), -1);
}

TEST(SamplingMath, TopCandidatesMatchFullSort) {
  std::vector<float> logits = RandomLogits(20000, 1);
  for (float& logit : logits) logit = std::round(logit * 50) / 50;  // many ties
  logits[0] = -kInfinity;
  const std::vector<int32_t> ranked = Ranked(logits);
  for (const int count : {0, 1, 2, 40, 312, 313, 5000, 19999, 30000}) {
    const std::vector<Candidate> top = TopCandidates(logits, count);
    ASSERT_EQ(top.size(), static_cast<size_t>(std::min(count, 19999)));
    for (size_t i = 0; i < top.size(); ++i) ASSERT_EQ(top[i].token, ranked[i]) << count;
  }
}

TEST(SamplingMath, LogSumExpMatchesDouble) {
  const std::vector<float> logits = RandomLogits(50000, 2, 8);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(LogSumExp(logits), std::log(sum), 1e-6);
}

TEST(SamplingMath, ProbabilitiesMatchReference) {
  const std::vector<float> logits = RandomLogits(3001, 3);
  ExpectMatchesReference(logits, {});
  ExpectMatchesReference(logits, {.temperature = 0.3f});
  ExpectMatchesReference(logits, {.temperature = 4.0f});
  ExpectMatchesReference(logits, {.top_k = 1});
  ExpectMatchesReference(logits, {.top_k = 40});
  ExpectMatchesReference(logits, {.top_k = 3000});
  ExpectMatchesReference(logits, {.top_k = 9999});
  ExpectMatchesReference(logits, {.top_p = 0.0f});
  ExpectMatchesReference(logits, {.top_p = 0.5f});
  ExpectMatchesReference(logits, {.temperature = 9.0f, .top_p = 0.97f});
  ExpectMatchesReference(logits, {.min_p = 0.05f});
  ExpectMatchesReference(logits, {.min_p = 1.0f});
  ExpectMatchesReference(logits, {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .min_p = 0.1f});
}

// top-p counts the share of what top-k left, min-p the share of what both left.
TEST(SamplingMath, TruncationsApplyInOrder) {
  std::vector<float> logits;
  for (const float prob : {0.4f, 0.3f, 0.2f, 0.1f}) logits.push_back(std::log(prob));
  std::vector<float> probs;
  FinalProbabilities(logits, {.top_k = 2, .top_p = 0.55f}, &probs);
  EXPECT_EQ(probs, (std::vector<float>{1, 0, 0, 0}));  // 0.4 / 0.7 reaches 0.55
  FinalProbabilities(logits, {.top_p = 0.55f}, &probs);
  EXPECT_GT(probs[1], 0.0f);  // 0.4 of the whole does not
}

TEST(SamplingMath, TopKTiesToLowerId) {
  std::vector<float> probs;
  FinalProbabilities(std::vector<float>{1, 2, 2, 2, 0}, {.top_k = 2}, &probs);
  EXPECT_EQ(probs, (std::vector<float>{0, 0.5f, 0.5f, 0, 0}));
}

TEST(SamplingMath, DrawInvertsTheCumulativeSum) {
  const std::vector<float> logits = RandomLogits(2500, 4);
  for (const Truncation& truncation :
       {Truncation{}, Truncation{.top_k = 30}, Truncation{.top_p = 0.8f, .min_p = 0.01f}}) {
    std::vector<float> probs;
    FinalProbabilities(logits, truncation, &probs);
    std::mt19937 generator(5);
    for (int i = 0; i < 2000; ++i) {
      const double u = std::uniform_real_distribution<double>()(generator);
      const int32_t token = DrawToken(logits, truncation, u);
      const double below = std::accumulate(probs.begin(), probs.begin() + token, 0.0);
      ASSERT_LE(below, u + 1e-6);
      ASSERT_GT(below + probs[token], u - 1e-6);
      ASSERT_GT(probs[token], 0.0f);
    }
  }
}

TEST(SamplingMath, DrawAtTheEdges) {
  const double almost_one = 1 - 0x1.0p-53;
  std::vector<float> logits(2000, -kInfinity);
  logits[700] = 0;
  logits[701] = 0;
  EXPECT_EQ(DrawToken(logits, {}, 0.0), 700);
  EXPECT_EQ(DrawToken(logits, {}, 0.5), 701);  // the sum must exceed u * total
  EXPECT_EQ(DrawToken(logits, {}, almost_one), 701);
  EXPECT_EQ(DrawToken(logits, {.top_k = 5}, almost_one), 701);
  EXPECT_EQ(DrawFromWeights(std::vector<float>{0, 1, 3, 0}, 0.25), 2);
  EXPECT_EQ(DrawFromWeights(std::vector<float>{0, 1, 3, 0}, almost_one), 2);
  EXPECT_EQ(DrawFromWeights(std::vector<float>{0, 0}, 0.5), -1);
}

TEST(SamplingMath, NeverDrawsNanOrMasked) {
  std::vector<float> logits = RandomLogits(1200, 6);
  for (size_t i = 0; i < logits.size(); i += 2) logits[i] = i % 4 == 0 ? kNan : -kInfinity;
  for (const Truncation& truncation : {Truncation{}, Truncation{.top_k = 900},
                                       Truncation{.top_p = 0.99f}, Truncation{.min_p = 1e-6f}}) {
    for (int i = 0; i < 500; ++i) {
      ASSERT_EQ(DrawToken(logits, truncation, i / 500.0) % 2, 1);
    }
  }
}

TEST(SamplingMath, ExtremeTemperatureIsFinite) {
  const std::vector<float> logits = {1.0f, 3e38f, -3e38f, 2.0f};
  std::vector<float> probs;
  FinalProbabilities(logits, {.temperature = 1e-30f}, &probs);
  EXPECT_EQ(probs, (std::vector<float>{0, 1, 0, 0}));
}

}  // namespace
}  // namespace talon
