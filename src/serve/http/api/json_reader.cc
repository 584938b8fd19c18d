#include "serve/http/api/json_reader.h"

#include <fmt/core.h>

#include <limits>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/nearest_name.h"
#include "base/ordered_json.h"

namespace talon {
namespace {

constexpr size_t kShownBytes = 64;

const Json& EmptyObject() {
  static const Json empty = Json::object();
  return empty;
}

}  // namespace

OrderedJson FindOrdered(const std::string& key, JsonReader* body) {
  if (!body->Has(key)) return nullptr;
  auto parsed = ParseOrderedJson(body->Text(key), key);
  return parsed.ok() ? std::move(*parsed) : OrderedJson(nullptr);  // the body was checked before
}

std::string Shown(const Json& value) {
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return "an object";
  std::string text = JsonText(value);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

JsonReader::JsonReader(const Json& value, const std::string& name)
    : object_(&value), prefix_(name + ".") {
  if (value.is_object()) return;
  object_ = &EmptyObject();
  error_ = ApiError{.message = fmt::format("{}: {}, must be an object", name, Shown(value)),
                    .param = name};
}

std::string JsonReader::Name(const std::string& key) const {
  return prefix_ + key.substr(0, kShownBytes);
}

const Json* JsonReader::FindInBody(const std::string& key) {
  const auto found = body_->Find(key);
  if (found.ok()) return *found;
  Fail({.status = 413,
        .message = Name(key) + ": " + found.status().message(),
        .param = Name(key),
        .code = "request_too_large"});
  return nullptr;
}

const Json* JsonReader::Find(const std::string& key) {
  known_.insert(key);
  const Json* value = nullptr;
  if (body_ != nullptr) {
    value = FindInBody(key);
  } else if (const auto at = object_->find(key); at != object_->end()) {
    value = &*at;
  }
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string_view JsonReader::Text(const std::string& key) const { return body_->Text(key); }

Json JsonReader::Take(const std::string& key) { return body_->Take(key); }

void JsonReader::Fail(const std::string& key, const std::string& problem, const std::string& code) {
  if (failed()) return;
  error_ = ApiError{.message = Name(key) + ": " + problem, .param = Name(key), .code = code};
}

void JsonReader::Fail(const ApiError& error) {
  if (!failed()) error_ = error;
}

void JsonReader::Read(const std::string& key, bool* out) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Fail(key, Shown(*value) + ", must be true or false");
  *out = value->get<bool>();
}

void JsonReader::Read(const std::string& key, std::string* out) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_string()) return Fail(key, Shown(*value) + ", must be a string");
  *out = value->get<std::string>();
}

bool JsonReader::ReadInteger(const std::string& key, int64_t low, int64_t high, int64_t* out) {
  const Json* value = Find(key);
  if (value == nullptr) return false;
  const bool too_large = value->is_number_unsigned() &&
                         value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  if (!value->is_number_integer()) {
    Fail(key, Shown(*value) + ", must be a whole number");
  } else if (too_large || value->get<int64_t>() < low || value->get<int64_t>() > high) {
    Fail(key, fmt::format("{}, must be {} to {}", Shown(*value), low, high));
  } else {
    *out = value->get<int64_t>();
    return true;
  }
  return false;
}

void JsonReader::Read(const std::string& key, int64_t low, int64_t high, int64_t* out) {
  ReadInteger(key, low, high, out);
}

void JsonReader::Read(const std::string& key, int64_t low, int64_t high, int* out) {
  int64_t value = 0;
  if (ReadInteger(key, low, high, &value)) *out = static_cast<int>(value);
}

void JsonReader::Read(const std::string& key, double low, double high, float* out) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_number()) return Fail(key, Shown(*value) + ", must be a number");
  const double number = value->get<double>();
  if (!(number >= low && number <= high)) {
    return Fail(key, fmt::format("{}, must be {} to {}", Shown(*value), low, high));
  }
  *out = static_cast<float>(number);
}

void JsonReader::Ignore(std::initializer_list<const char*> keys) {
  known_.insert(keys.begin(), keys.end());
}

void JsonReader::Refuse(const std::string& key, const Json& harmless) {
  const Json* value = Find(key);
  if (value == nullptr || *value == harmless) return;
  Fail(key, "not supported", "unsupported_parameter");
}

void JsonReader::RefuseUnknown() {
  std::vector<std::string_view> keys;
  if (body_ != nullptr) {
    keys = body_->Keys();
  } else {
    for (const auto& member : object_->items()) keys.emplace_back(member.key());
  }
  for (const std::string_view key : keys) {
    if (known_.count(key) > 0) continue;
    const std::string shown(key.substr(0, kShownBytes));
    const std::string nearest = NearestName(shown, {known_.begin(), known_.end()});
    const std::string hint = nearest.empty() ? "" : ", did you mean '" + nearest + "'?";
    return Fail(shown, "unknown parameter" + hint, "unknown_parameter");
  }
}

}  // namespace talon
