// Turns the prompts and banned words of a request into tokens.
#ifndef TALON_SERVE_HTTP_PROMPT_TOKENS_H_
#define TALON_SERVE_HTTP_PROMPT_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "serve/http/api/api_error.h"
#include "serve/http/api/api_request.h"
#include "serve/http/serve_parts.h"

namespace talon {

// A text as `talon run` encodes it.
Result<std::vector<int32_t>> EncodeText(const ServeParts& parts, const std::string& text,
                                        bool add_special_tokens);
// The same; what is written there as a special token is text.
Result<std::vector<int32_t>> EncodeWithoutSpecial(const ServeParts& parts, const std::string& text,
                                                  bool add_special_tokens);
// Messages through the chat template, which writes the begin token itself. With `parse_special`
// their text may spell control tokens whatever the server's settings.
Result<std::vector<int32_t>> EncodeChat(const ServeParts& parts, const ChatInput& chat,
                                        bool parse_special = false);

// The words that an answer must not contain.
Result<std::vector<std::vector<int32_t>>> EncodeBannedWords(const ServeParts& parts,
                                                            std::span<const std::string> words);

// All prompts of a request. The error, or none; also an error if one leaves no room in the context.
std::optional<ApiError> EncodePrompts(const ServeParts& parts, const ApiRequest& request,
                                      std::vector<std::vector<int32_t>>* prompts);

// The prompts of a request to /v1/completions as text: as it was sent, or that of its tokens.
std::vector<std::string> PromptTexts(const ServeParts& parts, const ApiRequest& request,
                                     std::span<const std::vector<int32_t>> prompts);

// The longest sequence that the model and the KV pool can hold.
int ContextTokens(const EngineThread& engine);
// Tokens that may follow a prompt of this length; 0 or less if there is no room.
int RoomAfter(const EngineThread& engine, size_t prompt_tokens);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_PROMPT_TOKENS_H_
