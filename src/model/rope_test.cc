#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace talon {
namespace {

void ExpectFrequencies(const RopeTable& table, const std::vector<double>& expected) {
  ASSERT_EQ(table.inv_freq.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(table.inv_freq[i], expected[i], 4e-7 * expected[i]) << "frequency " << i;
  }
}

TEST(Rope, DefaultIsAGeometricSeries) {
  const RopeTable table = ComputeRope({.theta = 10000}, 8, 256, 256);
  ExpectFrequencies(table, {1, 0.1, 0.01, 0.001});
  EXPECT_EQ(table.scale, 1.0f);
}

TEST(Rope, PartialRotaryUsesTheRotatedElementsOnly) {
  const RopeConfig config{.theta = 10000, .partial_rotary_factor = 0.25};
  ExpectFrequencies(ComputeRope(config, 16, 256, 256), {1, 0.01});
}

TEST(Rope, LinearDividesEveryFrequency) {
  const RopeConfig config{.kind = RopeKind::kLinear, .theta = 10000, .factor = 4};
  ExpectFrequencies(ComputeRope(config, 8, 256, 256), {0.25, 0.025, 0.0025, 0.00025});
}

TEST(Rope, DynamicIsDefaultUpToTheTrainedLengthAndRaisesThetaPastIt) {
  const RopeConfig config{.kind = RopeKind::kDynamic, .theta = 10000, .factor = 2};
  ExpectFrequencies(ComputeRope(config, 8, 256, 256), {1, 0.1, 0.01, 0.001});
  ExpectFrequencies(ComputeRope(config, 8, 256, 100), {1, 0.1, 0.01, 0.001});
  // theta * (2 * 512 / 256 - 1) ^ (8 / 6): the last frequency falls by 3 exactly.
  ExpectFrequencies(ComputeRope(config, 8, 256, 512),
                    {1, 1 / 14.422495703074084, 1 / 208.0083823051904, 1 / 3000.0});
}

// Wavelengths 6.28, 62.8, 628, 6283 of a trained length of 128: below 32 kept, above 128 divided by
// 4, and 62.8 blended with (128 / 62.83 - 1) / 3 = 0.34573 of the kept one.
TEST(Rope, Llama3KeepsBlendsAndStretches) {
  const RopeConfig config{.kind = RopeKind::kLlama3,
                          .theta = 10000,
                          .factor = 4,
                          .trained_positions = 128,
                          .low_freq_factor = 1,
                          .high_freq_factor = 4};
  ExpectFrequencies(ComputeRope(config, 8, 512, 512), {1, 0.0509295818, 0.0025, 0.00025});
}

// 32 turns in 1024 tokens fall on dimension 1.41, one turn on 4.42; truncated the ramp is 1..5.
TEST(Rope, YarnRampsBetweenTheTwoDimensions) {
  RopeConfig config{
      .kind = RopeKind::kYarn, .theta = 10000, .factor = 4, .trained_positions = 1024};
  const double tenth = std::sqrt(0.1);
  const RopeTable table = ComputeRope(config, 16, 4096, 4096);
  ExpectFrequencies(table, {1, tenth, 0.08125, 0.1 * tenth * 0.625, 0.004375, 0.0025 * tenth,
                            0.00025, 0.00025 * tenth});
  EXPECT_NEAR(table.scale, 1.138629436, 1e-6);
  config.truncate = false;
  ExpectFrequencies(ComputeRope(config, 16, 4096, 4096),
                    {1, tenth, 0.0853986366, 0.0191267758, 0.00355697152, 0.0025 * tenth, 0.00025,
                     0.00025 * tenth});
}

TEST(Rope, YarnScaleFollowsItsOptions) {
  RopeConfig config{
      .kind = RopeKind::kYarn, .theta = 10000, .factor = 4, .trained_positions = 1024};
  config.mscale = 0.7;
  config.mscale_all_dim = 0.5;
  EXPECT_NEAR(ComputeRope(config, 16, 4096, 4096).scale, 1.02592865, 1e-6);
  config.attention_factor = 1.5;
  EXPECT_EQ(ComputeRope(config, 16, 4096, 4096).scale, 1.5f);
  config = {.kind = RopeKind::kYarn, .theta = 10000, .factor = 1, .trained_positions = 1024};
  EXPECT_EQ(ComputeRope(config, 16, 4096, 4096).scale, 1.0f);
}

TEST(Rope, YarnWithAnEmptyRampIsFinite) {
  const RopeConfig config{
      .kind = RopeKind::kYarn, .theta = 10000, .factor = 4, .trained_positions = 1};
  for (const float frequency : ComputeRope(config, 16, 4, 4).inv_freq) {
    EXPECT_TRUE(std::isfinite(frequency));
    EXPECT_GT(frequency, 0);
  }
}

TEST(Rope, NamesRoundTrip) {
  for (const char* name : {"default", "dynamic", "linear", "llama3", "yarn"}) {
    RopeKind kind;
    ASSERT_TRUE(ParseRopeKind(name, &kind));
    EXPECT_STREQ(RopeKindName(kind), name);
  }
  RopeKind kind;
  EXPECT_FALSE(ParseRopeKind("longrope", &kind));
}

}  // namespace
}  // namespace talon
