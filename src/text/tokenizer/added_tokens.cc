#include "text/tokenizer/added_tokens.h"

#include "base/json.h"
#include "text/tokenizer/json_fields.h"
#include "text/unicode.h"

namespace talon {
namespace {

constexpr size_t kMaxTokenBytes = size_t{1} << 16;
constexpr size_t kMaxTrieNodes = size_t{1} << 24;

bool StandsAlone(std::string_view text, const TextSpan& span) {
  if (span.begin > 0) {
    size_t previous = PreviousCharacter(text, span.begin);
    if (IsWordCharacter(NextCodePoint(text, &previous))) return false;
  }
  size_t next = span.end;
  return next == text.size() || !IsWordCharacter(NextCodePoint(text, &next));
}

// The start of the blanks that end at `end`, not before `limit`.
size_t BlanksBefore(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    const size_t previous = PreviousCharacter(text, end);
    size_t next = previous;
    if (!IsWhitespace(NextCodePoint(text, &next))) break;
    end = previous;
  }
  return end;
}

size_t BlanksAfter(std::string_view text, size_t begin) {
  for (size_t next = begin; begin < text.size(); begin = next) {
    if (!IsWhitespace(NextCodePoint(text, &next))) break;
  }
  return begin;
}

}  // namespace

Status AddedTokens::Add(const Json& value, const Normalizer& normalizer, const std::string& where) {
  TALON_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::From(value, where));
  AddedToken token;
  TALON_ASSIGN_OR_RETURN(token.content, fields.String("content"));
  const Json* id = fields.Find("id");
  if (id == nullptr) return InvalidArgument("{}: missing", fields.Where("id"));
  TALON_ASSIGN_OR_RETURN(token.id, TokenIdFromJson(*id, fields.Where("id")));
  TALON_ASSIGN_OR_RETURN(token.single_word, fields.Bool("single_word", false));
  TALON_ASSIGN_OR_RETURN(token.lstrip, fields.Bool("lstrip", false));
  TALON_ASSIGN_OR_RETURN(token.rstrip, fields.Bool("rstrip", false));
  TALON_ASSIGN_OR_RETURN(token.special, fields.Bool("special", false));
  TALON_ASSIGN_OR_RETURN(token.normalized, fields.Bool("normalized", !token.special));
  if (token.content.empty()) return OkStatus();

  std::string sought = token.content;
  if (token.normalized) TALON_RETURN_IF_ERROR(normalizer.Apply(&sought).WithContext(where));
  const auto index = static_cast<int32_t>(tokens_.size());
  if (sought.size() > kMaxTokenBytes) {
    return InvalidArgument("{}: token of {} bytes, limit {}", where, sought.size(), kMaxTokenBytes);
  }
  ByteTrie& trie = token.normalized ? normalized_ : plain_;
  if (!sought.empty()) trie.Insert(sought, index);
  if (trie.size() > kMaxTrieNodes) {
    return ResourceExhausted("{}: more than {} bytes of tokens", where, kMaxTrieNodes);
  }
  tokens_.push_back(std::move(token));
  return OkStatus();
}

Result<AddedTokens> AddedTokens::Parse(const Json& value, const Normalizer& normalizer,
                                       const std::string& where) {
  if (!value.is_array()) {
    return InvalidArgument("{}: expected an array, found {}", where, value.type_name());
  }
  AddedTokens added;
  for (size_t i = 0; i < value.size(); ++i) {
    TALON_RETURN_IF_ERROR(added.Add(value[i], normalizer, fmt::format("{}[{}]", where, i)));
  }
  return added;
}

std::vector<AddedTokens::Part> AddedTokens::Split(std::string_view text, bool normalized) const {
  const ByteTrie& trie = normalized ? normalized_ : plain_;
  std::vector<Part> parts;
  size_t covered = 0;
  for (size_t at = 0; at < text.size() && !trie.empty();) {
    size_t length = 0;
    const int32_t index = trie.LongestAt(text.substr(at), &length);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[index];
    TextSpan span{at, at + length};
    at = span.end;
    if (token.single_word && !StandsAlone(text, span)) continue;
    if (token.lstrip) span.begin = BlanksBefore(text, span.begin, covered);
    if (token.rstrip) span.end = BlanksAfter(text, span.end);
    if (covered < span.begin) parts.push_back({nullptr, {covered, span.begin}});
    parts.push_back({&token, span});
    covered = span.end;
  }
  if (covered < text.size()) parts.push_back({nullptr, {covered, text.size()}});
  return parts;
}

}  // namespace talon
