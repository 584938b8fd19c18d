#include "text/jinja/value_from_json.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/unicode.h"

namespace talon::jinja {
namespace {

Result<Value> FromJsonAt(const OrderedJson& json, int depth);

Result<Value> StringFromJson(const std::string& text) {
  if (const auto offset = FindInvalidUtf8(text)) {
    return InvalidArgument("a string is not valid UTF-8 at byte {}", *offset);
  }
  return Value::String(text);
}

Result<Value> ArrayFromJson(const OrderedJson& json, int depth) {
  std::vector<Value> items;
  items.reserve(json.size());
  for (const auto& element : json) {
    TALON_ASSIGN_OR_RETURN(Value item, FromJsonAt(element, depth + 1));
    items.push_back(std::move(item));
  }
  return Value::MakeList(std::move(items));
}

Result<Value> ObjectFromJson(const OrderedJson& json, int depth) {
  std::vector<Dict::Entry> entries;
  entries.reserve(json.size());
  for (const auto& [key, element] : json.items()) {
    if (FindInvalidUtf8(key)) return InvalidArgument("a key is not valid UTF-8");
    TALON_ASSIGN_OR_RETURN(Value item, FromJsonAt(element, depth + 1));
    entries.emplace_back(key, std::move(item));
  }
  return Value::MakeDict(std::move(entries));
}

Result<Value> FromJsonAt(const OrderedJson& json, int depth) {
  if (depth >= kMaxValueDepth) {
    return InvalidArgument("JSON nested more than {} levels deep", kMaxValueDepth);
  }
  switch (json.type()) {
    case OrderedJson::value_t::null:
      return Value::MakeNone();
    case OrderedJson::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return InvalidArgument("the number {} is too large", number);
      }
      return Value::Int(static_cast<int64_t>(number));
    }
    case OrderedJson::value_t::number_float:
      return Value::Float(json.get<double>());
    case OrderedJson::value_t::string:
      return StringFromJson(json.get_ref<const std::string&>());
    case OrderedJson::value_t::array:
      return ArrayFromJson(json, depth);
    case OrderedJson::value_t::object:
      return ObjectFromJson(json, depth);
    default:
      return InvalidArgument("JSON of type {} has no place in a template", json.type_name());
  }
}

}  // namespace

Result<Value> ValueFromJson(const OrderedJson& json) { return FromJsonAt(json, 0); }

}  // namespace talon::jinja
