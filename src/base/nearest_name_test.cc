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

}  // namespace
}  // namespace talon
