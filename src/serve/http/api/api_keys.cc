#include "serve/http/api/api_keys.h"

#include <algorithm>

namespace talon {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kScheme = "bearer ";

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Constant time: compares every byte of `shown`, so that timing reveals nothing about `key`.
bool SameText(std::string_view key, std::string_view shown) {
  unsigned difference = key.size() == shown.size() ? 0 : 1;
  for (size_t i = 0; i < shown.size(); ++i) {
    const auto expected = static_cast<unsigned char>(key[i % key.size()]);
    difference |= static_cast<unsigned>(expected ^ static_cast<unsigned char>(shown[i]));
  }
  return difference == 0;
}

bool HasScheme(std::string_view text) {
  return text.size() >= kScheme.size() &&
         std::equal(kScheme.begin(), kScheme.end(), text.begin(), [](char expected, char c) {
           return expected == (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
         });
}

}  // namespace

Result<ApiKeys> ApiKeys::Parse(std::string_view text, const std::string& what) {
  ApiKeys keys;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view key = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!key.empty() && key.front() != '#') keys.keys_.emplace_back(key);
  }
  if (keys.keys_.empty()) return InvalidArgument("{}: no key in it", what);
  return keys;
}

Status ApiKeys::Add(std::string_view key, const std::string& what) {
  const bool printable = std::ranges::all_of(key, [](char c) { return c > ' ' && c < 0x7f; });
  if (key.empty() || !printable) {
    return InvalidArgument("{}: must be printable ASCII without blanks", what);
  }
  keys_.emplace_back(key);
  return OkStatus();
}

bool ApiKeys::Admits(std::string_view authorization) const {
  if (!required()) return true;
  if (!HasScheme(authorization)) return false;
  const std::string_view shown = Trim(authorization.substr(kScheme.size()));
  bool admitted = false;
  for (const std::string& key : keys_) admitted |= SameText(key, shown);
  return admitted;
}

}  // namespace talon
