#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"

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

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

int Options(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::kNfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

std::vector<utf8proc_int32_t> Decompose(std::string_view text, utf8proc_option_t options) {
  constexpr int kLongestDecomposition = 32;  // Unicode's longest has 18 code points
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  utf8proc_int32_t buffer[kLongestDecomposition];
  for (size_t offset = 0; offset < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(NextCodePoint(text, &offset));
    int boundary_class = 0;
    const auto count =
        utf8proc_decompose_char(c, buffer, kLongestDecomposition, options, &boundary_class);
    TALON_CHECK(count >= 0 && count <= kLongestDecomposition, "code point {:#x}", c);
    points.insert(points.end(), buffer, buffer + count);
  }
  return points;
}

int CombiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// utf8proc_decompose() orders marks by exchanging neighbours, which a long run of marks turns
// quadratic; a stable sort of each run gives the same order.
void OrderMarks(std::vector<utf8proc_int32_t>* points) {
  const auto is_mark = [](utf8proc_int32_t c) { return CombiningClass(c) != 0; };
  for (auto run = points->begin(); run != points->end();) {
    run = std::find_if(run, points->end(), is_mark);
    const auto end = std::find_if_not(run, points->end(), is_mark);
    std::stable_sort(run, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    run = end;
  }
}

// Circled and squared letters: the only alphabetic characters that are neither letters, marks nor
// letter numbers.
bool IsAlphabeticSymbol(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
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

bool IsWordCharacter(char32_t c) {
  if (c == 0x200C || c == 0x200D || IsAlphabeticSymbol(c)) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

std::string NormalizeUnicode(std::string_view text, NormalForm form) {
  if (IsAscii(text)) return std::string(text);
  const auto options = static_cast<utf8proc_option_t>(Options(form));
  std::vector<utf8proc_int32_t> points = Decompose(text, options);
  OrderMarks(&points);
  const auto count = utf8proc_normalize_utf32(
      points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
  TALON_CHECK(count >= 0, "utf8proc error {}", count);
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(static_cast<char32_t>(points[i]), &out);
  return out;
}

std::string LowercaseUnicode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = NextCodePoint(text, &offset);
    if (c == 0x130) {
      out += "i\xCC\x87";  // the one lower-case mapping that has two characters
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), &out);
    }
  }
  return out;
}

}  // namespace talon
