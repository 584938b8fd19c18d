#include "text/tokenizer/test_tokenizers.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "text/tokenizer/byte_level.h"

namespace talon {
namespace {

void AddMerges(const MergeList& merges, Json* model) {
  int id = static_cast<int>((*model)["vocab"].size());
  (*model)["merges"] = Json::array();
  for (const auto& [left, right] : merges) {
    (*model)["vocab"][left + right] = id++;
    (*model)["merges"].push_back({left, right});
  }
}

}  // namespace

Json AddedTokenJson(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

Json ByteLevelJson(const MergeList& merges) {
  Json json = Json::parse(R"({
    "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "vocab": {}, "merges": []}})");
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    AppendByteLevel(std::string(1, static_cast<char>(byte)), &spelled);
    json["model"]["vocab"][spelled] = byte;
  }
  AddMerges(merges, &json["model"]);
  return json;
}

Json SentencePieceJson(const std::vector<std::string>& characters, const MergeList& merges) {
  Json json = Json::parse(R"({
    "version": "1.0", "pre_tokenizer": null,
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
              "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2}, "merges": []}})");
  json["added_tokens"] =
      Json::array({AddedTokenJson(0, "<unk>", true), AddedTokenJson(1, "<s>", true),
                   AddedTokenJson(2, "</s>", true)});
  Json& vocabulary = json["model"]["vocab"];
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
  int id = static_cast<int>(vocabulary.size());
  for (const std::string& character : characters) vocabulary[character] = id++;
  AddMerges(merges, &json["model"]);
  return json;
}

std::unique_ptr<Tokenizer> ParseTokenizer(const Json& json) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Parse(json.dump(), "test");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

std::vector<std::string> EncodeToStrings(const Tokenizer& tokenizer, std::string_view text) {
  const Result<std::vector<int32_t>> ids = tokenizer.Encode(text, false);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  std::vector<std::string> tokens;
  if (!ids.ok()) return tokens;
  for (const int32_t id : *ids) tokens.emplace_back(tokenizer.Token(id).value_or("(none)"));
  return tokens;
}

std::string TinyTokenizerPath() {
  return std::string(TALON_SOURCE_DIR) + "/models/tiny/tokenizer.json";
}

}  // namespace talon
