// The API keys that are accepted.
#ifndef TALON_SERVE_HTTP_API_API_KEYS_H_
#define TALON_SERVE_HTTP_API_API_KEYS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace talon {

// Immutable after loading; thread-safe.
class ApiKeys {
 public:
  // No keys: every request is accepted.
  ApiKeys() = default;
  // One key per line; blank lines and those that begin with # are skipped. At least one key.
  static Result<ApiKeys> Parse(std::string_view text, const std::string& what);
  // One more. It has neither blanks nor control characters, which a header could not carry.
  Status Add(std::string_view key, const std::string& what);

  bool required() const { return !keys_.empty(); }
  // Whether the value of an Authorization header is "Bearer KEY". Takes the same time for a wrong
  // key as for a valid one.
  bool Admits(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_API_KEYS_H_
