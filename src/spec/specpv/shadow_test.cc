#include "spec/specpv/shadow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace talon {
namespace {

constexpr float kForbidden = -HUGE_VALF;

RowDifference Compare(const std::vector<float>& full, const std::vector<float>& partial) {
  return CompareRows(full, partial, {}, {});
}

TEST(ShadowTest, DrawsAtTheConfiguredRate) {
  const auto count = [](float rate, uint64_t seed) {
    int drawn = 0;
    for (int position = 0; position < 4000; ++position) {
      drawn += DrawShadow({.shadow_rate = rate}, seed, position) ? 1 : 0;
    }
    return drawn;
  };
  EXPECT_EQ(count(0.0f, 7), 0);
  EXPECT_EQ(count(1.0f, 7), 4000);
  EXPECT_NEAR(count(0.25f, 7), 1000, 120);  // four standard deviations
  EXPECT_EQ(count(0.25f, 7), count(0.25f, 7));
}

TEST(ShadowTest, EqualRowsDoNotDiffer) {
  const std::vector<float> logits = {1, -2, 30, kForbidden};
  const std::vector<float> hidden = {3, -4};
  const RowDifference same = CompareRows(logits, logits, hidden, hidden);
  EXPECT_FALSE(same.argmax_differs);
  EXPECT_EQ(same.kl_nats, 0);
  EXPECT_DOUBLE_EQ(same.hidden_cosine, 1);
}

// p = (3/4, 1/4), q = (1/2, 1/2); a constant added to all logits changes nothing.
TEST(ShadowTest, DivergenceIsOfFullFromPartial) {
  const RowDifference apart = Compare({std::log(3.0f) + 500, 500}, {-700, -700});
  EXPECT_NEAR(apart.kl_nats, 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-4);
  EXPECT_FALSE(apart.argmax_differs);  // a tie goes to the lower id
  const RowDifference swapped = Compare({-700, -700}, {std::log(3.0f), 0});
  EXPECT_NEAR(swapped.kl_nats, 0.5 * std::log(2.0 / 3) + 0.5 * std::log(2.0), 1e-6);
}

TEST(ShadowTest, ForbiddenTokens) {
  EXPECT_EQ(Compare({0, kForbidden}, {0, kForbidden}).kl_nats, 0);
  EXPECT_NEAR(Compare({0, kForbidden}, {0, 0}).kl_nats, std::log(2.0), 1e-6);
  EXPECT_TRUE(std::isinf(Compare({0, 0}, {0, kForbidden}).kl_nats));
}

TEST(ShadowTest, ArgmaxAndCosine) {
  EXPECT_TRUE(Compare({1, 2}, {2, 1}).argmax_differs);
  const std::vector<float> logits = {0};
  const std::vector<float> right = {2, 0}, up = {0, 5}, left = {-1, 0}, zero = {0, 0};
  EXPECT_DOUBLE_EQ(CompareRows(logits, logits, right, up).hidden_cosine, 0);
  EXPECT_DOUBLE_EQ(CompareRows(logits, logits, right, left).hidden_cosine, -1);
  EXPECT_DOUBLE_EQ(CompareRows(logits, logits, right, zero).hidden_cosine, 0);
}

TEST(ShadowTest, RecordsByDistance) {
  AgreementByDistance agreement;
  Metrics metrics;
  RecordShadow({.argmax_differs = true, .kl_nats = 0.5, .hidden_cosine = 0.9}, 5, &agreement,
               &metrics);
  RecordShadow({.argmax_differs = false, .kl_nats = 0.25, .hidden_cosine = 1}, 7, &agreement,
               &metrics);
  EXPECT_EQ(agreement.checked(2), 2);
  EXPECT_EQ(agreement.disagreed(2), 1);
  EXPECT_DOUBLE_EQ(metrics.Get(Histogram::kSpecPvKlNats, "4").Mean(), 0.375);
  EXPECT_DOUBLE_EQ(metrics.Get(Histogram::kSpecPvHiddenCosine, "4").Mean(), 0.95);
}

}  // namespace
}  // namespace talon
