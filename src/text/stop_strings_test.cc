#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace talon {
namespace {

StopMatcher Matcher(std::vector<std::string> stops) {
  Result<StopMatcher> matcher = StopMatcher::Create(std::move(stops));
  EXPECT_TRUE(matcher.ok()) << matcher.status().message();
  return std::move(matcher).value();
}

TEST(StopMatcher, WithoutStopStringsTextPassesAtOnce) {
  StopMatcher matcher;
  EXPECT_EQ(matcher.Push("abc").text, "abc");
  EXPECT_EQ(matcher.Flush(), "");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, KeepsBackWhatMayBegin) {
  StopMatcher matcher = Matcher({"###", "\n\n"});
  EXPECT_EQ(matcher.Push("one ##").text, "one ");
  EXPECT_EQ(matcher.Push("x\n").text, "##x");
  EXPECT_EQ(matcher.Push("two").text, "\ntwo");
  EXPECT_EQ(matcher.Push("#").text, "");
  EXPECT_EQ(matcher.Flush(), "#");
}

TEST(StopMatcher, MatchesAcrossPieces) {
  StopMatcher matcher = Matcher({"END"});
  EXPECT_EQ(matcher.Push("the E").text, "the ");
  EXPECT_EQ(matcher.Push("N").text, "");
  const StopMatcher::Output output = matcher.Push("D and more");
  EXPECT_TRUE(output.stopped);
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(matcher.matched_string(), "END");
  EXPECT_EQ(matcher.Push("more").text, "");
  EXPECT_TRUE(matcher.Push("more").stopped);
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, AFailedBeginningMayHideAnother) {
  StopMatcher matcher = Matcher({"aab"});
  EXPECT_EQ(matcher.Push("aaa").text, "a");
  const StopMatcher::Output output = matcher.Push("b");
  EXPECT_TRUE(output.stopped);
  EXPECT_EQ(output.text, "");
}

TEST(StopMatcher, TheFirstToBeCompleteWinsThenTheLongest) {
  StopMatcher first = Matcher({"bcd", "c"});
  EXPECT_EQ(first.Push("abcd").text, "ab");
  EXPECT_EQ(first.matched_index(), 1u);
  StopMatcher longest = Matcher({"c", "bc", "abc"});
  EXPECT_EQ(longest.Push("xabc").text, "x");
  EXPECT_EQ(longest.matched_index(), 2u);
}

TEST(StopMatcher, ACopyIsASnapshot) {
  StopMatcher matcher = Matcher({"stop"});
  EXPECT_EQ(matcher.Push("a st").text, "a ");
  const StopMatcher snapshot = matcher;
  EXPECT_TRUE(matcher.Push("op").stopped);
  matcher = snapshot;
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.Push("ep").text, "step");
}

TEST(StopMatcher, NeverCutsACharacter) {
  StopMatcher matcher = Matcher({"éa"});
  EXPECT_EQ(matcher.Push("è").text, "è");
  EXPECT_EQ(matcher.Push("xé").text, "x");
  EXPECT_EQ(matcher.Push("é").text, "é");
  EXPECT_TRUE(matcher.Push("a").stopped);
}

struct Cut {
  std::string text;
  bool stopped;
};

Cut CutWhole(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopMatcher, DoesNotDependOnThePieces) {
  const std::vector<std::string> stops = {"abab", "bb", "caca", "acb"};
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    const size_t length = random() % 24;
    for (size_t i = 0; i < length; ++i) text.push_back("abc"[random() % 3]);
    StopMatcher matcher = Matcher(stops);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 5;
      shown += matcher.Push(text.substr(at, size)).text;
      at += size;
    }
    shown += matcher.Flush();
    const Cut expected = CutWhole(text, stops);
    EXPECT_EQ(shown, expected.text) << text;
    EXPECT_EQ(matcher.stopped(), expected.stopped) << text;
  }
}

TEST(StopMatcher, RejectsStopStringsItCannotServe) {
  EXPECT_EQ(StopMatcher::Create({"a", ""}).status().message(), "stop string 1 is empty");
  EXPECT_EQ(StopMatcher::Create({"ab\xFF"}).status().message(),
            "stop string 0: not valid UTF-8 at byte 2");
  EXPECT_EQ(StopMatcher::Create({std::string(5000, 'a')}).status().message(),
            "stop string 0: 5000 bytes, limit 4096");
  EXPECT_EQ(StopMatcher::Create(std::vector<std::string>(300, "a")).status().message(),
            "300 stop strings, limit 256");
}

}  // namespace
}  // namespace talon
