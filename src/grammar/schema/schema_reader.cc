#include "grammar/schema/schema_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "grammar/regex.h"
#include "grammar/schema/json_formats.h"
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

// Every place is known, so that messages can name it and properties come in the document's order.
SchemaReader::SchemaReader(const OrderedJson* root, ExprPool* pool) : root_(root), pool_(*pool) {
  std::vector<const OrderedJson*> open = {root};
  places_[root] = {};
  for (int order = 0; !open.empty(); ++order) {
    const OrderedJson* node = open.back();
    open.pop_back();
    places_[node].order = order;
    if (!node->is_structured()) continue;
    const size_t first = open.size();
    for (const auto& [key, value] : node->items()) {
      places_[&value] = {.parent = node, .key = key};
      open.push_back(&value);
    }
    std::reverse(open.begin() + static_cast<int64_t>(first), open.end());
  }
}

std::string SchemaReader::PointerOf(const OrderedJson* schema) const {
  std::string pointer;
  for (auto at = places_.find(schema); at != places_.end() && at->second.parent != nullptr;
       at = places_.find(at->second.parent)) {
    pointer = fmt::format("/{}{}", at->second.key, pointer);
  }
  return "#" + pointer;
}

Status SchemaReader::Refuse(const OrderedJson* schema, std::string_view keyword,
                            std::string_view why) const {
  return InvalidArgument("{}/{}: {}", PointerOf(schema), keyword, why);
}

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
    return InvalidArgument("{}: a schema must be an object, true or false", PointerOf(schema));
  }
  if (depth_ > kDeepest || ++work_ > kMostWork) {
    return InvalidArgument("{}: the schema is too complex", PointerOf(schema));
  }
  if (std::ranges::find(reading_, schema) != reading_.end()) {
    return InvalidArgument("{}: refers to itself without a value between", PointerOf(schema));
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
      return Refuse(schema, key, "not supported");
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

Status SchemaReader::ReadTypes(const OrderedJson& schema, std::vector<Kind>* kinds,
                               bool* integer) const {
  static const std::map<std::string, Kind> kNames = {
      {"null", Kind::kNull},      {"boolean", Kind::kBoolean}, {"number", Kind::kNumber},
      {"integer", Kind::kNumber}, {"string", Kind::kString},   {"array", Kind::kArray},
      {"object", Kind::kObject}};
  const OrderedJson* type = FindMember(schema, "type");
  if (type == nullptr) {
    *kinds = {Kind::kNull,   Kind::kBoolean, Kind::kNumber,
              Kind::kString, Kind::kArray,   Kind::kObject};
    return OkStatus();
  }
  const OrderedJson list = type->is_array() ? *type : OrderedJson::array({*type});
  bool number = false;
  for (const OrderedJson& one : list) {
    const auto at = one.is_string() ? kNames.find(one.get<std::string>()) : kNames.end();
    if (at == kNames.end())
      return Refuse(&schema, "type", fmt::format("unknown type {}", one.dump()));
    if (std::ranges::find(*kinds, at->second) == kinds->end()) kinds->push_back(at->second);
    *integer |= one == "integer";
    number |= one == "number";
  }
  *integer &= !number;
  const OrderedJson* nullable = FindMember(schema, "nullable");
  if (nullable != nullptr && *nullable == true &&
      std::ranges::find(*kinds, Kind::kNull) == kinds->end()) {
    kinds->push_back(Kind::kNull);
  }
  return OkStatus();
}

Result<Pieces> SchemaReader::ReadTyped(const OrderedJson* schema) {
  std::vector<Kind> kinds;
  bool integer = false;
  TALON_RETURN_IF_ERROR(ReadTypes(*schema, &kinds, &integer));
  Pieces pieces;
  for (const Kind kind : kinds) {
    Piece piece{.kind = kind};
    piece.number.integer = integer;
    if (kind == Kind::kNumber) TALON_RETURN_IF_ERROR(ReadNumber(*schema, &piece.number));
    if (kind == Kind::kString) TALON_RETURN_IF_ERROR(ReadString(*schema, &piece.string));
    if (kind == Kind::kArray) TALON_RETURN_IF_ERROR(ReadArray(schema, &piece.array));
    if (kind == Kind::kObject) TALON_RETURN_IF_ERROR(ReadObjectKeywords(schema, &piece.object));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Result<Pieces> SchemaReader::ReadLiterals(const OrderedJson& schema) {
  OrderedJson values = OrderedJson::array();
  if (const OrderedJson* list = FindMember(schema, "enum")) {
    if (!list->is_array()) return Refuse(&schema, "enum", "must be an array");
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
    if (!reference->is_string()) return Refuse(schema, "$ref", "must be a string");
    TALON_ASSIGN_OR_RETURN(const OrderedJson* place,
                           Resolve(schema, reference->get<std::string>()));
    TALON_ASSIGN_OR_RETURN(const Pieces more, ReadOne(place));
    TALON_ASSIGN_OR_RETURN(*pieces, IntersectUnions(*pieces, more));
  }
  if (const OrderedJson* all = FindMember(*schema, "allOf")) {
    if (!all->is_array()) return Refuse(schema, "allOf", "must be an array");
    for (const OrderedJson& one : *all) {
      TALON_ASSIGN_OR_RETURN(const Pieces more, ReadOne(&one));
      TALON_ASSIGN_OR_RETURN(*pieces, IntersectUnions(*pieces, more));
    }
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const OrderedJson* list = FindMember(*schema, keyword);
    if (list == nullptr) continue;
    if (!list->is_array()) return Refuse(schema, keyword, "must be an array");
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
      return InvalidArgument("{}: branches {} and {} may both match, which is not supported",
                             PointerOf(list), j, i);
    }
    all.insert(all.end(), branches[i].begin(), branches[i].end());
  }
  return all;
}

Result<const OrderedJson*> SchemaReader::Resolve(const OrderedJson* from,
                                                 const std::string& reference) {
  if (!reference.starts_with("#")) {
    return Refuse(from, "$ref", fmt::format("'{}' is not in this document", reference));
  }
  if (reference == "#") return root_;
  if (reference[1] != '/') return Refuse(from, "$ref", "anchors are not supported");
  std::string decoded;  // percent-encoding
  for (size_t i = 1; i < reference.size(); ++i) {
    if (reference[i] == '%' && i + 2 < reference.size()) {
      decoded.push_back(static_cast<char>(
          std::stoi(fmt::format("0{}", reference.substr(i + 1, 2)), nullptr, 16)));
      i += 2;
    } else {
      decoded.push_back(reference[i]);
    }
  }
  const OrderedJson* place = root_;
  for (size_t at = 0; at < decoded.size();) {
    const size_t end = std::min(decoded.find('/', at + 1), decoded.size());
    std::string key;
    for (size_t i = at + 1; i < end; ++i) {
      const bool escaped = decoded[i] == '~' && i + 1 < end;
      key.push_back(escaped ? (decoded[++i] == '1' ? '/' : '~') : decoded[i]);
    }
    const bool is_index = place->is_array() && !key.empty() && key.size() < 8 &&
                          key.find_first_not_of("0123456789") == std::string::npos;
    if (place->is_object() && place->contains(key)) {
      place = &(*place)[key];
    } else if (is_index && std::stoul(key) < place->size()) {
      place = &(*place)[std::stoul(key)];
    } else {
      return Refuse(from, "$ref", fmt::format("'{}' does not exist", reference));
    }
    at = end;
  }
  return place;
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
    TALON_ASSIGN_OR_RETURN(const ExprId expr, StringExpr(piece.string));
    return pool_.IsEmpty(expr);
  }
  if (piece.kind == Kind::kNumber) {
    const auto expr = NumberExpr(piece.number, &pool_);
    return expr.ok() && pool_.IsEmpty(*expr);
  }
  if (piece.kind == Kind::kObject) {
    for (const std::string& name : piece.object.required) {
      TALON_ASSIGN_OR_RETURN(Conjunction value, Property(piece.object, name));
      needed.push_back(std::move(value));
    }
  } else if (piece.kind == Kind::kArray) {
    for (int64_t i = 0; i < std::min<int64_t>(piece.array.min, 8); ++i) {
      TALON_ASSIGN_OR_RETURN(Conjunction item, Item(piece.array, static_cast<size_t>(i)));
      needed.push_back(std::move(item));
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
      TALON_ASSIGN_OR_RETURN(const ExprId expr, StringExpr(piece.string));
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
    TALON_ASSIGN_OR_RETURN(const Conjunction item, Item(array, i));
    TALON_ASSIGN_OR_RETURN(const bool matches, Matches(value[i], item));
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
    TALON_ASSIGN_OR_RETURN(const Conjunction schemas, Property(object, key));
    TALON_ASSIGN_OR_RETURN(bool matches, Matches(one, schemas));
    if (matches && !object.names.empty()) {
      TALON_ASSIGN_OR_RETURN(matches, Matches(OrderedJson(key), object.names));
    }
    if (!matches) return false;
  }
  return true;
}

}  // namespace talon
