#include "serve/http/api/responses_input.h"

#include <fmt/core.h>

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/json.h"
#include "serve/http/api/chat_messages.h"

namespace talon {
namespace {

// The member, "" if it is not a text.
std::string TextOf(const Json& item, const char* key) {
  const auto found = item.find(key);
  return found != item.end() && found->is_string() ? found->get<std::string>() : "";
}

// A part's type in a chat. Parts of other types keep theirs, for the check of messages to refuse.
std::string ChatPartType(const std::string& type) {
  return type == "input_text" || type == "output_text" ? "text" : type;
}

// A message's content as chats have it; what is wrong with it is found there.
Json ChatContent(Json content) {
  if (!content.is_array()) return content;
  for (Json& part : content) {
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) continue;
    part = {{"type", ChatPartType(part["type"])}, {"text", part.value("text", Json())}};
  }
  return content;
}

// Puts the items of the input together to messages: the reasoning, the text and the calls of an
// answer are one.
class MessageList {
 public:
  // The error of an item, if there is one.
  std::optional<std::string> Add(const Json& item) {
    if (!item.is_object()) return Shown(item) + ", must be an object";
    const Json type = item.value("type", Json("message"));
    if (type == "message") {
      return AddMessage({{"role", item.value("role", Json())},
                         {"content", ChatContent(item.value("content", Json()))}});
    }
    if (type == "function_call") return AddCall(item);
    if (type == "function_call_output") return AddOutput(item);
    if (type == "reasoning") return AddReasoning(item);
    return fmt::format("type {}, not supported", Shown(type));
  }
  Json Take() { return std::move(messages_); }

 private:
  std::optional<std::string> AddMessage(Json message) {
    if (auto problem = CheckMessage(message)) return problem;
    if (!reasoning_.empty() && message["role"] == "assistant") {
      message["reasoning_content"] = std::exchange(reasoning_, {});
    }
    messages_.push_back(std::move(message));
    return std::nullopt;
  }

  std::optional<std::string> AddCall(const Json& item) {
    const std::string id = TextOf(item, "call_id"), name = TextOf(item, "name");
    const Json arguments = item.value("arguments", Json());
    if (id.empty() || name.empty() || !arguments.is_string()) {
      return "a function_call without the texts call_id, name and arguments";
    }
    const bool goes_on =
        reasoning_.empty() && !messages_.empty() && messages_.back()["role"] == "assistant";
    if (!goes_on) AddMessage({{"role", "assistant"}, {"content", nullptr}});
    messages_.back()["tool_calls"].push_back(
        {{"id", id},
         {"type", "function"},
         {"function", {{"name", name}, {"arguments", arguments}}}});
    calls_.insert(id);
    return std::nullopt;
  }

  std::optional<std::string> AddOutput(const Json& item) {
    const std::string id = TextOf(item, "call_id");
    if (!calls_.contains(id)) {
      return fmt::format("call_id {}, no function_call before it has it", Shown(Json(id)));
    }
    return AddMessage({{"role", "tool"},
                       {"tool_call_id", id},
                       {"content", ChatContent(item.value("output", Json()))}});
  }

  // A summary, or what only its server can read, tells the model nothing.
  std::optional<std::string> AddReasoning(const Json& item) {
    for (const Json& part : item.value("content", Json())) {
      if (part.is_object()) reasoning_ += TextOf(part, "text");
    }
    return std::nullopt;
  }

  Json messages_ = Json::array();
  std::string reasoning_;  // for the assistant's next message
  std::set<std::string> calls_;
};

}  // namespace

void ReadResponsesInput(JsonReader* body, ChatInput* chat) {
  const Json* input = body->Find("input");
  if (input == nullptr) return body->Fail("input", "missing");
  MessageList messages;
  if (input->is_string()) {
    messages.Add({{"role", "user"}, {"content", *input}});
  } else if (!input->is_array() || input->empty()) {
    return body->Fail("input", Shown(*input) + ", must be a text or a list of items");
  } else {
    for (size_t i = 0; i < input->size(); ++i) {
      if (auto problem = messages.Add((*input)[i])) {
        return body->Fail(fmt::format("input[{}]", i), *problem);
      }
    }
  }
  SetMessages(messages.Take(), "input", body, chat);
  std::string instructions;
  body->Read("instructions", &instructions);
  if (instructions.empty()) return;
  const Json system = {{"role", "system"}, {"content", instructions}};
  chat->messages.insert(chat->messages.begin(), system);
}

}  // namespace talon
