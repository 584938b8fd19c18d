#include "text/chat_messages.h"

#include "base/json.h"
#include "base/ordered_json.h"

namespace talon {
namespace {

// Null if there is no such member.
const OrderedJson* Find(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

Status CheckPart(const OrderedJson& part, const std::string& where) {
  const OrderedJson* type = part.is_object() ? Find(part, "type") : nullptr;
  if (type == nullptr || !type->is_string()) {
    return InvalidArgument("{}: expected an object with a type", where);
  }
  if (const auto& name = type->get_ref<const std::string&>(); name != "text") {
    return InvalidArgument("{}: type '{}' is not supported, only 'text'", where, name);
  }
  const OrderedJson* text = Find(part, "text");
  if (text == nullptr || !text->is_string()) {
    return InvalidArgument("{}: text must be a string", where);
  }
  return OkStatus();
}

Status PrepareContent(const std::string& where, const ChatTraits& traits, OrderedJson* message) {
  const OrderedJson* content = Find(*message, "content");
  if (content == nullptr || content->is_null()) {
    // What OpenAI's API has beside tool calls; most templates add it to other texts.
    if (traits.tests_none) {
      (*message)["content"] = nullptr;
    } else {
      (*message)["content"] = "";
    }
    return OkStatus();
  }
  if (content->is_string()) return OkStatus();
  if (!content->is_array()) {
    return InvalidArgument("{}.content: expected a string or a list of parts, found {}", where,
                           content->type_name());
  }
  for (size_t i = 0; i < content->size(); ++i) {
    TALON_RETURN_IF_ERROR(CheckPart((*content)[i], fmt::format("{}.content[{}]", where, i)));
  }
  if (!traits.loops_over_content) (*message)["content"] = ContentText(*message);
  return OkStatus();
}

// Arguments as an object.
Status PrepareArguments(const std::string& where, OrderedJson* call) {
  const auto function = call->find("function");
  if (function == call->end() || !function->is_object()) return OkStatus();
  const auto arguments = function->find("arguments");
  if (arguments == function->end() || !arguments->is_string()) return OkStatus();
  const std::string text = arguments->get<std::string>();
  if (text.empty()) {
    *arguments = OrderedJson::object();
    return OkStatus();
  }
  TALON_ASSIGN_OR_RETURN(*arguments, ParseOrderedJson(text, where + ".function.arguments"));
  return OkStatus();
}

Status PrepareToolCalls(const std::string& where, const ChatTraits& traits, OrderedJson* message) {
  const auto calls = message->find("tool_calls");
  if (calls == message->end() || calls->is_null()) return OkStatus();
  if (!calls->is_array()) return InvalidArgument("{}.tool_calls: expected a list", where);
  for (size_t i = 0; i < calls->size(); ++i) {
    const std::string place = fmt::format("{}.tool_calls[{}]", where, i);
    if (!(*calls)[i].is_object()) return InvalidArgument("{}: expected an object", place);
    if (!traits.takes_argument_text) {
      TALON_RETURN_IF_ERROR(PrepareArguments(place, &(*calls)[i]));
    }
  }
  return OkStatus();
}

}  // namespace

Result<OrderedJson> PrepareMessages(const OrderedJson& messages, const ChatTraits& traits) {
  if (!messages.is_array()) {
    return InvalidArgument("messages: expected a list, found {}", messages.type_name());
  }
  if (messages.empty()) return InvalidArgument("messages: the list is empty");
  OrderedJson prepared = messages;
  for (size_t i = 0; i < prepared.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    OrderedJson& message = prepared[i];
    if (!message.is_object()) return InvalidArgument("{}: expected an object", where);
    const OrderedJson* role = Find(message, "role");
    if (role == nullptr || !role->is_string() || role->get_ref<const std::string&>().empty()) {
      return InvalidArgument("{}.role: expected a name such as 'user'", where);
    }
    // OpenAI's newer name of the role; a model that was not taught it has only the older one.
    if (*role == "developer" && !traits.names_developer) message["role"] = "system";
    TALON_RETURN_IF_ERROR(PrepareContent(where, traits, &message));
    TALON_RETURN_IF_ERROR(PrepareToolCalls(where, traits, &message));
  }
  return prepared;
}

std::string ContentText(const OrderedJson& message) {
  const OrderedJson* content = Find(message, "content");
  if (content == nullptr || content->is_null()) return "";
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  for (const OrderedJson& part : *content) {
    if (&part != &content->front()) text += '\n';
    text += part.at("text").get_ref<const std::string&>();
  }
  return text;
}

}  // namespace talon
