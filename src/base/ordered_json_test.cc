#include "base/ordered_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace talon {
namespace {

TEST(OrderedJsonTest, KeepsTheOrderOfKeys) {
  const std::string text = R"({"z":1,"a":[true,null,-2,1.5,"x"],"m":{"y":{},"b":[]}})";
  const auto json = ParseOrderedJson(text, "test");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(json->dump(), text);
}

TEST(OrderedJsonTest, TheLastOfEqualKeysCounts) {
  EXPECT_EQ(ParseOrderedJson(R"({"a":1,"b":2,"a":3})", "test")->dump(), R"({"a":3,"b":2})");
}

TEST(OrderedJsonTest, ManyKeysTakeLinearTime) {  // quadratic time would be minutes
  std::string text = "{";
  for (int i = 0; i < 300000; ++i) text += fmt::format("{}\"key{}\":{}", i == 0 ? "" : ",", i, i);
  const auto json = ParseOrderedJson(text + "}", "test");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->size(), 300000u);
}

TEST(OrderedJsonTest, BadTextIsAnErrorWithItsPlace) {
  EXPECT_EQ(ParseOrderedJson("[1, x]", "body").status().message(),
            "body: not valid JSON at byte 5");
  EXPECT_FALSE(ParseOrderedJson("", "body").ok());
  EXPECT_FALSE(ParseOrderedJson("{} {}", "body").ok());
  EXPECT_FALSE(ParseOrderedJson("\"\xFF\"", "body").ok());
  EXPECT_FALSE(ParseOrderedJson("[1e999]", "body").ok());
}

TEST(OrderedJsonTest, DeepNestingIsAnError) {
  EXPECT_TRUE(ParseOrderedJson(std::string(256, '[') + std::string(256, ']'), "body").ok());
  EXPECT_EQ(ParseOrderedJson(std::string(100000, '['), "body").status().message(),
            "body: JSON nested more than 256 levels deep");
}

}  // namespace
}  // namespace talon
