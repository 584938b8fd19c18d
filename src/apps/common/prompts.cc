#include "apps/common/prompts.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/ordered_json.h"
#include "setup/chat.h"
#include "text/chat_options.h"

namespace talon {
namespace {

Status CheckToken(int64_t token, int vocab_size) {
  if (token >= 0 && token < vocab_size) return OkStatus();
  return InvalidArgument("token id {}, must be 0 to {}", token, vocab_size - 1);
}

Result<std::vector<int32_t>> TokensOf(const OrderedJson& list, int vocab_size) {
  if (!list.is_array()) return InvalidArgument("\"tokens\" is not a list");
  std::vector<int32_t> tokens;
  tokens.reserve(list.size());
  for (const OrderedJson& token : list) {
    if (!token.is_number_integer()) {
      return InvalidArgument("\"tokens\": {}, must be token ids", token.dump());
    }
    TALON_RETURN_IF_ERROR(CheckToken(token.get<int64_t>(), vocab_size));
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

Result<std::vector<int32_t>> EntryTokens(const OrderedJson& entry, const PromptReader& reader) {
  if (entry.is_object() && entry.contains("tokens")) {
    return TokensOf(entry["tokens"], reader.vocab_size);
  }
  if (entry.is_object() && entry.contains("messages")) {
    if (reader.chat) return reader.chat(entry);
    return InvalidArgument("\"messages\", and there is no chat template for them");
  }
  if (!entry.is_object() || !entry.contains("prompt") || !entry["prompt"].is_string()) {
    return InvalidArgument("no \"prompt\" string, no \"messages\" and no \"tokens\"");
  }
  if (reader.tokenizer == nullptr) {
    TALON_RETURN_IF_ERROR(Tokenizer::Supported());
    return InvalidArgument("no \"tokens\", and the model has no tokenizer.json for the \"prompt\"");
  }
  return reader.tokenizer->Encode(entry["prompt"].get<std::string>(), reader.add_special_tokens);
}

std::string TextOf(const OrderedJson& entry, const char* key, const std::string& otherwise) {
  const bool given = entry.contains(key) && entry[key].is_string();
  return given ? entry[key].get<std::string>() : otherwise;
}

// The order of a schema's keys is that of the answer's.
std::string SchemaOf(const OrderedJson& entry) {
  return entry.contains("json_schema") ? entry["json_schema"].dump() : std::string();
}

// Numbers between commas and blanks.
Result<std::vector<int32_t>> ParseTokenList(std::string_view text, int vocab_size) {
  constexpr std::string_view kBetween = ", \t\r\n";
  std::vector<int32_t> tokens;
  for (size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;
       at = text.find_first_not_of(kBetween, at)) {
    const std::string_view word = text.substr(at, text.find_first_of(kBetween, at) - at);
    int64_t token = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || stop != word.data() + word.size()) {
      return InvalidArgument("'{}', must be a token id", word.substr(0, 40));
    }
    TALON_RETURN_IF_ERROR(CheckToken(token, vocab_size));
    tokens.push_back(static_cast<int32_t>(token));
    at += word.size();
  }
  return tokens;
}

}  // namespace

Result<std::vector<Prompt>> PromptReader::Read(const std::string& path) const {
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<Prompt> prompts;
  size_t start = 0;
  for (int line = 1; start < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string where = fmt::format("{}:{}", path, line);
    const std::string_view row = std::string_view(text).substr(start, end - start);
    start = end + 1;
    if (row.empty()) continue;
    TALON_ASSIGN_OR_RETURN(const OrderedJson entry, ParseOrderedJson(row, where));
    auto tokens = EntryTokens(entry, *this);
    if (!tokens.ok()) return tokens.status().WithContext(where);
    prompts.push_back({.id = TextOf(entry, "id", std::to_string(line)),
                       .tokens = std::move(*tokens),
                       .answer = TextOf(entry, "answer", ""),
                       .json_schema = SchemaOf(entry)});
  }
  if (prompts.empty()) return InvalidArgument("{}: no prompts", path);
  return prompts;
}

Result<PromptReader> MakePromptReader(const ServeConfig& serve, const LoadedModel& model) {
  const Tokenizer* tokenizer = model.tokenizer.get();
  PromptReader reader{.tokenizer = tokenizer, .vocab_size = model.target->config().vocab_size};
  if (tokenizer == nullptr) return reader;
  TALON_ASSIGN_OR_RETURN(std::optional<Chat> found, LoadChat(serve, model));
  if (!found) return reader;
  const auto chat = std::make_shared<const Chat>(std::move(*found));
  reader.chat = [chat, tokenizer](const OrderedJson& line) -> Result<std::vector<int32_t>> {
    TALON_ASSIGN_OR_RETURN(GenerateRequest request,
                           ChatRequest(*chat, *tokenizer, line["messages"], SamplingParams(),
                                       {.tools = line.value("tools", OrderedJson())}));
    return std::move(request.prompt);
  };
  return reader;
}

Result<std::vector<int32_t>> ReadPromptTokens(const std::string& argument, int vocab_size) {
  constexpr const char* kName = "prompt_tokens";
  std::string text = argument;
  if (argument.starts_with("@")) {
    const std::string path = argument.substr(1);
    TALON_ASSIGN_OR_RETURN(text, ReadFile(path));
    if (text.starts_with("{")) {
      TALON_ASSIGN_OR_RETURN(auto prompts, PromptReader{.vocab_size = vocab_size}.Read(path));
      return std::move(prompts[0].tokens);
    }
  }
  auto tokens = ParseTokenList(text, vocab_size);
  if (!tokens.ok()) return tokens.status().WithContext(kName);
  if (tokens->empty()) return InvalidArgument("{}: empty", kName);
  return tokens;
}

}  // namespace talon
