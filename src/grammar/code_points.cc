#include "grammar/code_points.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace talon {
namespace {

// Last code points of 1, 2, 3 and 4 bytes.
constexpr std::array<uint32_t, 4> kLastOfLength = {0x7F, 0x7FF, 0xFFFF, kLastCodePoint};

// The expression for [first, last] of code points that have as many bytes as `bytes` says. The
// leading byte's range is cut where continuation bytes do not cover their whole range.
ExprId RangeOfLength(const std::string& first, const std::string& last, size_t at, ExprPool* pool) {
  const auto low = static_cast<uint8_t>(first[at]);
  const auto high = static_cast<uint8_t>(last[at]);
  if (at + 1 == first.size()) return pool->Bytes(ByteSet::Range(low, high));
  const std::string lowest(first.size(), '\x80');
  const std::string highest(first.size(), '\xBF');
  const auto tail = [&](const std::string& from, const std::string& to) {
    return RangeOfLength(from, to, at + 1, pool);
  };
  if (low == high) return pool->Concat(pool->Byte(first[at]), tail(first, last));
  std::vector<ExprId> parts = {pool->Concat(pool->Byte(first[at]), tail(first, highest)),
                               pool->Concat(pool->Byte(last[at]), tail(lowest, last))};
  if (low + 1 < high) {
    const ExprId between = pool->Bytes(ByteSet::Range(low + 1, high - 1));
    parts.push_back(pool->Concat(between, tail(lowest, highest)));
  }
  return pool->Or(std::move(parts));
}

}  // namespace

void CodePoints::Add(uint32_t first, uint32_t last) {
  auto begin = std::ranges::find_if(ranges_, [&](const Range& r) { return r.last + 1 >= first; });
  auto end = std::find_if(begin, ranges_.end(), [&](const Range& r) { return r.first > last + 1; });
  Range merged{first, last};
  if (begin != end) {
    merged = {std::min(first, begin->first), std::max(last, (end - 1)->last)};
  }
  const auto at = ranges_.erase(begin, end);
  ranges_.insert(at, merged);
}

CodePoints CodePoints::Complement() const {
  CodePoints result;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.Add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) result.Add(next, kLastCodePoint);
  return result.Intersect(All());
}

CodePoints CodePoints::Intersect(const CodePoints& other) const {
  CodePoints result;
  for (const Range& mine : ranges_) {
    for (const Range& its : other.ranges_) {
      const uint32_t first = std::max(mine.first, its.first);
      const uint32_t last = std::min(mine.last, its.last);
      if (first <= last) result.Add(first, last);
    }
  }
  return result;
}

bool CodePoints::Has(uint32_t point) const {
  return std::ranges::any_of(
      ranges_, [point](const Range& range) { return range.first <= point && point <= range.last; });
}

ExprId Utf8Of(const CodePoints& points, ExprPool* pool) {
  std::vector<ExprId> parts;
  const CodePoints valid = points.Intersect(CodePoints::All());
  for (const CodePoints::Range& range : valid.ranges()) {
    uint32_t from = range.first;
    for (const uint32_t longest : kLastOfLength) {
      if (from > longest || from > range.last) continue;
      const uint32_t to = std::min(range.last, longest);
      std::string first, last;
      AppendUtf8(from, &first);
      AppendUtf8(to, &last);
      parts.push_back(RangeOfLength(first, last, 0, pool));
      from = to + 1;
    }
  }
  return pool->Or(std::move(parts));
}

bool DecodeUtf8(std::string_view text, size_t* at, uint32_t* point) {
  const auto lead = static_cast<uint8_t>(text[*at]);
  const int length = lead < 0x80   ? 1
                     : lead < 0xC2 ? 0
                     : lead < 0xE0 ? 2
                     : lead < 0xF0 ? 3
                     : lead < 0xF5 ? 4
                                   : 0;
  if (length == 0 || *at + length > text.size()) return false;
  uint32_t value = length == 1 ? lead : lead & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    const auto byte = static_cast<uint8_t>(text[*at + i]);
    if ((byte & 0xC0) != 0x80) return false;
    value = value << 6 | (byte & 0x3F);
  }
  const bool shortest = length == 1 || value > kLastOfLength[length - 2];
  if (!shortest || value > kLastCodePoint || (value >= 0xD800 && value < 0xE000)) return false;
  *at += length;
  *point = value;
  return true;
}

void AppendUtf8(uint32_t point, std::string* text) {
  if (point < 0x80) {
    text->push_back(static_cast<char>(point));
  } else if (point < 0x800) {
    text->push_back(static_cast<char>(0xC0 | point >> 6));
    text->push_back(static_cast<char>(0x80 | (point & 0x3F)));
  } else if (point < 0x10000) {
    text->push_back(static_cast<char>(0xE0 | point >> 12));
    text->push_back(static_cast<char>(0x80 | (point >> 6 & 0x3F)));
    text->push_back(static_cast<char>(0x80 | (point & 0x3F)));
  } else {
    text->push_back(static_cast<char>(0xF0 | point >> 18));
    text->push_back(static_cast<char>(0x80 | (point >> 12 & 0x3F)));
    text->push_back(static_cast<char>(0x80 | (point >> 6 & 0x3F)));
    text->push_back(static_cast<char>(0x80 | (point & 0x3F)));
  }
}

}  // namespace talon
