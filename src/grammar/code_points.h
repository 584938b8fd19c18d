// Sets of Unicode code points, and the bytes of their UTF-8.
#ifndef TALON_GRAMMAR_CODE_POINTS_H_
#define TALON_GRAMMAR_CODE_POINTS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/expr.h"

namespace talon {

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

class CodePoints {
 public:
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0;
    bool operator==(const Range&) const = default;
  };
  CodePoints() = default;
  CodePoints(std::initializer_list<Range> ranges) {
    for (const Range& range : ranges) Add(range.first, range.last);
  }
  // All but the surrogates.
  static CodePoints All() { return {{0, 0xD7FF}, {0xE000, kLastCodePoint}}; }

  void Add(uint32_t first, uint32_t last);
  void Add(const CodePoints& other) {
    for (const Range& range : other.ranges_) Add(range.first, range.last);
  }
  CodePoints Complement() const;
  CodePoints Intersect(const CodePoints& other) const;
  bool Has(uint32_t point) const;
  bool empty() const { return ranges_.empty(); }
  // Sorted, apart from each other.
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// The expression for the UTF-8 of one code point of the set.
ExprId Utf8Of(const CodePoints& points, ExprPool* pool);

// Decodes the code point at `at` and moves it on; false at malformed UTF-8.
bool DecodeUtf8(std::string_view text, size_t* at, uint32_t* point);
void AppendUtf8(uint32_t point, std::string* text);

}  // namespace talon

#endif  // TALON_GRAMMAR_CODE_POINTS_H_
