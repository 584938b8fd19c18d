// OpenAI's messages, checked and brought into the shape that a template expects.
#ifndef TALON_TEXT_CHAT_MESSAGES_H_
#define TALON_TEXT_CHAT_MESSAGES_H_

#include <string>

#include "base/json_fwd.h"
#include "base/status.h"
#include "text/chat_traits.h"

namespace talon {

// Errors name the place: "messages[2].content[0]: type 'image_url' is not supported".
Result<OrderedJson> PrepareMessages(const OrderedJson& messages, const ChatTraits& traits);

// The text of a message's content: null is empty, parts are joined by newlines.
// REQUIRES: PrepareMessages accepted it.
std::string ContentText(const OrderedJson& message);

}  // namespace talon

#endif  // TALON_TEXT_CHAT_MESSAGES_H_
