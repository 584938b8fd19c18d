#include "text/tokenizer/text_decoder.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace talon {
namespace {

std::string DecoderError(const char* json) {
  const Result<TextDecoder> decoder = TextDecoder::Parse(Json::parse(json), "decoder");
  return decoder.ok() ? "" : decoder.status().message();
}

std::string TokenText(const char* json, std::string_view token, bool first = false) {
  const Result<TextDecoder> decoder = TextDecoder::Parse(Json::parse(json), "decoder");
  return decoder.ok() ? decoder->TokenText(token, first) : "error: " + decoder.status().message();
}

TEST(Decoder, ByteLevelSpellsBytes) {
  const char* json = R"({"type": "ByteLevel"})";
  EXPECT_EQ(TokenText(json, "Ġthe"), " the");
  EXPECT_EQ(TokenText(json, "Ã©"), "é");
  EXPECT_EQ(TokenText(json, "Ã"), "\xC3");
  EXPECT_EQ(TokenText(json, "<|a b|>"), "<|a b|>") << "a space is no byte's character";
}

TEST(Decoder, FallbackBytes) {
  EXPECT_EQ(TextDecoder::FallbackByte("<0xE2>"), '\xE2');
  EXPECT_EQ(TextDecoder::FallbackByte("<0x0a>"), '\n');
  for (const char* text : {"<0xE>", "<0xEG>", "(0xE2>", "<0xE2)", "<0xE21>", ""}) {
    EXPECT_EQ(TextDecoder::FallbackByte(text), std::nullopt) << text;
  }
}

TEST(Decoder, StepsOnTokens) {
  EXPECT_EQ(TokenText(R"({"type": "Replace", "pattern": {"String": "▁"}, "content": " "})", "▁a▁"),
            " a ");
  EXPECT_EQ(TokenText(R"({"type": "Strip", "content": "H", "start": 2, "stop": 1})", "HHHeyH"),
            "Hey");
  EXPECT_EQ(TokenText(R"({"type": "Strip", "content": "H", "start": 1, "stop": 1})", "H"), "");
  const char* metaspace = R"({"type": "Metaspace", "replacement": "▁", "add_prefix_space": true})";
  EXPECT_EQ(TokenText(metaspace, "▁a▁b", true), "ab");
  EXPECT_EQ(TokenText(metaspace, "▁a▁b", false), " a b");
  EXPECT_EQ(TokenText(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})",
                      "▁a", true),
            " a");
}

TEST(Decoder, UnsupportedChainsAreErrorsThatNameThePlace) {
  EXPECT_EQ(DecoderError(R"({"type": "WordPiece"})"),
            "decoder: decoder \"WordPiece\" is not supported");
  EXPECT_EQ(DecoderError(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]})"),
            "decoder.decoders[1]: decoder \"Replace\" is not supported at this place of the chain");
  EXPECT_EQ(DecoderError(R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"},
                {"type": "ByteFallback"}]})"),
            "decoder.decoders[1]: decoder \"ByteFallback\" is not supported at this place of the "
            "chain");
  EXPECT_EQ(DecoderError(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})"),
            "decoder.decoders[1]: after Fuse only one Strip is supported, with stop 0");
  EXPECT_EQ(DecoderError(R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})"),
            "decoder.start: -1 is negative");
  EXPECT_EQ(DecoderError(R"({"type": "Strip", "content": " ", "start": "x", "stop": 0})"),
            "decoder.start: expected an integer, found string");
}

}  // namespace
}  // namespace talon
