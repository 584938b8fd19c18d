#include "text/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <random>

#include "base/json.h"

namespace talon {
namespace {

using Ids = std::vector<int32_t>;

Json AbcModel() {
  return Json::parse(R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4,
      "abc": 5, "<unk>": 6}, "merges": ["b c", "a b", "a bc"]})");
}

Ids Encode(const Json& json, std::string_view word) {
  const Result<BpeModel> model = BpeModel::Parse(json, "model");
  EXPECT_TRUE(model.ok()) << model.status().message();
  BpeScratch scratch;
  Ids ids;
  const Status status = model->Encode(word, &scratch, &ids);
  EXPECT_TRUE(status.ok()) << status.message();
  return ids;
}

TEST(Bpe, TheLowestRankGoesFirst) {
  EXPECT_EQ(Encode(AbcModel(), "abc"), Ids{5});
  EXPECT_EQ(Encode(AbcModel(), "abab"), (Ids{3, 3}));
  EXPECT_EQ(Encode(AbcModel(), "abcc"), (Ids{5, 2}));
  EXPECT_EQ(Encode(AbcModel(), "cab"), (Ids{2, 3}));
}

TEST(Bpe, EqualRanksGoFromTheLeft) {
  const Json json =
      Json::parse(R"({"vocab": {"a": 0, "aa": 1, "aaa": 2}, "merges": [["a", "a"], ["aa", "a"]]})");
  EXPECT_EQ(Encode(json, "aaaaa"), (Ids{1, 2}));
}

TEST(Bpe, UnknownCharactersWithoutAnUnknownTokenVanish) {
  EXPECT_EQ(Encode(AbcModel(), "axb"), Ids{3});
}

TEST(Bpe, UnknownCharactersBecomeTheUnknownToken) {
  Json json = AbcModel();
  json["unk_token"] = "<unk>";
  EXPECT_EQ(Encode(json, "axxb"), (Ids{0, 6, 6, 1}));
  json["fuse_unk"] = true;
  EXPECT_EQ(Encode(json, "axxbxy"), (Ids{0, 6, 1, 6}));
  json["unk_token"] = "missing";
  const Result<BpeModel> model = BpeModel::Parse(json, "model");
  BpeScratch scratch;
  Ids ids;
  EXPECT_FALSE(model->Encode("ax", &scratch, &ids).ok());
}

TEST(Bpe, ByteFallbackNeedsAllBytesOfTheCharacter) {
  Json json = AbcModel();
  json["byte_fallback"] = true;
  json["unk_token"] = "<unk>";
  json["vocab"]["<0xC3>"] = 7;
  json["vocab"]["<0xA9>"] = 8;
  EXPECT_EQ(Encode(json, "aéb"), (Ids{0, 7, 8, 1}));
  EXPECT_EQ(Encode(json, "aèb"), (Ids{0, 6, 1}));
}

TEST(Bpe, IgnoreMergesTakesWholeWords) {
  Json json = AbcModel();
  json["vocab"]["cab"] = 7;
  EXPECT_EQ(Encode(json, "cab"), (Ids{2, 3}));
  json["ignore_merges"] = true;
  EXPECT_EQ(Encode(json, "cab"), Ids{7});
}

TEST(Bpe, TheCacheDoesNotChangeTheResult) {
  const Result<BpeModel> model = BpeModel::Parse(AbcModel(), "model");
  BpeScratch scratch;
  Ids twice;
  ASSERT_TRUE(model->Encode("abcab", &scratch, &twice).ok());
  ASSERT_TRUE(model->Encode("abcab", &scratch, &twice).ok());
  EXPECT_EQ(twice, (Ids{5, 3, 5, 3}));
}

// The definition, quadratic: merge the lowest-ranked pair, the leftmost one, until there is none.
std::vector<std::string> MergeByDefinition(const std::string& word,
                                           const std::vector<std::vector<std::string>>& merges) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (bool merged = true; merged;) {
    merged = false;
    for (const auto& merge : merges) {
      for (size_t i = 0; i + 1 < parts.size() && !merged; ++i) {
        if (parts[i] != merge[0] || parts[i + 1] != merge[1]) continue;
        parts[i] += parts[i + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        merged = true;
      }
      if (merged) break;
    }
  }
  return parts;
}

TEST(Bpe, EqualsTheDefinitionOnRandomWords) {
  const std::vector<std::vector<std::string>> merges = {
      {"a", "b"}, {"b", "a"},   {"ab", "a"},  {"c", "c"}, {"ba", "c"},
      {"a", "a"}, {"aa", "aa"}, {"ab", "ab"}, {"c", "a"}, {"cc", "ab"}};
  Json json = {{"vocab", {{"a", 0}, {"b", 1}, {"c", 2}}}, {"merges", merges}};
  for (const auto& merge : merges) {
    const int id = static_cast<int>(json["vocab"].size());
    json["vocab"][merge[0] + merge[1]] = id;
  }
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string word;
    const size_t length = 1 + random() % 200;  // some are long enough to be encoded in segments
    for (size_t i = 0; i < length; ++i) word.push_back("abc"[random() % 3]);
    Ids expected;
    for (const std::string& part : MergeByDefinition(word, merges)) {
      expected.push_back(json["vocab"][part]);
    }
    EXPECT_EQ(Encode(json, word), expected) << word;
  }
}

TEST(Bpe, LongWordsAreNotQuadratic) {
  const Json json = Json::parse(R"({"vocab": {"a": 0, "aa": 1, "aaaa": 2},
                                    "merges": [["a", "a"], ["aa", "aa"]]})");
  EXPECT_EQ(Encode(json, std::string(400000, 'a')), Ids(100000, 2));
}

TEST(Bpe, SegmentsOfALongWordDoNotChangeTheResult) {
  Json json = AbcModel();
  json["unk_token"] = "<unk>";
  json["fuse_unk"] = true;
  const std::string unit = "abcxxabx";  // c|x, x|a: unknown beside known; nothing joins "ca"
  std::string word;
  Ids expected;
  for (int i = 0; i < 40; ++i) {
    word += unit;
    const Ids ids = {5, 6, 3, 6};
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(Encode(json, word), expected);
}

TEST(Bpe, UnsupportedOptionsAreErrors) {
  const auto error = [](const char* key, const Json& value) {
    Json json = AbcModel();
    json[key] = value;
    const Result<BpeModel> model = BpeModel::Parse(json, "model");
    return model.ok() ? "" : model.status().message();
  };
  EXPECT_EQ(error("dropout", 0.0), "");
  EXPECT_EQ(error("end_of_word_suffix", ""), "");
  EXPECT_EQ(error("dropout", 0.1), "model.dropout: 0.1 would make encoding random");
  EXPECT_EQ(error("end_of_word_suffix", "</w>"),
            "model.end_of_word_suffix: \"</w>\" is not supported");
  EXPECT_EQ(error("continuing_subword_prefix", "##"),
            "model.continuing_subword_prefix: \"##\" is not supported");
  EXPECT_EQ(error("type", "Unigram"), "model.type: model \"Unigram\" is not supported, only BPE");
}

}  // namespace
}  // namespace talon
