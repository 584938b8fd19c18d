// The messages of a chat request and the options of their template.
#ifndef TALON_SERVE_HTTP_API_CHAT_MESSAGES_H_
#define TALON_SERVE_HTTP_API_CHAT_MESSAGES_H_

#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "serve/http/api/api_request.h"
#include "serve/http/api/json_reader.h"

namespace talon {

// The error of a message, if there is one. The template checks everything but role and content.
std::optional<std::string> CheckMessage(const Json& message);

// Checks and takes messages that stand at `key`.
void SetMessages(Json messages, const std::string& key, JsonReader* body, ChatInput* chat);

// Reads "messages" and the options of the template. REQUIRES: "messages" is there.
void ReadChatInput(JsonReader* body, ChatInput* chat);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_CHAT_MESSAGES_H_
