#include "grammar/schema/schema_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "grammar/schema/json_text.h"

namespace talon {
namespace {

using Kind = Piece::Kind;

constexpr int kDeepest = 64;
constexpr size_t kMostPieces = 20'000;
constexpr int64_t kMostWork = 5'000'000;

// Keywords that change what matches and are not understood.
constexpr std::array<std::string_view, 15> kRefused = {"$dynamicRef",
                                                       "$recursiveRef",
                                                       "contains",
                                                       "contentSchema",
                                                       "dependencies",
                                                       "dependentRequired",
                                                       "dependentSchemas",
                                                       "disallow",
                                                       "divisibleBy",
                                                       "else",
                                                       "extends",
                                                       "if",
                                                       "maxContains",
                                                       "minContains",
                                                       "not"};

OrderedJson Normalised(const OrderedJson& value) {
  constexpr double kExact = 9007199254740992.0;
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number > -kExact && number < kExact &&
        number == static_cast<double>(static_cast<int64_t>(number))) {
      return static_cast<int64_t>(number);
    }
  }
  return value;
}

// A keyword that is at its default says nothing.
bool SaysNothing(std::string_view key, const OrderedJson& schema) {
  if (key == "else" || key == "then") return schema.find("if") == schema.end();
  if (key == "minContains" || key == "maxContains") return schema.find("contains") == schema.end();
  return false;
}

}  // namespace

Result<Pieces> SchemaReader::Read(const Conjunction& schemas) {
  static const OrderedJson kAnything = OrderedJson::object();
  if (schemas.empty()) return ReadOne(&kAnything);
  TALON_ASSIGN_OR_RETURN(Pieces pieces, ReadOne(schemas[0]));
  for (size_t i = 1; i < schemas.size(); ++i) {
    TALON_ASSIGN_OR_RETURN(const Pieces more, ReadOne(schemas[i]));
    TALON_ASSIGN_OR_RETURN(pieces, IntersectUnions(pieces, more));
  }
  return pieces;
}

Result<Pieces> SchemaReader::ReadOne(const OrderedJson* schema) {
  if (schema->is_boolean()) {
    static const OrderedJson kAnything = OrderedJson::object();
    return schema->get<bool>() ? ReadOne(&kAnything) : Result<Pieces>(Pieces{});
  }
  if (!schema->is_object()) {
    return InvalidArgument("{}: a schema must be an object, true or false",
                           document_.PointerOf(schema));
  }
  if (depth_ > kDeepest || ++work_ > kMostWork) {
    return InvalidArgument("{}: the schema is too complex", document_.PointerOf(schema));
  }
  if (std::ranges::find(reading_, schema) != reading_.end()) {
    return InvalidArgument("{}: refers to itself without a value between",
                           document_.PointerOf(schema));
  }
  reading_.push_back(schema);
  ++depth_;
  auto pieces = ReadObject(schema);
  --depth_;
  reading_.pop_back();
  return pieces;
}

Result<Pieces> SchemaReader::ReadObject(const OrderedJson* schema) {
  for (const auto& [key, value] : schema->items()) {
    if (std::ranges::find(kRefused, key) != kRefused.end() && !SaysNothing(key, *schema)) {
      return document_.Refuse(schema, key, "not supported");
    }
  }
  TALON_ASSIGN_OR_RETURN(Pieces pieces, ReadTyped(schema));
  if (schema->contains("enum") || schema->contains("const")) {
    TALON_ASSIGN_OR_RETURN(const Pieces literals, ReadLiterals(*schema));
    TALON_ASSIGN_OR_RETURN(pieces, IntersectUnions(literals, pieces));
  }
  TALON_RETURN_IF_ERROR(ApplyCombinations(schema, &pieces));
  return pieces;
}

