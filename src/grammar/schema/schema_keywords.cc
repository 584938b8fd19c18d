#include "grammar/schema/schema_keywords.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "grammar/schema/json_formats.h"
#include "grammar/schema/json_text.h"

namespace talon {
namespace {

using Kind = Piece::Kind;

constexpr size_t kMostPatterns = 5;  // their subsets are enumerated
constexpr int64_t kMostCount = 1'000'000;

// The list of the first items' schemas: prefixItems, or items as a list in older drafts.
const OrderedJson* PrefixOf(const OrderedJson& layer) {
  if (const OrderedJson* prefix = FindMember(layer, "prefixItems")) return prefix;
  const OrderedJson* items = FindMember(layer, "items");
  return items != nullptr && items->is_array() ? items : nullptr;
}

// The schema of the items after them, null: anything.
const OrderedJson* RestOf(const OrderedJson& layer) {
  const OrderedJson* items = FindMember(layer, "items");
  if (items != nullptr && !items->is_array()) return items;
  if (items != nullptr) return FindMember(layer, "additionalItems");
  return FindMember(layer, "unevaluatedItems");
}

// Keywords beside which "unevaluated" means more than "additional".
bool HasCombinations(const OrderedJson& schema) {
  for (const char* key : {"$ref", "allOf", "anyOf", "oneOf", "if"}) {
    if (schema.contains(key)) return true;
  }
  return false;
}

const OrderedJson* AdditionalOf(const OrderedJson& layer) {
  const OrderedJson* additional = FindMember(layer, "additionalProperties");
  return additional != nullptr ? additional : FindMember(layer, "unevaluatedProperties");
}

// A string as JSON has it, without the quotes.
std::string Unquoted(const std::string& text) {
  const std::string spelling = JsonSpelling(text);
  return spelling.substr(1, spelling.size() - 2);
}

void Add(const OrderedJson* schema, Conjunction* schemas) {
  if (schema == nullptr || *schema == true) return;
  *schemas = Both(*schemas, {schema});
}

}  // namespace

// ---- Reading ----

namespace {

// A count, which may be written as 3.0. None: the keyword is not there.
Result<std::optional<int64_t>> CountOf(const OrderedJson& schema, const char* key,
                                       const std::string& pointer) {
  const OrderedJson* value = FindMember(schema, key);
  if (value == nullptr) return std::optional<int64_t>();
  const double number = value->is_number() ? value->get<double>() : -1;
  if (number < 0 || number != static_cast<double>(static_cast<int64_t>(std::min(number, 1e15)))) {
    return InvalidArgument("{}/{}: must be a whole number", pointer, key);
  }
  return std::optional<int64_t>(std::min<int64_t>(static_cast<int64_t>(number), kMostCount * 10));
}

}  // namespace

Status SchemaKeywords::ReadTypes(const OrderedJson& schema, std::vector<Kind>* kinds,
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
      return document_.Refuse(&schema, "type", fmt::format("unknown type {}", one.dump()));
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

Status SchemaKeywords::ReadNumber(const OrderedJson& schema, NumberSpec* spec) const {
  const auto read = [&](const char* key, std::optional<Decimal>* value) -> Status {
    const OrderedJson* found = FindMember(schema, key);
    if (found == nullptr || found->is_boolean()) return OkStatus();
    if (!found->is_number()) return document_.Refuse(&schema, key, "must be a number");
    TALON_ASSIGN_OR_RETURN(*value, ParseDecimal(found->dump()));
    return OkStatus();
  };
  const auto bound = [&](const char* key, const char* exclusive_key, int sign,
                         std::optional<Bound>* result) -> Status {
    std::optional<Decimal> value, exclusive;
    TALON_RETURN_IF_ERROR(read(key, &value));
    TALON_RETURN_IF_ERROR(read(exclusive_key, &exclusive));
    const OrderedJson* flag = FindMember(schema, exclusive_key);  // draft 4
    if (value) *result = Bound{*value, flag != nullptr && *flag == true};
    if (exclusive && (!value || sign * Compare(*exclusive, *value) >= 0)) {
      *result = Bound{*exclusive, true};
    }
    return OkStatus();
  };
  TALON_RETURN_IF_ERROR(bound("minimum", "exclusiveMinimum", 1, &spec->min));
  TALON_RETURN_IF_ERROR(bound("maximum", "exclusiveMaximum", -1, &spec->max));
  std::optional<Decimal> multiple;
  TALON_RETURN_IF_ERROR(read("multipleOf", &multiple));
  if (multiple) spec->multiples.push_back(*multiple);
  return OkStatus();
}

Status SchemaKeywords::CheckPattern(const std::string& pattern, const OrderedJson* place) const {
  return strings_.Pattern(pattern).status().WithContext(document_.PointerOf(place));
}

Status SchemaKeywords::ReadString(const OrderedJson& schema, StringSpec* spec) const {
  TALON_ASSIGN_OR_RETURN(const auto min,
                         CountOf(schema, "minLength", document_.PointerOf(&schema)));
  TALON_ASSIGN_OR_RETURN(const auto max,
                         CountOf(schema, "maxLength", document_.PointerOf(&schema)));
  spec->min = min.value_or(0);
  spec->max = max.value_or(-1);
  if (spec->min >= kMostCount) return document_.Refuse(&schema, "minLength", "too large");
  if (spec->max >= kMostCount) spec->max = -1;  // beyond every context
  if (const OrderedJson* pattern = FindMember(schema, "pattern")) {
    if (!pattern->is_string()) return document_.Refuse(&schema, "pattern", "must be a string");
    spec->patterns.push_back(pattern->get<std::string>());
    TALON_RETURN_IF_ERROR(CheckPattern(spec->patterns.back(), pattern));
  }
  const OrderedJson* format = FindMember(schema, "format");
  if (format == nullptr) return OkStatus();
  if (!format->is_string()) return document_.Refuse(&schema, "format", "must be a string");
  if (JsonFormatRegex(format->get<std::string>()).empty()) {
    return document_.Refuse(&schema, "format", fmt::format("{} is not supported", format->dump()));
  }
  spec->formats.push_back(format->get<std::string>());
  return OkStatus();
}

Status SchemaKeywords::ReadArray(const OrderedJson* schema, ArraySpec* spec) const {
  TALON_ASSIGN_OR_RETURN(const auto min, CountOf(*schema, "minItems", document_.PointerOf(schema)));
  TALON_ASSIGN_OR_RETURN(const auto max, CountOf(*schema, "maxItems", document_.PointerOf(schema)));
  spec->min = min.value_or(0);
  spec->max = max.value_or(-1);
  const OrderedJson* unique = FindMember(*schema, "uniqueItems");
  if (unique != nullptr && *unique == true && !(spec->max >= 0 && spec->max <= 1)) {
    return document_.Refuse(schema, "uniqueItems", "not supported");
  }
  if (schema->contains("unevaluatedItems") && HasCombinations(*schema)) {
    return document_.Refuse(schema, "unevaluatedItems", "not supported beside other combinations");
  }
  const OrderedJson* prefix = PrefixOf(*schema);
  if (prefix != nullptr && !prefix->is_array()) {
    return document_.Refuse(schema, "prefixItems", "must be an array");
  }
  if (prefix != nullptr || RestOf(*schema) != nullptr) spec->layers = {schema};
  return OkStatus();
}

Status SchemaKeywords::ReadObject(const OrderedJson* schema, ObjectSpec* spec) const {
  TALON_ASSIGN_OR_RETURN(const auto min,
                         CountOf(*schema, "minProperties", document_.PointerOf(schema)));
  TALON_ASSIGN_OR_RETURN(const auto max,
                         CountOf(*schema, "maxProperties", document_.PointerOf(schema)));
  spec->min = min.value_or(0);
  spec->max = max.value_or(-1);
  for (const char* key : {"properties", "patternProperties"}) {
    const OrderedJson* value = FindMember(*schema, key);
    if (value != nullptr && !value->is_object())
      return document_.Refuse(schema, key, "must be an object");
    if (value != nullptr) spec->layers = {schema};
  }
  if (const OrderedJson* patterns = FindMember(*schema, "patternProperties")) {
    for (const auto& [pattern, value] : patterns->items()) {
      TALON_RETURN_IF_ERROR(CheckPattern(pattern, &value));
    }
  }
  if (AdditionalOf(*schema) != nullptr) spec->layers = {schema};
  if (schema->contains("unevaluatedProperties") && HasCombinations(*schema)) {
    return document_.Refuse(schema, "unevaluatedProperties",
                            "not supported beside other combinations");
  }
  if (const OrderedJson* names = FindMember(*schema, "propertyNames")) Add(names, &spec->names);
  const OrderedJson* required = FindMember(*schema, "required");
  if (required == nullptr || required->is_boolean()) return OkStatus();  // draft 3
  if (!required->is_array()) return document_.Refuse(schema, "required", "must be an array");
  for (const OrderedJson& name : *required) {
    if (!name.is_string()) return document_.Refuse(schema, "required", "must have strings");
    spec->required.push_back(name.get<std::string>());
  }
  return OkStatus();
}

// ---- Parts of arrays and objects ----

size_t SchemaKeywords::PrefixLength(const ArraySpec& array) {
  size_t length = 0;
  for (const OrderedJson* layer : array.layers) {
    if (const OrderedJson* prefix = PrefixOf(*layer)) length = std::max(length, prefix->size());
  }
  return length;
}

Conjunction SchemaKeywords::Item(const ArraySpec& array, size_t index) {
  Conjunction schemas;
  for (const OrderedJson* layer : array.layers) {
    const OrderedJson* prefix = PrefixOf(*layer);
    Add(prefix != nullptr && index < prefix->size() ? &(*prefix)[index] : RestOf(*layer), &schemas);
  }
  return schemas;
}

std::vector<std::string> SchemaKeywords::DeclaredNames(const ObjectSpec& object) const {
  std::vector<std::string> names;
  std::unordered_map<std::string, bool> known;
  const auto add = [&](const std::string& name) {
    if (known.try_emplace(name, true).second) names.push_back(name);
  };
  Conjunction layers = object.layers;
  std::ranges::sort(layers, {},
                    [this](const OrderedJson* layer) { return document_.OrderOf(layer); });
  for (const OrderedJson* layer : layers) {
    const OrderedJson* properties = FindMember(*layer, "properties");
    if (properties == nullptr) continue;
    for (const auto& [name, schema] : properties->items()) add(name);
  }
  for (const std::string& name : object.required) add(name);
  return names;
}

Result<Conjunction> SchemaKeywords::Property(const ObjectSpec& object,
                                             const std::string& name) const {
  Conjunction schemas;
  const std::string inside = Unquoted(name);
  for (const OrderedJson* layer : object.layers) {
    bool found = false;
    if (const OrderedJson* properties = FindMember(*layer, "properties")) {
      if (const OrderedJson* schema = FindMember(*properties, name)) {
        Add(schema, &schemas);
        found = true;
      }
    }
    if (const OrderedJson* patterns = FindMember(*layer, "patternProperties")) {
      for (const auto& [pattern, schema] : patterns->items()) {
        TALON_ASSIGN_OR_RETURN(const ExprId expr, strings_.Pattern(pattern));
        if (!pool_.Matches(expr, inside)) continue;
        Add(&schema, &schemas);
        found = true;
      }
    }
    if (!found) Add(AdditionalOf(*layer), &schemas);
  }
  return schemas;
}

Result<std::vector<SchemaKeywords::PatternSchema>> SchemaKeywords::PatternsOf(
    const ObjectSpec& object) const {
  std::vector<PatternSchema> patterns;
  for (const OrderedJson* layer : object.layers) {
    const OrderedJson* all = FindMember(*layer, "patternProperties");
    if (all == nullptr) continue;
    for (const auto& [pattern, schema] : all->items()) {
      TALON_ASSIGN_OR_RETURN(const ExprId expr, strings_.Pattern(pattern));
      patterns.push_back({layer, &schema, expr});
      if (patterns.size() > kMostPatterns) {
        return document_.Refuse(
            layer, "patternProperties",
            fmt::format("more than {} patterns are not supported", kMostPatterns));
      }
    }
  }
  return patterns;
}

Result<std::vector<ExprId>> SchemaKeywords::Undeclared(const ObjectSpec& object,
                                                       const Pieces* names) const {
  std::vector<std::string> declared;
  for (const std::string& name : DeclaredNames(object)) declared.push_back(Unquoted(name));
  std::vector<ExprId> parts = {pool_.Repeat(strings_.AnyCharacter(), 0, ExprPool::kNoLimit)};
  if (!declared.empty()) parts.push_back(pool_.Not(pool_.AnyOf(std::move(declared))));
  if (names == nullptr) return parts;
  std::vector<ExprId> allowed;
  for (const Piece& piece : *names) {
    if (piece.kind == Kind::kString) {
      TALON_ASSIGN_OR_RETURN(const ExprId expr, strings_.Content(piece.string));
      allowed.push_back(expr);
    } else if (piece.kind == Kind::kLiteral && piece.literal.is_string()) {
      allowed.push_back(pool_.Literal(Unquoted(piece.literal.get<std::string>())));
    }
  }
  parts.push_back(pool_.Or(std::move(allowed)));
  return parts;
}

// Each set of patterns that a key may match is a group of its own. A layer none of whose patterns
// is among them adds what it says of additional keys.
Result<std::vector<SchemaKeywords::OtherKeys>> SchemaKeywords::Others(const ObjectSpec& object,
                                                                      const Pieces* names) const {
  TALON_ASSIGN_OR_RETURN(const std::vector<PatternSchema> patterns, PatternsOf(object));
  TALON_ASSIGN_OR_RETURN(const std::vector<ExprId> always, Undeclared(object, names));
  std::vector<OtherKeys> groups;
  for (size_t subset = 0; subset < size_t{1} << patterns.size(); ++subset) {
    std::vector<ExprId> parts = always;
    Conjunction value;
    for (size_t i = 0; i < patterns.size(); ++i) {
      const bool matched = subset >> i & 1;
      parts.push_back(matched ? patterns[i].expr : pool_.Not(patterns[i].expr));
      if (matched) Add(patterns[i].schema, &value);
    }
    for (const OrderedJson* layer : object.layers) {
      bool covered = false;
      for (size_t i = 0; i < patterns.size(); ++i) {
        covered |= (subset >> i & 1) && patterns[i].layer == layer;
      }
      if (!covered) Add(AdditionalOf(*layer), &value);
    }
    const ExprId key = pool_.And(std::move(parts));
    if (!pool_.IsEmpty(key)) groups.push_back({JsonQuoted(key, &pool_), std::move(value)});
  }
  return groups;
}

}  // namespace talon
