#include "text/tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace talon {
namespace {

std::string Normalize(const char* json, std::string text) {
  const Result<Normalizer> normalizer = Normalizer::Parse(Json::parse(json), "normalizer");
  if (!normalizer.ok()) return "error: " + normalizer.status().message();
  const Status status = normalizer->Apply(&text);
  return status.ok() ? text : "error: " + status.message();
}

TEST(Normalizer, Kinds) {
  EXPECT_EQ(Normalize(R"({"type": "NFC"})", "A\u030A"), "\u00C5");
  EXPECT_EQ(Normalize(R"({"type": "NFD"})", "\u00C5"), "A\u030A");
  EXPECT_EQ(Normalize(R"({"type": "NFKC"})", "\uFB01"), "fi");
  EXPECT_EQ(Normalize(R"({"type": "NFKD"})", "\u00C5\uFB01"), "A\u030Afi");
  EXPECT_EQ(Normalize(R"({"type": "Lowercase"})", "ÉA"), "éa");
  EXPECT_EQ(Normalize(R"({"type": "Prepend", "prepend": "▁"})", "a"), "▁a");
  EXPECT_EQ(Normalize(R"({"type": "Prepend", "prepend": "▁"})", ""), "");
}

TEST(Normalizer, ReplacesTextAndPatterns) {
  EXPECT_EQ(Normalize(R"({"type": "Replace", "pattern": {"String": "."}, "content": "!"})", "a.b."),
            "a!b!");
  EXPECT_EQ(
      Normalize(R"({"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": "$0"})", "a \n b"),
      "a$0b");
}

TEST(Normalizer, StripsTheSidesAskedFor) {
  const std::string text = "\u3000 a b\n ";
  EXPECT_EQ(Normalize(R"({"type": "Strip", "strip_left": true, "strip_right": true})", text),
            "a b");
  EXPECT_EQ(Normalize(R"({"type": "Strip", "strip_left": true, "strip_right": false})", text),
            "a b\n ");
  EXPECT_EQ(Normalize(R"({"type": "Strip", "strip_left": false, "strip_right": true})", text),
            "\u3000 a b");
  EXPECT_EQ(Normalize(R"({"type": "Strip", "strip_left": true, "strip_right": true})", " \n"), "");
}

TEST(Normalizer, SequencesRunInOrder) {
  EXPECT_EQ(Normalize(R"({"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": " "},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})",
                      "a b"),
            "▁a▁b");
  EXPECT_EQ(Normalize(R"({"type": "Sequence", "normalizers": []})", "a b"), "a b");
}

TEST(Normalizer, ErrorsNameThePlace) {
  EXPECT_EQ(
      Normalize(R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]})", ""),
      "error: normalizer.normalizers[1]: normalizer \"Nmt\" is not supported");
  EXPECT_EQ(Normalize(R"({"type": "Prepend", "prepend": 3})", ""),
            "error: normalizer.prepend: expected a string, found number");
  EXPECT_EQ(Normalize("[]", ""), "error: normalizer: expected an object, found array");
}

TEST(Normalizer, GrowthIsBounded) {
  Json json = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  for (int i = 0; i < 60; ++i) {
    json["normalizers"].push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(64, 'a')}});
  }
  EXPECT_NE(Normalize(json.dump().c_str(), "a").find("error: replacing makes more than"),
            std::string::npos);
}

}  // namespace
}  // namespace talon
