// The keywords of each type, and what arrays and objects say of their parts.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "grammar/regex.h"
#include "grammar/schema/json_formats.h"
#include "grammar/schema/json_text.h"
#include "grammar/schema/schema_reader.h"

namespace talon {
namespace {

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

Status SchemaReader::ReadNumber(const OrderedJson& schema, NumberSpec* spec) const {
  const auto read = [&](const char* key, std::optional<Decimal>* value) -> Status {
    const OrderedJson* found = FindMember(schema, key);
    if (found == nullptr || found->is_boolean()) return OkStatus();
    if (!found->is_number()) return Refuse(&schema, key, "must be a number");
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

Status SchemaReader::ReadString(const OrderedJson& schema, StringSpec* spec) const {
  TALON_ASSIGN_OR_RETURN(const auto min, CountOf(schema, "minLength", PointerOf(&schema)));
  TALON_ASSIGN_OR_RETURN(const auto max, CountOf(schema, "maxLength", PointerOf(&schema)));
  spec->min = min.value_or(0);
  spec->max = max.value_or(-1);
  if (spec->min >= kMostCount) return Refuse(&schema, "minLength", "too large");
  if (spec->max >= kMostCount) spec->max = -1;  // beyond every context
  if (const OrderedJson* pattern = FindMember(schema, "pattern")) {
    if (!pattern->is_string()) return Refuse(&schema, "pattern", "must be a string");
    spec->patterns.push_back(pattern->get<std::string>());
  }
  const OrderedJson* format = FindMember(schema, "format");
  if (format == nullptr) return OkStatus();
  if (!format->is_string()) return Refuse(&schema, "format", "must be a string");
  if (JsonFormatRegex(format->get<std::string>()).empty()) {
    return Refuse(&schema, "format", fmt::format("{} is not supported", format->dump()));
  }
  spec->formats.push_back(format->get<std::string>());
  return OkStatus();
}

Status SchemaReader::ReadArray(const OrderedJson* schema, ArraySpec* spec) const {
  TALON_ASSIGN_OR_RETURN(const auto min, CountOf(*schema, "minItems", PointerOf(schema)));
  TALON_ASSIGN_OR_RETURN(const auto max, CountOf(*schema, "maxItems", PointerOf(schema)));
  spec->min = min.value_or(0);
  spec->max = max.value_or(-1);
  const OrderedJson* unique = FindMember(*schema, "uniqueItems");
  if (unique != nullptr && *unique == true && !(spec->max >= 0 && spec->max <= 1)) {
    return Refuse(schema, "uniqueItems", "not supported");
  }
  if (schema->contains("unevaluatedItems") && HasCombinations(*schema)) {
    return Refuse(schema, "unevaluatedItems", "not supported beside other combinations");
  }
  const OrderedJson* prefix = PrefixOf(*schema);
  if (prefix != nullptr && !prefix->is_array()) {
    return Refuse(schema, "prefixItems", "must be an array");
  }
  if (prefix != nullptr || RestOf(*schema) != nullptr) spec->layers = {schema};
  return OkStatus();
}

Status SchemaReader::ReadObjectKeywords(const OrderedJson* schema, ObjectSpec* spec) const {
  TALON_ASSIGN_OR_RETURN(const auto min, CountOf(*schema, "minProperties", PointerOf(schema)));
  TALON_ASSIGN_OR_RETURN(const auto max, CountOf(*schema, "maxProperties", PointerOf(schema)));
  spec->min = min.value_or(0);
  spec->max = max.value_or(-1);
  for (const char* key : {"properties", "patternProperties"}) {
    const OrderedJson* value = FindMember(*schema, key);
    if (value != nullptr && !value->is_object()) return Refuse(schema, key, "must be an object");
    if (value != nullptr) spec->layers = {schema};
  }
  if (AdditionalOf(*schema) != nullptr) spec->layers = {schema};
  if (schema->contains("unevaluatedProperties") && HasCombinations(*schema)) {
    return Refuse(schema, "unevaluatedProperties", "not supported beside other combinations");
  }
  if (const OrderedJson* names = FindMember(*schema, "propertyNames")) Add(names, &spec->names);
  const OrderedJson* required = FindMember(*schema, "required");
  if (required == nullptr || required->is_boolean()) return OkStatus();  // draft 3
  if (!required->is_array()) return Refuse(schema, "required", "must be an array");
  for (const OrderedJson& name : *required) {
    if (!name.is_string()) return Refuse(schema, "required", "must have strings");
    spec->required.push_back(name.get<std::string>());
  }
  return OkStatus();
}

// ---- Parts of arrays and objects ----

size_t SchemaReader::PrefixLength(const ArraySpec& array) {
  size_t length = 0;
  for (const OrderedJson* layer : array.layers) {
    if (const OrderedJson* prefix = PrefixOf(*layer)) length = std::max(length, prefix->size());
  }
  return length;
}

Result<Conjunction> SchemaReader::Item(const ArraySpec& array, size_t index) {
  Conjunction schemas;
  for (const OrderedJson* layer : array.layers) {
    const OrderedJson* prefix = PrefixOf(*layer);
    Add(prefix != nullptr && index < prefix->size() ? &(*prefix)[index] : RestOf(*layer), &schemas);
  }
  return schemas;
}

std::vector<std::string> SchemaReader::DeclaredNames(const ObjectSpec& object) const {
  std::vector<std::string> names;
  std::unordered_map<std::string, bool> known;
  const auto add = [&](const std::string& name) {
    if (known.try_emplace(name, true).second) names.push_back(name);
  };
  Conjunction layers = object.layers;
  std::ranges::sort(layers, {}, [this](const OrderedJson* layer) {
    const auto at = places_.find(layer);
    return at == places_.end() ? 0 : at->second.order;
  });
  for (const OrderedJson* layer : layers) {
    const OrderedJson* properties = FindMember(*layer, "properties");
    if (properties == nullptr) continue;
    for (const auto& [name, schema] : properties->items()) add(name);
  }
  for (const std::string& name : object.required) add(name);
  return names;
}

Result<Conjunction> SchemaReader::Property(const ObjectSpec& object, const std::string& name) {
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
        TALON_ASSIGN_OR_RETURN(const ExprId expr, PatternExpr(pattern));
        if (!pool_.Matches(expr, inside)) continue;
        Add(&schema, &schemas);
        found = true;
      }
    }
    if (!found) Add(AdditionalOf(*layer), &schemas);
  }
  return schemas;
}

// Each set of patterns that a key may match is a group of its own. A layer none of whose patterns
// is among them adds what it says of additional keys.
Result<std::vector<SchemaReader::OtherKeys>> SchemaReader::Others(const ObjectSpec& object) {
  struct PatternSchema {
    const OrderedJson* layer = nullptr;
    const OrderedJson* schema = nullptr;
    ExprId expr = 0;
  };
  std::vector<PatternSchema> patterns;
  for (const OrderedJson* layer : object.layers) {
    const OrderedJson* all = FindMember(*layer, "patternProperties");
    if (all == nullptr) continue;
    for (const auto& [pattern, schema] : all->items()) {
      TALON_ASSIGN_OR_RETURN(const ExprId expr, PatternExpr(pattern));
      patterns.push_back({layer, &schema, expr});
      if (patterns.size() > kMostPatterns) {
        return Refuse(layer, "patternProperties",
                      fmt::format("more than {} patterns are not supported", kMostPatterns));
      }
    }
  }
  std::vector<std::string> declared;
  for (const std::string& name : DeclaredNames(object)) {
    declared.push_back(Unquoted(name));
  }
  std::vector<ExprId> always = {pool_.Repeat(AnyCharacter(), 0, ExprPool::kNoLimit)};
  if (!declared.empty()) always.push_back(pool_.Not(pool_.AnyOf(std::move(declared))));
  if (!object.names.empty()) {
    TALON_ASSIGN_OR_RETURN(const Pieces names, ReadInside(object.names));
    std::vector<ExprId> allowed;
    for (const Piece& piece : names) {
      if (piece.kind == Piece::Kind::kString) {
        TALON_ASSIGN_OR_RETURN(const ExprId expr, StringContent(piece.string));
        allowed.push_back(expr);
      } else if (piece.kind == Piece::Kind::kLiteral && piece.literal.is_string()) {
        allowed.push_back(pool_.Literal(Unquoted(piece.literal.get<std::string>())));
      }
    }
    always.push_back(pool_.Or(std::move(allowed)));
  }
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

// ---- Strings ----

Result<ExprId> SchemaReader::PatternExpr(const std::string& pattern) {
  if (const auto at = patterns_.find(pattern); at != patterns_.end()) return at->second;
  const CharacterWriter json = [this](const CodePoints& set) { return JsonCharacter(set, &pool_); };
  TALON_ASSIGN_OR_RETURN(const ExprId expr, CompilePattern(pattern, json, &pool_));
  return patterns_[pattern] = expr;
}

ExprId SchemaReader::AnyCharacter() {
  if (any_character_ == ExprPool::kNone) {
    any_character_ = JsonCharacter(CodePoints::All(), &pool_);
  }
  return any_character_;
}

Result<ExprId> SchemaReader::StringExpr(const StringSpec& spec) {
  TALON_ASSIGN_OR_RETURN(const ExprId content, StringContent(spec));
  return JsonQuoted(content, &pool_);
}

Result<ExprId> SchemaReader::StringContent(const StringSpec& spec) {
  std::vector<ExprId> parts = {
      pool_.Repeat(AnyCharacter(), static_cast<int>(spec.min), static_cast<int>(spec.max))};
  for (const std::string& pattern : spec.patterns) {
    TALON_ASSIGN_OR_RETURN(const ExprId expr, PatternExpr(pattern));
    parts.push_back(expr);
  }
  for (const std::string& format : spec.formats) {
    const std::string whole = fmt::format("^(?:{})$", JsonFormatRegex(format));
    TALON_ASSIGN_OR_RETURN(const ExprId expr, PatternExpr(whole));
    parts.push_back(expr);
  }
  const bool unbounded = spec.min == 0 && spec.max < 0;
  if (unbounded && parts.size() > 1) parts.erase(parts.begin());
  return pool_.And(std::move(parts));
}

}  // namespace talon
