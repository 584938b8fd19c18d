// The chat of a loaded model: how messages become prompts and answers come apart again.
#ifndef TALON_SETUP_CHAT_H_
#define TALON_SETUP_CHAT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "engine/request.h"
#include "setup/config.h"
#include "setup/loader.h"
#include "text/answers/tool_format.h"
#include "text/chat_template.h"
#include "text/control_tokens.h"

namespace talon {

struct ChatOptions;  // text/chat_options.h

struct Chat {
  ChatTemplate chat_template;
  ControlTokens control_tokens;
  ToolFormat tool_format = ToolFormat::kNone;
  std::vector<int32_t> ends_of_turn;
};

// None if neither the settings nor the model's directory have a chat template.
Result<std::optional<Chat>> LoadChat(const ServeConfig& serve, const LoadedModel& model);

// The same, or an error that says what to do.
Result<Chat> RequireChat(const ServeConfig& serve, const LoadedModel& model);

// The request for an answer to these messages, which the end of a turn ends. Control tokens that
// are spelled in messages are text.
Result<GenerateRequest> ChatRequest(const Chat& chat, const Tokenizer& tokenizer,
                                    const OrderedJson& messages, const SamplingParams& sampling,
                                    const ChatOptions& options);

}  // namespace talon

#endif  // TALON_SETUP_CHAT_H_
