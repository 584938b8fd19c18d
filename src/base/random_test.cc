#include "base/random.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, 0, 0),
            (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({100, 0, 0, 0}, 42, 0),
            (PhiloxWords{0x82be1bf1, 0x5f3009ea, 0xd1836927, 0x815a6dc2}));
}

TEST(Philox, UniformOfSeed42Position100) {
  EXPECT_EQ(UniformDraw({.seed = 42, .position = 100}), 0.5107133354460417);
}

TEST(Philox, EveryPartOfTheKeyCounts) {
  const RandomKey base{.seed = 7, .position = 3};
  const double u = UniformDraw(base);
  EXPECT_NE(u, UniformDraw({.seed = 7ull << 32 | 7, .position = 3}));
  EXPECT_NE(u, UniformDraw({.seed = 7, .position = 1ull << 32 | 3}));
  EXPECT_NE(u, UniformDraw({.seed = 7, .position = 3, .stream = RandomStream::kDrafter}));
  EXPECT_NE(u, UniformDraw({.seed = 7, .position = 3, .choice = 1}));
  EXPECT_NE(u, UniformDraw({.seed = 7, .position = 3, .draw = 1}));
}

}  // namespace
}  // namespace talon
