#include "text/tokenizer/post_processor.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace talon {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kBosEos = R"({"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "</s>", "type_id": 0}}],
  "pair": [],
  "special_tokens": {"<s>": {"id": "<s>", "ids": [1, 7], "tokens": ["<s>", "x"]},
                     "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}})";

std::string ProcessorError(const Json& json) {
  const Result<PostProcessor> processor = PostProcessor::Parse(json, "post_processor");
  return processor.ok() ? "" : processor.status().message();
}

TEST(PostProcessor, TemplatesSurroundTheText) {
  const Result<PostProcessor> processor = PostProcessor::Parse(Json::parse(kBosEos), "p");
  ASSERT_TRUE(processor.ok()) << processor.status().message();
  EXPECT_EQ(processor->prefix(), (Ids{1, 7}));
  EXPECT_EQ(processor->suffix(), Ids{2});
}

TEST(PostProcessor, LaterTemplatesGoAroundEarlierOnes) {
  Json outer = Json::parse(kBosEos);
  outer["special_tokens"]["<s>"]["ids"] = {8};
  outer["special_tokens"]["</s>"]["ids"] = {9};
  const Json json = {{"type", "Sequence"},
                     {"processors", {{{"type", "ByteLevel"}}, Json::parse(kBosEos), outer}}};
  const Result<PostProcessor> processor = PostProcessor::Parse(json, "p");
  ASSERT_TRUE(processor.ok()) << processor.status().message();
  EXPECT_EQ(processor->prefix(), (Ids{8, 1, 7}));
  EXPECT_EQ(processor->suffix(), (Ids{2, 9}));
}

TEST(PostProcessor, ErrorsNameThePlace) {
  Json json = Json::parse(kBosEos);
  json["single"][0]["SpecialToken"]["id"] = "<none>";
  EXPECT_EQ(ProcessorError(json), "post_processor.special_tokens: no special token \"<none>\"");
  json = Json::parse(kBosEos);
  json["single"][1]["Sequence"]["id"] = "B";
  EXPECT_EQ(ProcessorError(json), "post_processor.single[1].Sequence.id: \"B\" is not A");
  json = Json::parse(kBosEos);
  json["single"].erase(1);
  EXPECT_EQ(ProcessorError(json), "post_processor.single: the text appears 0 times, not once");
  json = Json::parse(kBosEos);
  json["special_tokens"]["<s>"]["ids"] = {-1};
  EXPECT_EQ(ProcessorError(json),
            "post_processor.special_tokens.<s>.ids: token id -1 is not an integer in [0, 4194303]");
  EXPECT_EQ(ProcessorError({{"type", "BertProcessing"}}),
            "post_processor: post-processor \"BertProcessing\" is not supported");
}

}  // namespace
}  // namespace talon