Result<Pieces> SchemaReader::ReadTyped(const OrderedJson* schema) {
  std::vector<Kind> kinds;
  bool integer = false;
  TALON_RETURN_IF_ERROR(keywords_.ReadTypes(*schema, &kinds, &integer));
  Pieces pieces;
  for (const Kind kind : kinds) {
    Piece piece{.kind = kind};
    piece.number.integer = integer;
    if (kind == Kind::kNumber) TALON_RETURN_IF_ERROR(keywords_.ReadNumber(*schema, &piece.number));
    if (kind == Kind::kString) TALON_RETURN_IF_ERROR(keywords_.ReadString(*schema, &piece.string));
    if (kind == Kind::kArray) TALON_RETURN_IF_ERROR(keywords_.ReadArray(schema, &piece.array));
    if (kind == Kind::kObject) TALON_RETURN_IF_ERROR(keywords_.ReadObject(schema, &piece.object));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Result<Pieces> SchemaReader::ReadLiterals(const OrderedJson& schema) {
  OrderedJson values = OrderedJson::array();
  if (const OrderedJson* list = FindMember(schema, "enum")) {
    if (!list->is_array()) return document_.Refuse(&schema, "enum", "must be an array");
    values = *list;
  }
  if (const OrderedJson* value = FindMember(schema, "const")) {
    const bool listed =
        !schema.contains("enum") || std::ranges::find(values, *value) != values.end();
    values = listed ? OrderedJson::array({*value}) : OrderedJson::array();
  }
  Pieces pieces;
  for (const OrderedJson& value : values) {
    pieces.push_back({.kind = Kind::kLiteral, .literal = Normalised(value)});
  }
  return pieces;
}

// allOf, anyOf, oneOf and $ref hold beside everything else.
Status SchemaReader::ApplyCombinations(const OrderedJson* schema, Pieces* pieces) {
  if (const OrderedJson* reference = FindMember(*schema, "$ref")) {
    if (!reference->is_string()) return document_.Refuse(schema, "$ref", "must be a string");
    TALON_ASSIGN_OR_RETURN(const OrderedJson* place,
                           document_.Resolve(schema, reference->get<std::string>()));
    TALON_ASSIGN_OR_RETURN(const Pieces more, ReadOne(place));
    TALON_ASSIGN_OR_RETURN(*pieces, IntersectUnions(*pieces, more));
  }
  if (const OrderedJson* all = FindMember(*schema, "allOf")) {
    if (!all->is_array()) return document_.Refuse(schema, "allOf", "must be an array");
    for (const OrderedJson& one : *all) {
      TALON_ASSIGN_OR_RETURN(const Pieces more, ReadOne(&one));
      TALON_ASSIGN_OR_RETURN(*pieces, IntersectUnions(*pieces, more));
    }
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const OrderedJson* list = FindMember(*schema, keyword);
    if (list == nullptr) continue;
    if (!list->is_array()) return document_.Refuse(schema, keyword, "must be an array");
    TALON_ASSIGN_OR_RETURN(const Pieces any, ReadUnion(list, std::string_view(keyword) == "oneOf"));
    TALON_ASSIGN_OR_RETURN(*pieces, IntersectUnions(*pieces, any));
  }
  return OkStatus();
}

Result<Pieces> SchemaReader::ReadUnion(const OrderedJson* list, bool exclusive) {
  std::vector<Pieces> branches;
  for (const OrderedJson& one : *list) {
    TALON_ASSIGN_OR_RETURN(Pieces pieces, ReadOne(&one));
    branches.push_back(std::move(pieces));
  }
  Pieces all;
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t j = 0; exclusive && j < i; ++j) {
      TALON_ASSIGN_OR_RETURN(const bool disjoint, Disjoint(branches[i], branches[j]));
      if (disjoint) continue;
      if (pool_.exhausted()) {
        return InvalidArgument("{}: too complex", document_.PointerOf(list));
      }
      return InvalidArgument("{}: branches {} and {} may both match, which is not supported",
                             document_.PointerOf(list), j, i);
    }
    all.insert(all.end(), branches[i].begin(), branches[i].end());
  }
  return all;
}

Result<std::vector<SchemaKeywords::OtherKeys>> SchemaReader::OtherKeysOf(const ObjectSpec& object) {
  if (object.names.empty()) return keywords_.Others(object, nullptr);
  TALON_ASSIGN_OR_RETURN(const Pieces names, ReadInside(object.names));
  return keywords_.Others(object, &names);
}

// ---- Intersection ----

Result<Pieces> SchemaReader::IntersectUnions(const Pieces& a, const Pieces& b) {
  Pieces result;
  for (const Piece& mine : a) {
    for (const Piece& its : b) {
      if (++work_ > kMostWork || result.size() > kMostPieces) {
        return InvalidArgument("the schema is too complex");
      }
      if ((mine.kind == Kind::kLiteral) != (its.kind == Kind::kLiteral)) {
        const Piece& literal = mine.kind == Kind::kLiteral ? mine : its;
        TALON_ASSIGN_OR_RETURN(const bool matches,
                               MatchesPiece(literal.literal, &literal == &mine ? its : mine));
        if (matches) result.push_back(literal);
      } else if (Piece both; Intersect(mine, its, &both)) {
        result.push_back(std::move(both));
      }
    }
  }
  return result;
}

Result<bool> SchemaReader::Disjoint(const Pieces& a, const Pieces& b) {
  TALON_ASSIGN_OR_RETURN(const Pieces both, IntersectUnions(a, b));
  for (const Piece& piece : both) {
    TALON_ASSIGN_OR_RETURN(const bool impossible, IsImpossible(piece));
    if (!impossible) return false;
  }
  return true;
}

