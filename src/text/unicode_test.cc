#include "text/unicode.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(Utf8, TellsWholeTruncatedAndInvalidCharactersApart) {
  const auto inspect = [](std::string_view bytes) {
    const Utf8Front front = InspectUtf8(bytes);
    return std::pair<int, int>(front.kind, front.length);
  };
  using Pair = std::pair<int, int>;
  EXPECT_EQ(inspect("a"), Pair(Utf8Front::kComplete, 1));
  EXPECT_EQ(inspect("\xE2\x82\xAC!"), Pair(Utf8Front::kComplete, 3));
  EXPECT_EQ(inspect("\xF0\x9F\x98"), Pair(Utf8Front::kTruncated, 3));
  EXPECT_EQ(inspect("\xE2\x82z"), Pair(Utf8Front::kInvalid, 2));
  EXPECT_EQ(inspect("\x80"), Pair(Utf8Front::kInvalid, 1));
  EXPECT_EQ(inspect("\xC0\xAF"), Pair(Utf8Front::kInvalid, 1));          // overlong
  EXPECT_EQ(inspect("\xED\xA0\x80"), Pair(Utf8Front::kInvalid, 1));      // surrogate
  EXPECT_EQ(inspect("\xF4\x90\x80\x80"), Pair(Utf8Front::kInvalid, 1));  // past U+10FFFF
}

TEST(Utf8, NamesTheFirstInvalidByte) {
  EXPECT_EQ(FindInvalidUtf8("plain é \U0001F600"), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("ab\xFFz"), 2u);
  EXPECT_EQ(FindInvalidUtf8("ab\xE2\x82"), 2u);
}

TEST(Utf8, EncodesWhatItDecodes) {
  for (const char32_t c : {0x0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFD, 0x10000, 0x10FFFF}) {
    std::string text;
    AppendUtf8(c, &text);
    EXPECT_FALSE(FindInvalidUtf8(text));
    size_t offset = 0;
    EXPECT_EQ(NextCodePoint(text, &offset), c);
    EXPECT_EQ(offset, text.size());
    EXPECT_EQ(PreviousCharacter("x" + text, 1 + text.size()), 1u);
    EXPECT_EQ(SingleCodePoint(text), c);
  }
  EXPECT_EQ(SingleCodePoint(""), std::nullopt);
  EXPECT_EQ(SingleCodePoint("ab"), std::nullopt);
}

TEST(Unicode, Properties) {
  for (const char32_t c : {0x09, 0x20, 0x85, 0xA0, 0x2028, 0x3000}) EXPECT_TRUE(IsWhitespace(c));
  for (const char32_t c : {0x61, 0x180E, 0x200B, 0xFEFF}) EXPECT_FALSE(IsWhitespace(c));
  for (const char32_t c : {0x5F, 0x301, 0x661, 0x2160, 0x24B6, 0x6F22, 0x200D}) {
    EXPECT_TRUE(IsWordCharacter(c)) << uint32_t{c};
  }
  for (const char32_t c : {0x2D, 0x20, 0xB2, 0x1F600})
    EXPECT_FALSE(IsWordCharacter(c)) << uint32_t{c};
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(NormalizeUnicode("A\u030A", NormalForm::kNfc), "\u00C5");
  EXPECT_EQ(NormalizeUnicode("\u212B", NormalForm::kNfc), "\u00C5");
  EXPECT_EQ(NormalizeUnicode("\u00C5", NormalForm::kNfd), "A\u030A");
  EXPECT_EQ(NormalizeUnicode("\uAC01", NormalForm::kNfd), "\u1100\u1161\u11A8");
  EXPECT_EQ(NormalizeUnicode("\u1100\u1161\u11A8", NormalForm::kNfc), "\uAC01");
  EXPECT_EQ(NormalizeUnicode("\uFB01 \u00BD", NormalForm::kNfc), "\uFB01 \u00BD");
  EXPECT_EQ(NormalizeUnicode("\uFB01 \u00BD", NormalForm::kNfkc), "fi 1\u20442");
  EXPECT_EQ(NormalizeUnicode("\uFF21\u030A", NormalForm::kNfkd), "A\u030A");
  EXPECT_EQ(NormalizeUnicode(std::string("\0x", 2), NormalForm::kNfc), std::string("\0x", 2));
}

TEST(Unicode, MarksAreOrderedByTheirClass) {
  // U+0323 (below, 220) comes before U+0301 (above, 230); equal classes keep their order.
  EXPECT_EQ(NormalizeUnicode("q\u0301\u0323\u0300", NormalForm::kNfd), "q\u0323\u0301\u0300");
  EXPECT_EQ(NormalizeUnicode("a\u0301\u0323", NormalForm::kNfc), "\u1EA1\u0301");
}

TEST(Unicode, LongRunsOfMarksAreNotQuadratic) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += "\u0301\u0323";
  const std::string ordered = NormalizeUnicode(text, NormalForm::kNfd);
  EXPECT_EQ(ordered.size(), text.size());
  EXPECT_EQ(ordered.substr(0, 5), "a\u0323\u0323");
}

TEST(Unicode, LowercasesCharacterByCharacter) {
  EXPECT_EQ(LowercaseUnicode("ÀB \u0130 ΑΣ ẞ"), "àb i\u0307 ασ ß");
}

}  // namespace
}  // namespace talon
