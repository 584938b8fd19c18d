#include "text/unicode.h"

namespace talon {
namespace {

struct LeadByte {
  int length;               // bytes of the whole character, 0 if no character starts so
  unsigned char low, high;  // range of the second byte
};

LeadByte InspectLead(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Front InspectUtf8(std::string_view bytes) {
  const LeadByte lead = InspectLead(static_cast<unsigned char>(bytes[0]));
  if (lead.length == 0) return {Utf8Front::kInvalid, 1};
  for (int i = 1; i < lead.length; ++i) {
    if (static_cast<size_t>(i) == bytes.size()) return {Utf8Front::kTruncated, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Front::kInvalid, i};
  }
  return {Utf8Front::kComplete, lead.length};
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Front front = InspectUtf8(text.substr(offset));
    if (front.kind != Utf8Front::kComplete) return offset;
    offset += front.length;
  }
  return std::nullopt;
}

char32_t NextCodePoint(std::string_view text, size_t* offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[*offset + i]); };
  const unsigned char lead = byte(0);
  char32_t c = lead;
  size_t length = 1;
  if (lead >= 0xF0) {
    c = (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    length = 4;
  } else if (lead >= 0xE0) {
    c = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    length = 3;
  } else if (lead >= 0x80) {
    c = (lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
    length = 2;
  }
  *offset += length;
  return c;
}

size_t PreviousCharacter(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (text[end] & 0xC0) == 0x80);
  return end;
}

void AppendUtf8(char32_t c, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::optional<char32_t> SingleCodePoint(std::string_view text) {
  if (text.empty()) return std::nullopt;
  size_t offset = 0;
  const char32_t c = NextCodePoint(text, &offset);
  if (offset != text.size()) return std::nullopt;
  return c;
}

bool IsWhitespace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace talon
