#include "serve/http/api/api_keys.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(ApiKeys, WithoutKeysEveryRequestIsAccepted) {
  const ApiKeys keys;
  EXPECT_FALSE(keys.required());
  EXPECT_TRUE(keys.Admits(""));
}

TEST(ApiKeys, OnlyWholeKeysAreAdmitted) {
  const auto keys = ApiKeys::Parse("# team\nalpha\r\n\n  beta-2 \n", "keys.txt");
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  EXPECT_TRUE(keys->required());
  EXPECT_TRUE(keys->Admits("Bearer alpha"));
  EXPECT_TRUE(keys->Admits("bearer  beta-2"));
  for (const char* shown : {"", "alpha", "Bearer ", "Bearer alph", "Bearer alphaa", "Bearer team",
                            "Bearer # team", "Bearer alphaalpha", "Basic alpha"}) {
    EXPECT_FALSE(keys->Admits(shown)) << shown;
  }
}

TEST(ApiKeys, AFileWithoutKeysIsAnError) {
  const auto keys = ApiKeys::Parse("# nothing\n\n", "keys.txt");
  ASSERT_FALSE(keys.ok());
  EXPECT_NE(keys.status().message().find("keys.txt"), std::string::npos);
}

TEST(ApiKeys, AKeyAloneIsAKey) {
  ApiKeys keys;
  ASSERT_TRUE(keys.Add("#one", "api_key").ok());
  EXPECT_TRUE(keys.required());
  EXPECT_TRUE(keys.Admits("Bearer #one"));
  EXPECT_FALSE(keys.Admits("Bearer one"));
  for (const char* bad : {"", "two words", "a\nb", "caf\xc3\xa9"}) {
    EXPECT_FALSE(keys.Add(bad, "api_key").ok()) << bad;
  }
}

}  // namespace
}  // namespace talon
