// OpenAI's messages, checked and brought into the shape that a template expects.
#ifndef TALON_TEXT_CHAT_MESSAGES_H_
#define TALON_TEXT_CHAT_MESSAGES_H_

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "text/chat_traits.h"

namespace talon {

// Errors name the place: "messages[2].content[0]: type 'image_url' is not supported".
Result<nlohmann::ordered_json> PrepareMessages(const nlohmann::ordered_json& messages,
                                               const ChatTraits& traits);

// The text of a message's content: null is empty, parts are joined by newlines.
// REQUIRES: PrepareMessages accepted it.
std::string ContentText(const nlohmann::ordered_json& message);

}  // namespace talon

#endif  // TALON_TEXT_CHAT_MESSAGES_H_
