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

const Json* ConfigFields::Find(const std::string& key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

Result<int> ConfigFields::Int(const std::string& key, int low, int high) const {
  const Json* value = Find(key);
  if (value == nullptr) return InvalidArgument("{}: {} is missing", what_, key);
  const bool fits = value->is_number_unsigned()
                        ? value->get<uint64_t>() <= std::numeric_limits<int>::max()
                        : value->is_number_integer();
  if (fits && value->get<int64_t>() >= low && value->get<int64_t>() <= high) {
    return static_cast<int>(value->get<int64_t>());
  }
  return InvalidArgument("{}: {} is {}, expected a whole number from {} to {}", what_, key,
                         BriefJson(*value), low, high);
}

Result<int> ConfigFields::Int(const std::string& key, int low, int high, int default_value) const {
  if (Find(key) == nullptr) return default_value;
  return Int(key, low, high);
}

Result<double> ConfigFields::Positive(const std::string& key) const {
  const Json* value = Find(key);
  if (value == nullptr) return InvalidArgument("{}: {} is missing", what_, key);
  if (value->is_number()) {
    const double number = value->get<double>();
    if (std::isfinite(number) && number > 0) return number;
  }
  return InvalidArgument("{}: {} is {}, expected a number above 0", what_, key, BriefJson(*value));
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
    return InvalidArgument("{}: {} is {}, expected true or false", what_, key, BriefJson(*value));
  }
  return value->get<bool>();
}

Result<std::string> ConfigFields::String(const std::string& key,
                                         const std::string& default_value) const {
  const Json* value = Find(key);
  if (value == nullptr) return default_value;
  if (!value->is_string()) {
    return InvalidArgument("{}: {} is {}, expected a string", what_, key, BriefJson(*value));
  }
  return value->get<std::string>();
}

Result<std::vector<int>> ConfigFields::IntList(const std::string& key) const {
  std::vector<int> list;
  const Json* value = Find(key);
  if (value == nullptr) return list;
  const Json items = value->is_array() ? *value : Json::array({*value});
  for (const Json& item : items) {
    const bool fits = item.is_number_integer() && item.get<int64_t>() >= 0 &&
                      item.get<int64_t>() <= std::numeric_limits<int>::max();
    if (!fits) {
      return InvalidArgument("{}: {} holds {}, expected whole numbers from 0", what_, key,
                             BriefJson(item));
    }
    list.push_back(item.get<int>());
  }
  return list;
}

}  // namespace talon
