// The messages of a chat request and the options of their template.
#ifndef TALON_SERVE_HTTP_API_CHAT_MESSAGES_H_
#define TALON_SERVE_HTTP_API_CHAT_MESSAGES_H_

#include "serve/http/api/api_request.h"
#include "serve/http/api/json_reader.h"

namespace talon {

// Reads "messages" and the options of the template. REQUIRES: "messages" is there.
void ReadChatInput(JsonReader* body, ChatInput* chat);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_CHAT_MESSAGES_H_
