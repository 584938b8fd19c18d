#include "apps/prompts.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace talon {

Result<std::vector<Prompt>> ReadPrompts(const std::string& path, const Tokenizer& tokenizer,
                                        bool add_special_tokens) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<Prompt> prompts;
  size_t start = 0;
  for (int line = 1; start < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string where = fmt::format("{}:{}", path, line);
    const std::string_view row = std::string_view(text).substr(start, end - start);
    start = end + 1;
    if (row.empty()) continue;
    TALON_ASSIGN_OR_RETURN(const Json entry, ParseJson(row, where));
    if (!entry.is_object() || !entry.contains("prompt") || !entry["prompt"].is_string()) {
      return InvalidArgument("{}: no \"prompt\" string", where);
    }
    auto tokens = tokenizer.Encode(entry["prompt"].get<std::string>(), add_special_tokens);
    if (!tokens.ok()) return tokens.status().WithContext(where);
    const auto text_of = [&entry](const char* key, const std::string& otherwise) {
      const bool given = entry.contains(key) && entry[key].is_string();
      return given ? entry[key].get<std::string>() : otherwise;
    };
    prompts.push_back({.id = text_of("id", std::to_string(line)),
                       .tokens = std::move(*tokens),
                       .answer = text_of("answer", "")});
  }
  if (prompts.empty()) return InvalidArgument("{}: no prompts", path);
  return prompts;
}

}  // namespace talon
