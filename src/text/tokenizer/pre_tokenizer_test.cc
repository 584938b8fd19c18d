#include "text/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace talon {
namespace {

using Strings = std::vector<std::string>;

Strings Words(const std::string& json, const std::string& text) {
  const Result<PreTokenizer> parsed = PreTokenizer::Parse(Json::parse(json), "pre_tokenizer");
  if (!parsed.ok()) return {"error: " + parsed.status().message()};
  WordList list;
  list.text = text;
  list.words = {{{0, text.size()}, true}};
  const Status status = parsed->Apply(&list);
  if (!status.ok()) return {"error: " + status.message()};
  Strings words;
  for (const WordList::Word& word : list.words) words.emplace_back(list.WordText(word));
  return words;
}

std::string SplitJson(const std::string& pattern, const char* behavior, bool invert = false) {
  return Json{{"type", "Split"},
              {"pattern", {{"Regex", pattern}}},
              {"behavior", behavior},
              {"invert", invert}}
      .dump();
}

TEST(PreTokenizer, SplitBehaviors) {
  const std::string text = "the-final--countdown";
  EXPECT_EQ(Words(SplitJson("-", "Removed"), text), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(Words(SplitJson("-", "Isolated"), text),
            (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(Words(SplitJson("-", "MergedWithPrevious"), text),
            (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(Words(SplitJson("-", "MergedWithNext"), text),
            (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(Words(SplitJson("-", "Contiguous"), text),
            (Strings{"the", "-", "final", "--", "countdown"}));
}

TEST(PreTokenizer, InvertedSplitKeepsTheMatches) {
  EXPECT_EQ(Words(SplitJson("[a-z]+", "Removed", true), "ab, cd!"), (Strings{"ab", "cd"}));
  EXPECT_EQ(Words(SplitJson("[a-z]+", "Isolated", true), "ab, cd!"),
            (Strings{"ab", ", ", "cd", "!"}));
}

TEST(PreTokenizer, SplitByTextIsLiteral) {
  EXPECT_EQ(
      Words(R"({"type": "Split", "pattern": {"String": "."}, "behavior": "Isolated"})", "a.bc"),
      (Strings{"a", ".", "bc"}));
  EXPECT_EQ(Words(R"({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated"})", "aé"),
            (Strings{"a", "é"}));
}

TEST(PreTokenizer, ByteLevelWords) {
  const char* json = R"({"type": "ByteLevel", "add_prefix_space": false})";
  EXPECT_EQ(Words(json, "Hello my friend, it's 10  o'clock"),
            (Strings{"Hello", "Ġmy", "Ġfriend", ",", "Ġit", "'s", "Ġ10", "Ġ", "Ġo", "'", "clock"}));
  EXPECT_EQ(Words(json, "é\n\n a"), (Strings{"Ã©", "ĊĊ", "Ġa"}));
}

TEST(PreTokenizer, ByteLevelPrefixSpace) {
  EXPECT_EQ(Words(R"({"type": "ByteLevel", "add_prefix_space": true})", "Hello you"),
            (Strings{"ĠHello", "Ġyou"}));
  EXPECT_EQ(Words(R"({"type": "ByteLevel", "add_prefix_space": true})", " Hello"),
            (Strings{"ĠHello"}));
  EXPECT_EQ(Words(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})", "a b"),
            (Strings{"ĠaĠb"}));
}

// The same text cut by a Split into "Hey my friend ", "<s>" and "how▁are you".
std::string SplitThenMetaspace(const char* scheme) {
  return Json{{"type", "Sequence"},
              {"pretokenizers",
               {Json::parse(SplitJson("<s>", "Isolated")),
                {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}}}}}
      .dump();
}

TEST(PreTokenizer, MetaspacePrependSchemes) {
  const std::string text = "Hey my friend <s>how▁are you";
  EXPECT_EQ(Words(SplitThenMetaspace("always"), text),
            (Strings{"▁Hey", "▁my", "▁friend", "▁", "▁<s>", "▁how", "▁are", "▁you"}));
  EXPECT_EQ(Words(SplitThenMetaspace("first"), text),
            (Strings{"▁Hey", "▁my", "▁friend", "▁", "<s>", "how", "▁are", "▁you"}));
  EXPECT_EQ(Words(SplitThenMetaspace("never"), text),
            (Strings{"Hey", "▁my", "▁friend", "▁", "<s>", "how", "▁are", "▁you"}));
}

TEST(PreTokenizer, MetaspaceSplitsAtEverySpace) {
  const char* json = R"({"type": "Metaspace", "replacement": "▁", "add_prefix_space": true})";
  EXPECT_EQ(Words(json, "Hey   friend!"), (Strings{"▁Hey", "▁", "▁", "▁friend!"}));
  EXPECT_EQ(Words(json, " Hey"), (Strings{"▁Hey"}));
  EXPECT_EQ(Words(R"({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false})", "Hey"),
            (Strings{"Hey"}));
  EXPECT_EQ(Words(R"({"type": "Metaspace", "replacement": "_", "split": false})", "a b"),
            (Strings{"_a_b"}));
}

TEST(PreTokenizer, DigitsPunctuationAndBlanks) {
  EXPECT_EQ(Words(R"({"type": "Digits", "individual_digits": true})", "Call 911½!"),
            (Strings{"Call ", "9", "1", "1", "½", "!"}));
  EXPECT_EQ(Words(R"({"type": "Digits", "individual_digits": false})", "Call 911!"),
            (Strings{"Call ", "911", "!"}));
  EXPECT_EQ(Words(R"({"type": "Punctuation"})", "a$b。c"), (Strings{"a", "$", "b", "。", "c"}));
  EXPECT_EQ(Words(R"({"type": "Whitespace"})", "Hey man!? l\u0301a"),
            (Strings{"Hey", "man", "!?", "l\u0301a"}));
  EXPECT_EQ(Words(R"({"type": "WhitespaceSplit"})", " a,\u3000b "), (Strings{"a,", "b"}));
}

TEST(PreTokenizer, ErrorsNameThePlace) {
  EXPECT_EQ(Words(R"({"type": "UnicodeScripts"})", ""),
            Strings{"error: pre_tokenizer: pre-tokenizer \"UnicodeScripts\" is not supported"});
  EXPECT_EQ(Words(SplitJson("a", "Sideways"), ""),
            Strings{"error: pre_tokenizer.behavior: unknown behavior \"Sideways\""});
  EXPECT_EQ(Words(R"({"type": "Split", "pattern": {}, "behavior": "Removed"})", ""),
            Strings{"error: pre_tokenizer.pattern: expected a member \"Regex\" or \"String\""});
  EXPECT_EQ(Words(R"({"type": "Metaspace", "replacement": "ab"})", ""),
            Strings{"error: pre_tokenizer.replacement: \"ab\" is not one character"});
}

TEST(PreTokenizer, GrowthIsBounded) {
  Json json = {{"type", "Sequence"}, {"pretokenizers", Json::array()}};
  for (int i = 0; i < 60; ++i) {
    json["pretokenizers"].push_back({{"type", "ByteLevel"}, {"use_regex", false}});
  }
  const Strings words = Words(json.dump(), "\u00AD");
  EXPECT_EQ(words, Strings{"error: pre_tokenizer: text grows beyond 65600 bytes"});
}

}  // namespace
}  // namespace talon
