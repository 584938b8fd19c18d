// What needs Unicode's tables, which utf8proc has.
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/unicode.h"

namespace talon {
namespace {

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
