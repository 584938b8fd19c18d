// One small tokenizer of each family, with encodings worked out by hand from the rules of the
// Hugging Face library.
#include <gtest/gtest.h>

#include "base/json.h"
#include "text/tokenizer/test_tokenizers.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {
namespace {

using Ids = std::vector<int32_t>;
using Strings = std::vector<std::string>;

const MergeList kEnglishMerges = {{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"},
                                  {"Ġ", "w"}, {"o", "r"}, {"Ġw", "or"}, {"l", "d"}};

TEST(Gpt2Family, SplitsWordsWithTheSpaceBeforeThem) {
  const auto tokenizer = ParseTokenizer(ByteLevelJson(kEnglishMerges));
  EXPECT_EQ(EncodeToStrings(*tokenizer, "hello world"), (Strings{"hello", "Ġwor", "ld"}));
  EXPECT_EQ(EncodeToStrings(*tokenizer, "hello\n  world"),
            (Strings{"hello", "Ċ", "Ġ", "Ġwor", "ld"}));
  EXPECT_EQ(EncodeToStrings(*tokenizer, "it's"), (Strings{"i", "t", "'", "s"}));
}

TEST(Gpt2Family, MergesMayBeOneString) {
  Json json = ByteLevelJson(kEnglishMerges);
  Json merges = {"#version: 0.2"};
  for (const auto& [left, right] : kEnglishMerges) merges.push_back(left + " " + right);
  json["model"]["merges"] = merges;
  EXPECT_EQ(EncodeToStrings(*ParseTokenizer(json), "hello world"),
            (Strings{"hello", "Ġwor", "ld"}));
}

TEST(Gpt2Family, PrefixSpaceComesAfterEveryAddedToken) {
  Json json = ByteLevelJson(kEnglishMerges);
  json["pre_tokenizer"]["add_prefix_space"] = true;
  json["added_tokens"] = Json::array({AddedTokenJson(300, "<|end|>", true)});
  EXPECT_EQ(EncodeToStrings(*ParseTokenizer(json), "world<|end|>world"),
            (Strings{"Ġwor", "ld", "<|end|>", "Ġwor", "ld"}));
}

Json Llama3Json() {
  Json json = ByteLevelJson(kEnglishMerges);
  json["pre_tokenizer"] = Json::parse(R"json({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})json");
  json["model"]["ignore_merges"] = true;
  return json;
}

TEST(Llama3Family, IgnoresMergesForWholeWords) {
  Json json = Llama3Json();
  json["model"]["vocab"]["world"] = 300;
  json["model"]["vocab"]["123"] = 301;
  json["model"]["vocab"]["'S"] = 302;
  const auto tokenizer = ParseTokenizer(json);
  EXPECT_EQ(EncodeToStrings(*tokenizer, "world world"), (Strings{"world", "Ġwor", "ld"}));
  EXPECT_EQ(EncodeToStrings(*tokenizer, "1231234"), (Strings{"123", "123", "4"}));
  EXPECT_EQ(EncodeToStrings(*tokenizer, "it'S"), (Strings{"i", "t", "'S"}));
}

TEST(Llama3Family, LineSeparatorsJoinTheWordAfterThem) {
  Json json = Llama3Json();
  json["model"]["vocab"]["âĢ¨he"] = 300;  // U+2028 and "he"
  EXPECT_EQ(EncodeToStrings(*ParseTokenizer(json), "\u2028he"), Strings{"âĢ¨he"});
}

TEST(Llama3Family, LongSAfterAnApostropheIsAContraction) {
  Json json = Llama3Json();
  json["model"]["vocab"]["'Å¿"] = 300;  // U+017F folds to s
  EXPECT_EQ(EncodeToStrings(*ParseTokenizer(json), "he'\u017F"), (Strings{"he", "'Å¿"}));
}

TEST(QwenFamily, ComposesBeforeItSplits) {
  Json json = Llama3Json();
  json["normalizer"] = {{"type", "NFC"}};
  json["model"]["ignore_merges"] = false;
  json["model"]["vocab"]["Ã¥"] = 300;
  json["model"]["merges"].push_back({"Ã", "¥"});
  const auto tokenizer = ParseTokenizer(json);
  EXPECT_EQ(EncodeToStrings(*tokenizer, "a\u030A"), Strings{"Ã¥"});
  EXPECT_EQ(tokenizer->Decode(*tokenizer->Encode("a\u030A", false), false), "\u00E5");
}

TEST(QwenFamily, AddedTokensAreFoundBeforeComposition) {
  Json json = Llama3Json();
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"] = Json::array({AddedTokenJson(300, "<a\u030A>", false)});
  const auto tokenizer = ParseTokenizer(json);
  EXPECT_EQ(*tokenizer->Encode("<a\u030A>", false), Ids{300});
  json["added_tokens"][0]["normalized"] = true;
  EXPECT_EQ(*ParseTokenizer(json)->Encode("<\u00E5>", false), Ids{300});
}

Json Llama2Json() {
  return SentencePieceJson(
      {"▁", "h", "e", "l", "o", "w"},
      {{"▁", "h"}, {"▁h", "e"}, {"l", "l"}, {"▁he", "ll"}, {"▁hell", "o"}, {"▁", "▁"}});
}

TEST(Llama2Family, PutsASpaceBeforeTheText) {
  const auto tokenizer = ParseTokenizer(Llama2Json());
  EXPECT_EQ(EncodeToStrings(*tokenizer, "hello hello"), (Strings{"▁hello", "▁hello"}));
  EXPECT_EQ(EncodeToStrings(*tokenizer, "  hello"), (Strings{"▁▁", "▁hello"}));
  EXPECT_EQ(EncodeToStrings(*tokenizer, ""), Strings{});
  EXPECT_EQ(tokenizer->Encode("", true)->size(), 1u);
  EXPECT_EQ(tokenizer->Encode("hello", true)->front(), 1);
}

TEST(Llama2Family, PutsASpaceAfterEveryAddedToken) {
  EXPECT_EQ(EncodeToStrings(*ParseTokenizer(Llama2Json()), "hello</s>hello"),
            (Strings{"▁hello", "</s>", "▁hello"}));
}

TEST(Llama2Family, UnknownCharactersBecomeBytes) {
  const auto tokenizer = ParseTokenizer(Llama2Json());
  EXPECT_EQ(EncodeToStrings(*tokenizer, "wé\n"), (Strings{"▁", "w", "<0xC3>", "<0xA9>", "<0x0A>"}));
  EXPECT_EQ(tokenizer->Decode(*tokenizer->Encode("  wé\n", false), true), "  wé\n");
}

TEST(Llama2Family, MissingBytesBecomeOneUnknownToken) {
  Json json = Llama2Json();
  json["model"]["vocab"].erase("<0xC3>");
  EXPECT_EQ(EncodeToStrings(*ParseTokenizer(json), "wéèw"), (Strings{"▁", "w", "<unk>", "w"}));
}

TEST(MistralFamily, MetaspacePrependsOnlyAtTheBeginning) {
  Json json = Llama2Json();
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  const auto tokenizer = ParseTokenizer(json);
  EXPECT_EQ(EncodeToStrings(*tokenizer, "hello hello"), (Strings{"▁hello", "▁hello"}));
  EXPECT_EQ(EncodeToStrings(*tokenizer, "hello</s>hello"),
            (Strings{"▁hello", "</s>", "h", "e", "ll", "o"}));
  EXPECT_EQ(EncodeToStrings(*tokenizer, "</s>hello"), (Strings{"</s>", "h", "e", "ll", "o"}));
}

TEST(GemmaFamily, ReplacesSpacesAndSplitsNothing) {
  Json json = Llama2Json();
  json["normalizer"] =
      Json::parse(R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})");
  json["pre_tokenizer"] = Json::parse(R"({"type": "Split", "pattern": {"String": " "},
                                          "behavior": "MergedWithPrevious", "invert": false})");
  json["decoder"]["decoders"].erase(3);
  const auto tokenizer = ParseTokenizer(json);
  EXPECT_EQ(EncodeToStrings(*tokenizer, "w hello"), (Strings{"w", "▁hello"}));
  EXPECT_EQ(tokenizer->Decode(*tokenizer->Encode(" w hello", false), true), " w hello");
}

TEST(DeepSeekFamily, ChainsSplits) {
  Json json = ByteLevelJson(kEnglishMerges);
  json["pre_tokenizer"] = Json::parse(R"json({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
    {"type": "Split", "pattern": {"Regex": "[一-龥぀-ゟ゠-ヿ]+"}, "behavior": "Isolated", "invert": false},
    {"type": "Split", "pattern": {"Regex": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})json");
  json["model"]["ignore_merges"] = true;
  json["model"]["vocab"]["_he"] = 300;
  json["model"]["vocab"]["æĹ¥æľ¬"] = 301;  // 日本
  EXPECT_EQ(EncodeToStrings(*ParseTokenizer(json), "日本1234_he"),
            (Strings{"æĹ¥æľ¬", "1", "2", "3", "4", "_he"}));
}

}  // namespace
}  // namespace talon
