#include "grammar/schema/schema_pieces.h"

#include <algorithm>
#include <iterator>

namespace talon {
namespace {

template <typename T>
void Append(const std::vector<T>& more, std::vector<T>* list) {
  for (const T& one : more) {
    if (std::ranges::find(*list, one) == list->end()) list->push_back(one);
  }
}

// The smaller of two upper limits, where -1 is none.
int64_t Smaller(int64_t a, int64_t b) {
  if (a < 0 || b < 0) return std::max(a, b);
  return std::min(a, b);
}

bool Fits(int64_t min, int64_t max) { return max < 0 || min <= max; }

bool IntersectNumbers(const NumberSpec& other, NumberSpec* spec) {
  spec->integer |= other.integer;
  spec->multiples.insert(spec->multiples.end(), other.multiples.begin(), other.multiples.end());
  const auto tighten = [](const std::optional<Bound>& its, int sign, std::optional<Bound>* mine) {
    if (!its) return;
    const int order = *mine ? sign * Compare(its->value, (*mine)->value) : 1;
    if (order > 0 || (order == 0 && its->exclusive)) *mine = its;
  };
  tighten(other.min, 1, &spec->min);
  tighten(other.max, -1, &spec->max);
  if (!spec->min || !spec->max) return true;
  const int order = Compare(spec->min->value, spec->max->value);
  return order < 0 || (order == 0 && !spec->min->exclusive && !spec->max->exclusive);
}

bool IntersectStrings(const StringSpec& other, StringSpec* spec) {
  spec->min = std::max(spec->min, other.min);
  spec->max = Smaller(spec->max, other.max);
  Append(other.patterns, &spec->patterns);
  Append(other.formats, &spec->formats);
  return Fits(spec->min, spec->max);
}

}  // namespace

const OrderedJson* FindMember(const OrderedJson& schema, std::string_view key) {
  const auto at = schema.find(key);
  return at == schema.end() ? nullptr : &*at;
}

Conjunction Both(const Conjunction& a, const Conjunction& b) {
  Conjunction result;
  std::ranges::set_union(a, b, std::back_inserter(result));
  return result;
}

bool Intersect(const Piece& a, const Piece& b, Piece* both) {
  if (a.kind != b.kind) return false;
  *both = a;
  switch (a.kind) {
    case Piece::Kind::kNumber:
      return IntersectNumbers(b.number, &both->number);
    case Piece::Kind::kString:
      return IntersectStrings(b.string, &both->string);
    case Piece::Kind::kArray:
      both->array.layers = Both(a.array.layers, b.array.layers);
      both->array.min = std::max(a.array.min, b.array.min);
      both->array.max = Smaller(a.array.max, b.array.max);
      return Fits(both->array.min, both->array.max);
    case Piece::Kind::kObject:
      both->object.layers = Both(a.object.layers, b.object.layers);
      both->object.names = Both(a.object.names, b.object.names);
      Append(b.object.required, &both->object.required);
      both->object.min = std::max(a.object.min, b.object.min);
      both->object.max = Smaller(a.object.max, b.object.max);
      return Fits(both->object.min, both->object.max);
    case Piece::Kind::kLiteral:
      return a.literal == b.literal;
    case Piece::Kind::kNull:
    case Piece::Kind::kBoolean:
      return true;
  }
  return false;
}

}  // namespace talon
