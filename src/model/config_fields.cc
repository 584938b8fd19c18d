#include "model/config_fields.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "base/json.h"

namespace talon {

std::string BriefJson(const Json& value) {
  constexpr size_t kMaxBytes = 40;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  return text;
}

std::string Lowercase(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool ConfigFields::Has(const std::string& key) const { return object_.contains(key); }

Status CheckWholeNumber(std::string_view name, const Json& value, const Range& range) {
  if (!value.is_number_integer()) {
    return InvalidArgument("{}: {}, must be a whole number", name, BriefJson(value));
  }
  return value.is_number_unsigned() ? CheckRange(name, value.get<uint64_t>(), range)
                                    : CheckRange(name, value.get<int64_t>(), range);
}

const Json* ConfigFields::Find(const std::string& key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

Result<int> ConfigFields::Int(const std::string& key, int low, int high) const {
  const Json* value = Find(key);
  if (value == nullptr) return InvalidArgument("{}: {} is missing", what_, key);
  TALON_RETURN_IF_ERROR(
      CheckWholeNumber(key, *value, {.low = 1. * low, .high = 1. * high}).WithContext(what_));
  return value->get<int>();
}

Result<int> ConfigFields::Int(const std::string& key, int low, int high, int default_value) const {
  if (Find(key) == nullptr) return default_value;
  return Int(key, low, high);
}

Result<double> ConfigFields::Positive(const std::string& key) const {
  const Json* value = Find(key);
  if (value == nullptr) return InvalidArgument("{}: {} is missing", what_, key);
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    return InvalidArgument("{}: {}: {}, must be a number", what_, key, BriefJson(*value));
  }
  const auto number = value->get<double>();
  TALON_RETURN_IF_ERROR(CheckRange(key, number, {.low = 0, .above_low = true}).WithContext(what_));
  return number;
}

Result<double> ConfigFields::Positive(const std::string& key, double default_value) const {
  if (Find(key) == nullptr) return default_value;
  return Positive(key);
}

Result<std::optional<double>> ConfigFields::OptionalPositive(const std::string& key) const {
  if (Find(key) == nullptr) return std::optional<double>();
  TALON_ASSIGN_OR_RETURN(const double value, Positive(key));
  return std::optional<double>(value);
}

Result<bool> ConfigFields::Bool(const std::string& key, bool default_value) const {
  const Json* value = Find(key);
  if (value == nullptr) return default_value;
  if (!value->is_boolean()) {
    return InvalidArgument("{}: {}: {}, must be true or false", what_, key, BriefJson(*value));
  }
  return value->get<bool>();
}

Result<std::string> ConfigFields::String(const std::string& key,
                                         const std::string& default_value) const {
  const Json* value = Find(key);
  if (value == nullptr) return default_value;
  if (!value->is_string()) {
    return InvalidArgument("{}: {}: {}, must be a string", what_, key, BriefJson(*value));
  }
  return value->get<std::string>();
}

Result<std::vector<int>> ConfigFields::IntList(const std::string& key) const {
  std::vector<int> list;
  const Json* value = Find(key);
  if (value == nullptr) return list;
  constexpr Range kRange = {.low = 0, .high = std::numeric_limits<int>::max()};
  const Json items = value->is_array() ? *value : Json::array({*value});
  for (const Json& item : items) {
    TALON_RETURN_IF_ERROR(CheckWholeNumber(key, item, kRange).WithContext(what_));
    list.push_back(item.get<int>());
  }
  return list;
}

}  // namespace talon
