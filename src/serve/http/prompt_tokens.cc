#include "serve/http/prompt_tokens.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "text/bad_words.h"
#include "text/builtin_templates.h"
#include "text/chat_options.h"

namespace talon {
namespace {

std::optional<ApiError> CheckRoom(const EngineThread& engine, const ApiRequest& request,
                                  size_t tokens, const char* param) {
  if (tokens == 0) return ApiError{.message = fmt::format("{}: no tokens", param), .param = param};
  const bool more = request.sampling.max_tokens > 0;
  const auto context = static_cast<size_t>(ContextTokens(engine));
  if (tokens + (more ? 1 : 0) <= context) return std::nullopt;
  return ApiError{.message = fmt::format("{}: {} tokens, the context holds {}{}", param, tokens,
                                         context, more ? " and one must be left" : ""),
                  .param = param,
                  .code = "context_length_exceeded"};
}

Status CheckTokenizer(const ServeParts& parts) {
  if (parts.tokenizer != nullptr) return OkStatus();
  TALON_RETURN_IF_ERROR(Tokenizer::Supported());
  return InvalidArgument("the model has no tokenizer, give token ids");
}

std::optional<ApiError> WithParameter(const Status& status, const char* param) {
  const bool named = status.message().starts_with(param);
  ApiError error = ErrorFromStatus(named ? status : status.WithContext(param));
  error.param = param;
  return error;
}

}  // namespace

int ContextTokens(const EngineThread& engine) {
  const EngineOptions& options = engine.engine().options();
  const int64_t pool = int64_t{engine.snapshot().blocks} * options.block_size;
  return static_cast<int>(std::min<int64_t>(options.max_length, pool));
}

int RoomAfter(const EngineThread& engine, size_t prompt_tokens) {
  const int64_t context = ContextTokens(engine);
  return static_cast<int>(context -
                          std::min<int64_t>(static_cast<int64_t>(prompt_tokens), context));
}

Result<std::vector<int32_t>> EncodeText(const ServeParts& parts, const std::string& text,
                                        bool add_special_tokens) {
  TALON_RETURN_IF_ERROR(CheckTokenizer(parts));
  return parts.tokenizer->Encode(text, add_special_tokens);
}

Result<std::vector<int32_t>> EncodeWithoutSpecial(const ServeParts& parts, const std::string& text,
                                                  bool add_special_tokens) {
  TALON_RETURN_IF_ERROR(CheckTokenizer(parts));
  TALON_ASSIGN_OR_RETURN(const MarkedText marked,
                         ControlTokens::Special(*parts.tokenizer).Mark(text));
  return parts.tokenizer->Encode(marked, add_special_tokens);
}

Result<std::vector<int32_t>> EncodeChat(const ServeParts& parts, const ChatInput& chat,
                                        bool parse_special) {
  TALON_RETURN_IF_ERROR(CheckTokenizer(parts));
  if (parts.chat_template == nullptr) {
    return InvalidArgument(
        "the model has no chat template; start the server with --chat-template FILE, or one of {}",
        BuiltinTemplateNames());
  }
  const ControlTokens none;
  const bool guarded = parts.control_tokens != nullptr && !parse_special;
  const auto text =
      parts.chat_template->Render(chat.messages,
                                  {.add_generation_prompt = chat.add_generation_prompt,
                                   .continue_final_message = chat.continue_final_message,
                                   .tools = chat.tools,
                                   .variables = chat.variables},
                                  guarded ? *parts.control_tokens : none);
  // Too much for the template's limits is too much at any time: no reason to try again.
  if (text.status().code() == StatusCode::kResourceExhausted) {
    return InvalidArgument("{}", text.status().message());
  }
  TALON_RETURN_IF_ERROR(text.status());
  return parts.tokenizer->Encode(*text, /*add_special_tokens=*/false);
}

Result<std::vector<std::vector<int32_t>>> EncodeBannedWords(const ServeParts& parts,
                                                            std::span<const std::string> words) {
  if (parts.tokenizer == nullptr) return InvalidArgument("bad_words: the model has no tokenizer");
  return EncodeBadWords(words, *parts.tokenizer);
}

std::optional<ApiError> EncodePrompts(const ServeParts& parts, const ApiRequest& request,
                                      std::vector<std::vector<int32_t>>* prompts) {
  if (request.endpoint == Endpoint::kChat || request.endpoint == Endpoint::kResponses) {
    const char* param = request.endpoint == Endpoint::kChat ? "messages" : "input";
    auto tokens = EncodeChat(parts, request.chat);
    if (!tokens.ok()) return WithParameter(tokens.status(), param);
    prompts->push_back(std::move(*tokens));
    return CheckRoom(*parts.engine, request, prompts->back().size(), param);
  }
  const char* param = request.endpoint == Endpoint::kEmbeddings ? "input" : "prompt";
  for (const ApiPrompt& prompt : request.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      auto tokens = EncodeText(parts, *text, request.add_special_tokens);
      if (!tokens.ok()) return WithParameter(tokens.status(), param);
      prompts->push_back(std::move(*tokens));
    } else {
      prompts->push_back(std::get<std::vector<int32_t>>(prompt));
    }
    if (auto error = CheckRoom(*parts.engine, request, prompts->back().size(), param)) return error;
  }
  return std::nullopt;
}

std::vector<std::string> PromptTexts(const ServeParts& parts, const ApiRequest& request,
                                     std::span<const std::vector<int32_t>> prompts) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (const auto* text = std::get_if<std::string>(&request.prompts[i])) {
      texts.push_back(*text);
    } else {
      texts.push_back(parts.tokenizer == nullptr
                          ? ""
                          : parts.tokenizer->Decode(prompts[i], request.skip_special_tokens));
    }
  }
  return texts;
}

}  // namespace talon
