#include "serve/http/handlers.h"

#include <fmt/core.h>
#include <unistd.h>

#include <fstream>

#include "base/json.h"
#include "serve/http/api/api_request.h"
#include "serve/http/prompt_tokens.h"

namespace talon {
namespace {

Json ModelJson(const ServeParts& parts) {
  return {{"id", parts.model_name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "talon"},
          {"max_model_len", ContextTokens(*parts.engine)}};
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

std::optional<ApiError> Tokenize(const ServeParts& parts, std::string_view body, Json* answer) {
  TokenizeRequest request;
  if (auto error = ParseTokenizeRequest(body, &request)) return error;
  const auto tokens = request.chat ? EncodeChat(parts, *request.chat)
                                   : EncodeText(parts, request.prompt, request.add_special_tokens);
  if (!tokens.ok()) return ErrorFromStatus(tokens.status());
  *answer = {{"tokens", *tokens},
             {"count", tokens->size()},
             {"max_model_len", ContextTokens(*parts.engine)}};
  return std::nullopt;
}

std::optional<ApiError> Detokenize(const ServeParts& parts, std::string_view body, Json* answer) {
  DetokenizeRequest request;
  if (auto error = ParseDetokenizeRequest(body, &request)) return error;
  if (parts.tokenizer == nullptr) return ApiError{.message = "the model has no tokenizer"};
  for (const int32_t token : request.tokens) {
    if (token >= parts.tokenizer->vocab_size()) {
      return ApiError{.message = fmt::format("tokens: {}, the vocabulary has {}", token,
                                             parts.tokenizer->vocab_size()),
                      .param = "tokens"};
    }
  }
  *answer = {{"prompt", parts.tokenizer->Decode(request.tokens, request.skip_special_tokens)}};
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

Json DescribeStatus(const ServeParts& parts) {
  const EngineThread::Snapshot now = parts.engine->snapshot();
  return {{"model", parts.model_name},
          {"drafter", parts.defaults.drafter},
          {"kv",
           {{"blocks", now.blocks},
            {"free", now.free_blocks},
            {"cached", now.cached_blocks},
            {"block_size", parts.engine->engine().options().block_size}}},
          {"memory_bytes", MemoryBytes()},
          {"requests", {{"running", now.running}, {"waiting", now.waiting}}}};
}

}  // namespace talon
