// Broken tokenizer.json files: each is an error that says what is wrong, never a crash.
#include <gtest/gtest.h>

#include <functional>

#include "base/json.h"
#include "text/tokenizer/test_tokenizers.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {
namespace {

struct Case {
  const char* name;
  std::function<void(Json*)> change;  // changes a tokenizer that loads
  const char* message;                // part of the error
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

class Malformed : public testing::TestWithParam<Case> {};

TEST_P(Malformed, IsAnErrorThatSaysSo) {
  Json json = SentencePieceJson({"▁", "a", "b"}, {{"a", "b"}});
  ASSERT_NE(ParseTokenizer(json), nullptr);
  GetParam().change(&json);
  const auto tokenizer = Tokenizer::Parse(json.dump(), "tokenizer.json");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.status().message().find(GetParam().message), std::string::npos)
      << tokenizer.status().message();
}

Json& Vocab(Json* json) { return (*json)["model"]["vocab"]; }

const Case kCases[] = {
    {"NotAnObject", [](Json* j) { *j = Json::array(); }, "expected an object, found array"},
    {"NoModel", [](Json* j) { j->erase("model"); }, "tokenizer.json.model: missing"},
    {"ModelIsText", [](Json* j) { (*j)["model"] = "x"; }, "model: expected an object"},
    {"OtherModel", [](Json* j) { (*j)["model"]["type"] = "WordPiece"; }, "model \"WordPiece\""},
    {"NoVocab", [](Json* j) { (*j)["model"].erase("vocab"); }, "model.vocab: missing"},
    {"EmptyVocab", [](Json* j) { Vocab(j) = Json::object(); }, "model.vocab: empty"},
    {"VocabIsAList",
     [](Json* j) {
       Vocab(j) = {1, 2};
     },
     "model.vocab: expected an object"},
    {"IdIsText", [](Json* j) { Vocab(j)["x"] = "7"; }, "token \"x\""},
    {"IdIsNegative", [](Json* j) { Vocab(j)["x"] = -7; }, "token id -7"},
    {"IdIsAFraction", [](Json* j) { Vocab(j)["x"] = 7.5; }, "token id 7.5"},
    {"IdIsHuge", [](Json* j) { Vocab(j)["x"] = 2147483648u; }, "not an integer in [0, 4194303]"},
    {"IdIsHuger", [](Json* j) { Vocab(j)["x"] = 1e30; }, "token id 1e+30"},
    {"IdsShared", [](Json* j) { Vocab(j)["x"] = 260; }, "have the same id 260"},
    {"NoMerges", [](Json* j) { (*j)["model"].erase("merges"); }, "model.merges: missing"},
    {"MergeOfUnknown", [](Json* j) { (*j)["model"]["merges"] = {"a x"}; },
     "merges[0]: token \"x\" is not in the vocabulary"},
    {"MergeIntoUnknown", [](Json* j) { (*j)["model"]["merges"] = {"b a"}; }, "token \"ba\""},
    {"MergeOfThree", [](Json* j) { (*j)["model"]["merges"] = {"a b c"}; }, "is not two tokens"},
    {"MergeIsANumber", [](Json* j) { (*j)["model"]["merges"] = {7}; }, "merges[0]: expected"},
    {"FlagIsText", [](Json* j) { (*j)["model"]["byte_fallback"] = "yes"; },
     "model.byte_fallback: expected true or false"},
    {"AddedIsAnObject", [](Json* j) { (*j)["added_tokens"] = Json::object(); },
     "added_tokens: expected an array"},
    {"AddedIdTaken", [](Json* j) { (*j)["added_tokens"].push_back(AddedTokenJson(5, "x", true)); },
     "have the same id 5"},
    {"AddedHasTwoIds", [](Json* j) { (*j)["added_tokens"][0]["id"] = 500; },
     "token \"<unk>\" has two ids, 0 and 500"},
    {"AddedIdHuge", [](Json* j) { (*j)["added_tokens"][0]["id"] = 1u << 31; },
     "added_tokens[0].id: token id 2147483648"},
    {"BadRegex",
     [](Json* j) {
       (*j)["pre_tokenizer"] = {
           {"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
     },
     "pre_tokenizer.pattern: regex \"(a\""},
    {"UnknownNormalizer",
     [](Json* j) {
       (*j)["normalizer"] = {{"type", "Precompiled"}};
     },
     "normalizer \"Precompiled\" is not supported"},
    {"NormalizerWithoutType", [](Json* j) { (*j)["normalizer"] = Json::object(); },
     "normalizer.type: missing"},
    {"TemplateIdMissing",
     [](Json* j) { (*j)["post_processor"]["special_tokens"]["<s>"]["ids"] = {4000}; },
     "post_processor: no token has id 4000"},
    {"UnknownDecoder",
     [](Json* j) {
       (*j)["decoder"] = {{"type", "CTC"}};
     },
     "decoder \"CTC\" is not supported"},
};

INSTANTIATE_TEST_SUITE_P(Tokenizer, Malformed, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(MalformedText, IsAnError) {
  for (const char* text : {"", "{", "nul", "{\"model\": {\"vocab\": {\"\xFF\": 1}}}", "[[[["}) {
    const auto tokenizer = Tokenizer::Parse(text, "tokenizer.json");
    ASSERT_FALSE(tokenizer.ok()) << text;
    EXPECT_EQ(tokenizer.status().message().find("tokenizer.json"), 0u);
  }
}

TEST(MalformedText, TruncationsOfAGoodFileAreErrors) {
  const std::string json = SentencePieceJson({"▁", "a", "b"}, {{"a", "b"}}).dump();
  for (size_t length = 0; length < json.size(); length += 97) {
    EXPECT_FALSE(Tokenizer::Parse(json.substr(0, length), "tokenizer.json").ok());
  }
}

}  // namespace
}  // namespace talon
