#include "serve/http/api/responses_input.h"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/json.h"
#include "serve/http/api/chat_messages.h"

namespace talon {
namespace {

// A part's type in a chat. Parts of other types keep theirs, for the check of messages to refuse.
std::string ChatPartType(const std::string& type) {
  return type == "input_text" || type == "output_text" ? "text" : type;
}

// A message of the input as one of a chat; what is wrong with it is found there.
Json ChatMessage(const Json& item) {
  Json message = {{"role", item.value("role", Json())}, {"content", item.value("content", Json())}};
  if (!message["content"].is_array()) return message;
  for (Json& part : message["content"]) {
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) continue;
    part = {{"type", ChatPartType(part["type"])}, {"text", part.value("text", Json())}};
  }
  return message;
}

bool IsMessage(const Json& item) {
  return item.is_object() && item.value("type", Json("message")) == "message";
}

}  // namespace

void ReadResponsesInput(JsonReader* body, ChatInput* chat) {
  Json messages = Json::array();
  const Json* input = body->Find("input");
  if (input == nullptr) return body->Fail("input", "missing");
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else if (!input->is_array() || input->empty()) {
    return body->Fail("input", Shown(*input) + ", must be a text or a list of messages");
  } else {
    for (size_t i = 0; i < input->size(); ++i) {
      if (!IsMessage((*input)[i])) {
        return body->Fail(fmt::format("input[{}]", i), "not a message, only those are supported");
      }
      messages.push_back(ChatMessage((*input)[i]));
    }
  }
  SetMessages(std::move(messages), "input", body, chat);
  std::string instructions;
  body->Read("instructions", &instructions);
  if (instructions.empty()) return;
  const Json system = {{"role", "system"}, {"content", instructions}};
  chat->messages.insert(chat->messages.begin(), system);
}

}  // namespace talon
