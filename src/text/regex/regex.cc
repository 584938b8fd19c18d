#include "text/regex/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>

#include "base/json.h"
#include "text/regex/oniguruma.h"
#include "text/tokenizer/json_fields.h"
#include "text/unicode.h"

namespace talon {
namespace {

constexpr size_t kMaxPatternBytes = size_t{1} << 16;

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[128] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

std::string Shortened(std::string_view pattern) {
  constexpr size_t kShown = 80;
  if (pattern.size() <= kShown) return std::string(pattern);
  return std::string(pattern.substr(0, kShown)) + "...";
}

// One walk over a subject.
class Matcher {
 public:
  Matcher(const pcre2_code* code, std::string_view subject)
      : code_(code),
        subject_(subject),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
    // A scan that steps back over a long run of blanks is ordinary; more than that is runaway.
    constexpr uint64_t kBase = 1'000'000;
    constexpr uint64_t kPerByte = 16;
    pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(std::min<uint64_t>(
                                              kBase + kPerByte * subject.size(),
                                              std::numeric_limits<uint32_t>::max())));
  }

  // The leftmost match at or after `start`; false if there is none.
  Result<bool> Find(size_t start, TextSpan* match) const {
    int code = Match(start, PCRE2_NO_UTF_CHECK);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) code = Match(start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (code == PCRE2_ERROR_NOMATCH) return false;
    if (code < 0) return ResourceExhausted("regex: {} (byte {})", ErrorText(code), start);
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
    if (ends[0] < start || ends[1] < ends[0]) return Internal("regex: match out of order");
    *match = {ends[0], ends[1]};
    return true;
  }

 private:
  int Match(size_t start, uint32_t options) const {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(subject_.data()), subject_.size(), start,
                       options, data_.get(), context_.get());
  }

  const pcre2_code* code_;
  std::string_view subject_;
  std::unique_ptr<pcre2_match_data, FreeMatchData> data_;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context_;
};

}  // namespace

void Regex::Release::operator()(void* program) const {
  pcre2_code_free(static_cast<pcre2_code*>(program));
}

Result<Regex> Regex::CompilePcre(std::string_view pattern, unsigned options) {
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidArgument("regex of {} bytes, limit {}", pattern.size(), kMaxPatternBytes);
  }
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | options, &error, &offset, context.get());
  if (code == nullptr) {
    return InvalidArgument("regex \"{}\": {}", Shortened(pattern), ErrorText(error));
  }
  Regex regex(code);
  // Without the JIT (an unusual machine) matching is slower and otherwise the same.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return regex;
}

Result<Regex> Regex::Compile(std::string_view pattern) {
  TALON_ASSIGN_OR_RETURN(const std::string rewritten, PatternFromOniguruma(pattern));
  // In Oniguruma ^ and $ always match at lines.
  return CompilePcre(rewritten, PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
}

Result<Regex> Regex::Literal(std::string_view text) { return CompilePcre(text, PCRE2_LITERAL); }

Result<Regex> Regex::FromJson(const Json& value, const std::string& where) {
  TALON_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::From(value, where));
  const bool is_regex = fields.Find("Regex") != nullptr;
  if (!is_regex && fields.Find("String") == nullptr) {
    return InvalidArgument("{}: expected a member \"Regex\" or \"String\"", where);
  }
  TALON_ASSIGN_OR_RETURN(const std::string text, fields.String(is_regex ? "Regex" : "String"));
  Result<Regex> regex = is_regex ? Compile(text) : Literal(text);
  if (!regex.ok()) return regex.status().WithContext(where);
  return regex;
}

Status Regex::FindAll(std::string_view subject, std::vector<TextSpan>* matches) const {
  matches->clear();
  if (subject.empty()) return OkStatus();
  const Matcher matcher(static_cast<const pcre2_code*>(program_.get()), subject);
  for (size_t start = 0; start <= subject.size();) {
    TextSpan match;
    TALON_ASSIGN_OR_RETURN(const bool found, matcher.Find(start, &match));
    if (!found) break;
    const bool follows_a_match = !matches->empty() && matches->back().end == match.end;
    if (match.size() == 0 && follows_a_match) {
      if (start == subject.size()) break;
      NextCodePoint(subject, &start);
    } else {
      matches->push_back(match);
      start = match.end;
    }
  }
  return OkStatus();
}

Status Regex::ReplaceAll(std::string_view replacement, size_t max_bytes,
                         std::string* subject) const {
  std::vector<TextSpan> matches;
  TALON_RETURN_IF_ERROR(FindAll(*subject, &matches));
  if (matches.empty()) return OkStatus();
  const std::string_view before = *subject;
  std::string after;
  size_t copied = 0;
  for (const TextSpan& match : matches) {
    after.append(before.substr(copied, match.begin - copied)).append(replacement);
    copied = match.end;
    if (after.size() > max_bytes) {
      return ResourceExhausted("replacing makes more than {} bytes", max_bytes);
    }
  }
  after.append(before.substr(copied));
  *subject = std::move(after);
  return OkStatus();
}

}  // namespace talon
