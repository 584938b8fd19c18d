// A compiled regular expression over UTF-8 text (PCRE2 with its JIT compiler).
// Thread-safe: matching keeps no state in the object.
#ifndef TALON_TEXT_REGEX_REGEX_H_
#define TALON_TEXT_REGEX_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

class Regex {
 public:
  // `pattern` in Oniguruma's syntax, see text/regex/oniguruma.h.
  static Result<Regex> Compile(std::string_view pattern);
  // Matches exactly `text`.
  static Result<Regex> Literal(std::string_view text);
  // {"String": text} or {"Regex": pattern}, the form of patterns in tokenizer.json.
  static Result<Regex> FromJson(const Json& value, const std::string& where);

  // All matches from left to right, none overlapping. An empty match right after another match is
  // not one. Fails if the pattern needs more backtracking than a bound linear in the subject.
  // REQUIRES: valid UTF-8.
  Status FindAll(std::string_view subject, std::vector<TextSpan>* matches) const;

  // Every match replaced by the same text; fails beyond `max_bytes`, with the subject unchanged.
  Status ReplaceAll(std::string_view replacement, size_t max_bytes, std::string* subject) const;

 private:
  struct Release {
    void operator()(void* program) const;
  };
  explicit Regex(void* program) : program_(program) {}
  static Result<Regex> CompilePcre(std::string_view pattern, unsigned options);

  std::unique_ptr<void, Release> program_;  // pcre2_code
};

}  // namespace talon

#endif  // TALON_TEXT_REGEX_REGEX_H_
