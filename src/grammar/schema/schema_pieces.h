// A JSON schema as a union of typed pieces.
//
// A schema, or several that must hold together (a Conjunction), is read into pieces: a value
// matches if it matches one of them. Sub-schemas of arrays and objects stay conjunctions of places
// in the document, read when they are needed, so recursion costs nothing. allOf, $ref and keywords
// beside them intersect unions; what has no exact answer is refused with its JSON pointer.
#ifndef TALON_GRAMMAR_SCHEMA_SCHEMA_PIECES_H_
#define TALON_GRAMMAR_SCHEMA_SCHEMA_PIECES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/schema/number_expr.h"

namespace talon {

// Schemas of one document, sorted and without repeats. Empty: anything matches.
using Conjunction = std::vector<const OrderedJson*>;

// A member of a schema, null if it is missing.
const OrderedJson* FindMember(const OrderedJson& schema, std::string_view key);

Conjunction Both(const Conjunction& a, const Conjunction& b);

struct StringSpec {
  int64_t min = 0;
  int64_t max = -1;  // -1: no limit
  std::vector<std::string> patterns;
  std::vector<std::string> formats;
};

// Each schema with keywords for arrays (objects) is a layer; a value must match all layers.
struct ArraySpec {
  Conjunction layers;
  int64_t min = 0;
  int64_t max = -1;
};

struct ObjectSpec {
  Conjunction layers;
  std::vector<std::string> required;
  Conjunction names;  // schemas of keys (propertyNames)
  int64_t min = 0;
  int64_t max = -1;
};

struct Piece {
  enum class Kind { kLiteral, kNull, kBoolean, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  OrderedJson literal;
  NumberSpec number;
  StringSpec string;
  ArraySpec array;
  ObjectSpec object;
};

using Pieces = std::vector<Piece>;

// The intersection of two pieces without literals; false: they share no value, as far as kinds and
// bounds tell.
bool Intersect(const Piece& a, const Piece& b, Piece* both);

}  // namespace talon

#endif  // TALON_GRAMMAR_SCHEMA_SCHEMA_PIECES_H_
