#include "grammar/schema/json_text.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace talon {
namespace {

constexpr int kMostIndentation = 20;

constexpr std::array<std::pair<char, char>, 7> kShortEscapes = {
    {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};

ExprId HexDigit(int value, ExprPool* pool) {
  const char digit = "0123456789abcdef"[value];
  const char upper = "0123456789ABCDEF"[value];
  return pool->Or({pool->Byte(digit), pool->Byte(upper)});
}

bool HasShortEscape(uint32_t point) {
  for (const auto& [character, letter] : kShortEscapes) {
    if (point == static_cast<uint8_t>(character)) return true;
  }
  return false;
}

}  // namespace

ExprId JsonCharacter(const CodePoints& set, ExprPool* pool) {
  static const CodePoints itself = CodePoints({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).Complement();
  std::vector<ExprId> parts = {Utf8Of(set.Intersect(itself), pool)};
  for (const auto& [character, letter] : kShortEscapes) {
    if (set.Has(static_cast<uint8_t>(character))) {
      parts.push_back(pool->Literal(std::string{'\\', letter}));
    }
  }
  for (uint32_t point = 0; point < 0x20; ++point) {
    if (!set.Has(point) || HasShortEscape(point)) continue;
    parts.push_back(
        pool->Sequence({pool->Literal("\\u00"), HexDigit(static_cast<int>(point >> 4), pool),
                        HexDigit(static_cast<int>(point & 15), pool)}));
  }
  return pool->Or(std::move(parts));
}

ExprId JsonQuoted(ExprId content, ExprPool* pool) {
  return pool->Sequence({pool->Byte('"'), content, pool->Byte('"')});
}

ExprId JsonString(ExprPool* pool) {
  const ExprId any = JsonCharacter(CodePoints::All(), pool);
  return JsonQuoted(pool->Repeat(any, 0, ExprPool::kNoLimit), pool);
}

ExprId JsonNumber(ExprPool* pool) {
  const ExprId digit = pool->Bytes(ByteSet::Range('0', '9'));
  const ExprId digits = pool->Repeat(digit, 1, ExprPool::kNoLimit);
  const ExprId whole =
      pool->Or({pool->Byte('0'), pool->Concat(pool->Bytes(ByteSet::Range('1', '9')),
                                              pool->Repeat(digit, 0, ExprPool::kNoLimit))});
  const ExprId sign = pool->Optional(pool->Bytes(ByteSet::Of('+') | ByteSet::Of('-')));
  const ExprId exponent =
      pool->Sequence({pool->Bytes(ByteSet::Of('e') | ByteSet::Of('E')), sign, digits});
  return pool->Sequence({pool->Optional(pool->Byte('-')), whole,
                         pool->Optional(pool->Concat(pool->Byte('.'), digits)),
                         pool->Optional(exponent)});
}

ExprId JsonSpace(JsonSpacing spacing, ExprPool* pool) {
  if (spacing == JsonSpacing::kCompact) return ExprPool::kEmpty;
  const ExprId indentation =
      pool->Repeat(pool->Bytes(ByteSet::Of(' ') | ByteSet::Of('\t')), 0, kMostIndentation);
  return pool->Or({ExprPool::kEmpty, pool->Byte(' '), pool->Concat(pool->Byte('\n'), indentation)});
}

ExprId JsonSpaceAfterColon(JsonSpacing spacing, ExprPool* pool) {
  return spacing == JsonSpacing::kCompact ? ExprPool::kEmpty : pool->Optional(pool->Byte(' '));
}

std::string JsonSpelling(std::string_view text) {
  return Json(std::string(text))
      .dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace talon
