#include "serve/http/handlers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <span>

#include "base/json.h"
#include "serve/http/api/api_request.h"
#include "serve/http/prompt_tokens.h"

namespace talon {
namespace {

constexpr size_t kTokenTextBytes = 7;  // bytes of most ids and a comma
// A token can be many times as long as its id.
constexpr size_t kMaxDecodedBytes = size_t{16} << 20;

Json ModelJson(const ServeParts& parts) {
  return {{"id", parts.model_name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "talon"},
          {"max_model_len", ContextTokens(*parts.engine)}};
}

// Tokens one after the other, without a tree of them.
std::string TokensJson(std::span<const int32_t> tokens, int context) {
  std::string text =
      fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[)", tokens.size(), context);
  text.reserve(text.size() + tokens.size() * kTokenTextBytes);
  for (const int32_t token : tokens) {
    if (text.back() != '[') text += ',';
    const fmt::format_int digits(token);
    text.append(digits.data(), digits.size());
  }
  return text + "]}";
}

// Resident, of this process.
int64_t MemoryBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

std::optional<ApiError> CheckModel(const ServeParts& parts, const std::string& model) {
  if (model.empty() || model == parts.model_name) return std::nullopt;
  return ApiError{.status = 404,
                  .message = fmt::format("model: '{}' is not served here, '{}' is",
                                         model.substr(0, 100), parts.model_name),
                  .param = "model",
                  .code = "model_not_found"};
}

std::optional<ApiError> Tokenize(const ServeParts& parts, std::string body, std::string* answer) {
  TokenizeRequest request;
  if (auto error = ParseTokenizeRequest(body, parts.defaults, &request)) return error;
  body = std::string();
  const auto encode = request.parse_special ? EncodeText : EncodeWithoutSpecial;
  const auto tokens = request.chat ? EncodeChat(parts, *request.chat, request.parse_special)
                                   : encode(parts, request.prompt, request.add_special_tokens);
  if (!tokens.ok()) return ErrorFromStatus(tokens.status());
  *answer = TokensJson(*tokens, ContextTokens(*parts.engine));
  return std::nullopt;
}

std::optional<ApiError> Detokenize(const ServeParts& parts, std::string body, std::string* answer) {
  DetokenizeRequest request;
  if (auto error = ParseDetokenizeRequest(body, &request)) return error;
  body = std::string();
  if (parts.tokenizer == nullptr) return ApiError{.message = "the model has no tokenizer"};
  size_t bytes = 0;
  for (const int32_t token : request.tokens) {
    if (token >= parts.tokenizer->vocab_size()) {
      return ApiError{.message = fmt::format("tokens: {}, the vocabulary has {}", token,
                                             parts.tokenizer->vocab_size()),
                      .param = "tokens"};
    }
    bytes += parts.tokenizer->Token(token).value_or("").size();
  }
  if (bytes > kMaxDecodedBytes) {
    return ApiError{
        .status = 413,
        .message = fmt::format("tokens: a text of {} bytes, limit {}", bytes, kMaxDecodedBytes),
        .param = "tokens",
        .code = "request_too_large"};
  }
  const Json text = parts.tokenizer->Decode(request.tokens, request.skip_special_tokens);
  *answer = JsonText(text).insert(0, R"({"prompt":)") + '}';
  return std::nullopt;
}

std::optional<ApiError> DescribeModel(const ServeParts& parts, const std::string& id,
                                      Json* answer) {
  if (auto error = CheckModel(parts, id)) return error;
  *answer = ModelJson(parts);
  return std::nullopt;
}

Json ListModels(const ServeParts& parts) {
  return {{"object", "list"}, {"data", Json::array({ModelJson(parts)})}};
}

// Blocks are used, cached or free, as in the metrics.
Json DescribeStatus(const ServeParts& parts) {
  const EngineThread::Snapshot now = parts.engine->snapshot();
  return {{"model", parts.model_name},
          {"drafter", parts.defaults.drafter},
          {"draft_model", parts.draft_model.empty() ? Json() : Json(parts.draft_model)},
          {"chat", parts.chat_template != nullptr},
          {"kv",
           {{"blocks", now.blocks},
            {"used", now.blocks - now.free_blocks},
            {"cached", now.cached_blocks},
            {"free", now.free_blocks - now.cached_blocks},
            {"block_size", parts.engine->engine().options().block_size}}},
          {"memory_bytes", MemoryBytes()},
          {"requests", {{"running", now.running}, {"waiting", now.waiting}}}};
}

}  // namespace talon
