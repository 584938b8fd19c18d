#include "serve/http/api/chat_messages.h"

#include <fmt/core.h>

#include <optional>

#include "base/json.h"

namespace talon {
namespace {

// The error of one part of a message's content, if there is one.
std::optional<std::string> CheckPart(const Json& part) {
  if (!part.is_object()) return Shown(part) + ", must be an object";
  const auto type = part.find("type");
  if (type == part.end() || !type->is_string()) return "a part without a type";
  if (*type != "text") {
    return fmt::format("a part of type {}, only text is supported", Shown(*type));
  }
  const auto text = part.find("text");
  if (text == part.end() || !text->is_string()) return "a part of type text without text";
  return std::nullopt;
}

std::optional<std::string> CheckContent(const Json& content) {
  if (content.is_string()) return std::nullopt;
  if (!content.is_array()) return Shown(content) + ", must be a string or a list of text parts";
  for (const Json& part : content) {
    if (auto problem = CheckPart(part)) return problem;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> CheckMessage(const Json& message) {
  if (!message.is_object()) return Shown(message) + ", must be an object";
  const auto role = message.find("role");
  if (role == message.end()) return "no role";
  if (!role->is_string()) return fmt::format("role {}, must be a string", Shown(*role));
  const auto content = message.find("content");
  const bool silent = content == message.end() || content->is_null();
  if (silent && *role == "assistant") return std::nullopt;
  if (silent) return "no content";
  if (auto problem = CheckContent(*content)) return "content: " + *problem;
  return std::nullopt;
}

void SetMessages(Json messages, const std::string& key, JsonReader* body, ChatInput* chat) {
  if (!messages.is_array()) return body->Fail(key, Shown(messages) + ", must be a list");
  if (messages.empty()) return body->Fail(key, "empty, must hold at least one message");
  if (messages.size() > ApiRequest::kMaxMessages) {
    return body->Fail(
        key, fmt::format("{} messages, limit {}", messages.size(), ApiRequest::kMaxMessages));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (auto problem = CheckMessage(messages[i])) {
      return body->Fail(fmt::format("{}[{}]", key, i), *problem);
    }
  }
  chat->messages = std::move(messages);
}

void ReadChatInput(JsonReader* body, ChatInput* chat) {
  SetMessages(body->Take("messages"), "messages", body, chat);
  body->Read("add_generation_prompt", &chat->add_generation_prompt);
  body->Read("continue_final_message", &chat->continue_final_message);
  if (chat->continue_final_message && !body->Has("add_generation_prompt")) {
    chat->add_generation_prompt = false;
  }
  if (const Json* variables = body->Find("chat_template_kwargs")) {
    if (!variables->is_object()) {
      return body->Fail("chat_template_kwargs", Shown(*variables) + ", must be an object");
    }
    chat->variables = body->Take("chat_template_kwargs");
  }
}

}  // namespace talon
