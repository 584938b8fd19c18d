#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(NearestNameTest, SmallestDistanceWithinReason) {
  const std::vector<std::string> names = {"top_k", "top_p", "temperature", "threads"};
  EXPECT_EQ(NearestName("temprature", names), "temperature");
  EXPECT_EQ(NearestName("top_q", names), "top_k");
  EXPECT_EQ(NearestName("thread", names), "threads");
  EXPECT_EQ(NearestName("seed", names), "");
  EXPECT_EQ(NearestName("xyz", names), "");
  EXPECT_EQ(NearestName("x", {}), "");
}

TEST(NearestNameTest, BeginningsOfNamesComeFirst) {
  const std::vector<std::string> names = {"help", "stop", "top_p", "temperature_x", "temperature"};
  EXPECT_EQ(NearestName("temp", names), "temperature") << "not help, which has two edits";
  EXPECT_EQ(NearestName("temperatur", names), "temperature");
  EXPECT_EQ(NearestName("repeat_penalty", {"length_penalty", "repetition_penalty"}),
            "repetition_penalty")
      << "both have five edits";
}

TEST(NearestNameTest, ShortNamesHaveOneEditAtMost) {
  EXPECT_EQ(NearestName("tp", {"stop", "top_p"}), "");
  EXPECT_EQ(NearestName("sto", {"stop"}), "stop");
  EXPECT_EQ(NearestName("tup", {"top"}), "top");
}

}  // namespace
}  // namespace talon
