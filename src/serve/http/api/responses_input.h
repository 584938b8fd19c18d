// The input of /v1/responses as the messages of a chat.
#ifndef TALON_SERVE_HTTP_API_RESPONSES_INPUT_H_
#define TALON_SERVE_HTTP_API_RESPONSES_INPUT_H_

#include "serve/http/api/api_request.h"
#include "serve/http/api/json_reader.h"

namespace talon {

// Reads "input", a text or a list of messages, calls and what they gave, and "instructions", which
// become a system message.
void ReadResponsesInput(JsonReader* body, ChatInput* chat);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_RESPONSES_INPUT_H_