// True if it is provable that no value matches.
Result<bool> SchemaReader::IsImpossible(const Piece& piece) {
  if (depth_ > 8) return false;
  std::vector<Conjunction> needed;  // each must have a value
  if (piece.kind == Kind::kString) {
    TALON_ASSIGN_OR_RETURN(const ExprId expr, strings_.Quoted(piece.string));
    return pool_.IsEmpty(expr);
  }
  if (piece.kind == Kind::kNumber) {
    const auto expr = NumberExpr(piece.number, &pool_);
    return expr.ok() && pool_.IsEmpty(*expr);
  }
  if (piece.kind == Kind::kObject) {
    for (const std::string& name : piece.object.required) {
      TALON_ASSIGN_OR_RETURN(Conjunction value, keywords_.Property(piece.object, name));
      needed.push_back(std::move(value));
    }
  } else if (piece.kind == Kind::kArray) {
    for (int64_t i = 0; i < std::min<int64_t>(piece.array.min, 8); ++i) {
      needed.push_back(SchemaKeywords::Item(piece.array, static_cast<size_t>(i)));
    }
  }
  for (const Conjunction& schemas : needed) {
    const auto pieces = ReadInside(schemas);
    if (pieces.ok() && pieces->empty()) return true;
  }
  return false;
}

// A value lies between, so a schema may come again.
Result<Pieces> SchemaReader::ReadInside(const Conjunction& schemas) {
  std::vector<const OrderedJson*> outside;
  std::swap(outside, reading_);
  ++depth_;
  auto pieces = Read(schemas);
  --depth_;
  std::swap(outside, reading_);
  return pieces;
}

// ---- Values ----

Result<bool> SchemaReader::Matches(const OrderedJson& value, const Conjunction& schemas) {
  TALON_ASSIGN_OR_RETURN(const Pieces pieces, ReadInside(schemas));
  for (const Piece& piece : pieces) {
    TALON_ASSIGN_OR_RETURN(const bool matches, MatchesPiece(value, piece));
    if (matches) return true;
  }
  return false;
}

Result<bool> SchemaReader::MatchesPiece(const OrderedJson& value, const Piece& piece) {
  if (++work_ > kMostWork) return InvalidArgument("the schema is too complex");
  switch (piece.kind) {
    case Kind::kLiteral:
      return value == piece.literal;
    case Kind::kNull:
      return value.is_null();
    case Kind::kBoolean:
      return value.is_boolean();
    case Kind::kNumber: {
      if (!value.is_number()) return false;
      TALON_ASSIGN_OR_RETURN(const ExprId expr, NumberExpr(piece.number, &pool_));
      return pool_.Matches(expr, Normalised(value).dump());
    }
    case Kind::kString: {
      if (!value.is_string()) return false;
      TALON_ASSIGN_OR_RETURN(const ExprId expr, strings_.Quoted(piece.string));
      return pool_.Matches(expr, JsonSpelling(value.get<std::string>()));
    }
    case Kind::kArray:
      return MatchesArray(value, piece.array);
    case Kind::kObject:
      return MatchesObject(value, piece.object);
  }
  return false;
}

Result<bool> SchemaReader::MatchesArray(const OrderedJson& value, const ArraySpec& array) {
  if (!value.is_array()) return false;
  const auto size = static_cast<int64_t>(value.size());
  if (size < array.min || (array.max >= 0 && size > array.max)) return false;
  for (size_t i = 0; i < value.size(); ++i) {
    TALON_ASSIGN_OR_RETURN(const bool matches, Matches(value[i], SchemaKeywords::Item(array, i)));
    if (!matches) return false;
  }
  return true;
}

Result<bool> SchemaReader::MatchesObject(const OrderedJson& value, const ObjectSpec& object) {
  if (!value.is_object()) return false;
  const auto size = static_cast<int64_t>(value.size());
  if (size < object.min || (object.max >= 0 && size > object.max)) return false;
  for (const std::string& name : object.required) {
    if (!value.contains(name)) return false;
  }
  for (const auto& [key, one] : value.items()) {
    TALON_ASSIGN_OR_RETURN(const Conjunction schemas, keywords_.Property(object, key));
    TALON_ASSIGN_OR_RETURN(bool matches, Matches(one, schemas));
    if (matches && !object.names.empty()) {
      TALON_ASSIGN_OR_RETURN(matches, Matches(OrderedJson(key), object.names));
    }
    if (!matches) return false;
  }
  return true;
}

}  // namespace talon
