#include "base/json.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(Json, ErrorsNameTheSource) {
  const auto result = ParseJson("{\"a\": ", "config.json");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("config.json: not valid JSON"), std::string::npos);
}

TEST(Json, TextAfterANulByteIsNotIgnored) {
  EXPECT_FALSE(ParseJson(std::string_view("7\0garbage", 9), "nul").ok());
}

TEST(Json, DeepNestingIsRefused) {
  const std::string deep(100000, '[');
  const auto result = ParseJson(deep, "deep");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("nested"), std::string::npos);
  EXPECT_TRUE(ParseJson("\"[[[\\\"[[\"", "string").ok());
}

}  // namespace
}  // namespace talon
