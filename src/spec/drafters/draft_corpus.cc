#include "spec/drafters/draft_corpus.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace talon {
namespace {

Result<std::vector<int32_t>> ParseTokens(const Json& line, const std::string& where,
                                         int vocab_size) {
  std::vector<int32_t> tokens;
  for (const Json& token : line) {
    // Unsigned first: a huge id must not wrap around.
    if (!token.is_number_unsigned() || token.get<uint64_t>() >= static_cast<uint64_t>(vocab_size)) {
      return InvalidArgument("{}: token: {}, must be 0 to {}", where, token.dump(), vocab_size - 1);
    }
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

// The text that a line of JSON stands for, or null.
const std::string* TextOf(const Json& line) {
  if (line.is_string()) return line.get_ptr<const std::string*>();
  const auto prompt = line.is_object() ? line.find("prompt") : line.end();
  return prompt == line.end() ? nullptr : prompt->get_ptr<const std::string*>();
}

// The token ids that a line of JSON stands for, or null. Whether they are right is another matter.
const Json* TokensOf(const Json& line) {
  const Json* tokens = &line;
  if (line.is_object() && line.contains("tokens")) tokens = &line["tokens"];
  const bool numbers = tokens->is_array() && std::ranges::all_of(*tokens, [](const Json& token) {
                         return token.is_number();
                       });
  return numbers ? tokens : nullptr;
}

Result<std::vector<int32_t>> ParseLine(std::string_view line, const std::string& where,
                                       int vocab_size, const TextEncoder& encoder) {
  const auto encode = [&](std::string_view text) -> Result<std::vector<int32_t>> {
    auto tokens = encoder(text);
    if (!tokens.ok()) return tokens.status().WithContext(where);
    return tokens;
  };
  constexpr std::string_view kMayBeginJson = "[\"{";
  if (kMayBeginJson.find(line.front()) == std::string_view::npos) return encode(line);
  const Result<Json> parsed = ParseJson(line, where);
  if (!parsed.ok()) return encode(line);
  if (const std::string* text = TextOf(*parsed)) return encode(*text);
  if (const Json* tokens = TokensOf(*parsed)) return ParseTokens(*tokens, where, vocab_size);
  return encode(line);
}

}  // namespace

Result<std::vector<std::vector<int32_t>>> ReadDraftCorpus(const std::string& path, int vocab_size,
                                                          const TextEncoder& encode) {
  TALON_ASSIGN_OR_RETURN(const std::string contents, ReadFile(path));
  std::vector<std::vector<int32_t>> documents;
  std::string_view rest = contents;
  for (int number = 1; !rest.empty(); ++number) {
    const size_t length = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (line.empty()) continue;
    const std::string where = fmt::format("{} line {}", path, number);
    auto tokens = ParseLine(line, where, vocab_size, encode);
    if (!tokens.ok()) return tokens.status();
    documents.push_back(std::move(*tokens));
  }
  return documents;
}

}  // namespace talon
