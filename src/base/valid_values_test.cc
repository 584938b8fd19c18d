#include "base/valid_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace talon {
namespace {

TEST(Range, HasBothEnds) {
  const Range range{0, 1};
  EXPECT_TRUE(range.Contains(0));
  EXPECT_TRUE(range.Contains(1.0f));
  EXPECT_FALSE(range.Contains(-1));
  EXPECT_FALSE(range.Contains(1.5f));
}

TEST(Range, MayLackAnEndOrExcludeIt) {
  const Range open{.low = 1};
  EXPECT_TRUE(open.Contains(std::numeric_limits<int64_t>::max()));
  EXPECT_FALSE(open.Contains(0));
  const Range above{.low = 0, .high = 64, .above_low = true};
  EXPECT_FALSE(above.Contains(0.0f));
  EXPECT_TRUE(above.Contains(64.0f));
}

TEST(Range, MayHaveOneMoreValue) {
  const Range range{.low = 0, .high = 100, .also = -1};
  EXPECT_TRUE(range.Contains(-1.0f));
  EXPECT_FALSE(range.Contains(-0.5f));
}

TEST(Range, NanIsInNone) {
  EXPECT_FALSE(Range().Contains(NAN));
  EXPECT_FALSE((Range{0, 1}.Contains(NAN)));
}

// 0.01f is below the double 0.01.
TEST(Range, FloatsAreComparedAsFloats) {
  const Range range{0.01, 100};
  EXPECT_TRUE(range.Contains(0.01f));
  EXPECT_FALSE(range.Contains(std::nextafter(0.01f, 0.0f)));
}

TEST(CheckRange, NamesValueAndRange) {
  EXPECT_TRUE(CheckRange("top_p", 1.0f, {0, 1}).ok());
  EXPECT_EQ(CheckRange("top_p", 1.5f, {0, 1}).message(), "top_p: 1.5, must be 0 to 1");
  EXPECT_EQ(CheckRange("top_p", NAN, {0, 1}).message(), "top_p: nan, must be 0 to 1");
  EXPECT_EQ(CheckRange("top_k", -1, {.low = 0}).message(), "top_k: -1, must be 0 or more");
  EXPECT_EQ(CheckRange("x", 0, {.low = 0, .above_low = true}).message(), "x: 0, must be above 0");
  EXPECT_EQ(CheckRange("x", 65, {.low = 0, .high = 64, .above_low = true}).message(),
            "x: 65, must be above 0, at most 64");
  EXPECT_EQ(CheckRange("x", -2, {.low = 0, .high = 100, .also = -1}).message(),
            "x: -2, must be -1 or 0 to 100");
  EXPECT_EQ(CheckRange("x", -1, {0, 1 << 30}).message(), "x: -1, must be 0 to 1073741824");
}

TEST(JoinWithOr, ListsNames) {
  EXPECT_EQ(JoinWithOr({}), "");
  EXPECT_EQ(JoinWithOr({"a"}), "a");
  EXPECT_EQ(JoinWithOr({"a", "b"}), "a or b");
  EXPECT_EQ(JoinWithOr({"8", "16", "32", "64"}), "8, 16, 32 or 64");
}

}  // namespace
}  // namespace talon
