#include "serve/http/api/tool_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/json.h"

namespace talon {
namespace {

constexpr size_t kLongestName = 64;
// Arguments of a tool that names none.
constexpr const char* kNoParameters =
    R"({"type": "object", "properties": {}, "additionalProperties": false})";

bool IsName(const std::string& text) {
  const auto is_name_byte = [](unsigned char byte) {
    return std::isalnum(byte) != 0 || byte == '_' || byte == '-' || byte == '.';
  };
  return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, is_name_byte);
}

// Null if it is missing or null.
const OrderedJson* Find(const OrderedJson& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string TextOf(const OrderedJson& object, const char* key) {
  const OrderedJson* text = Find(object, key);
  return text != nullptr && text->is_string() ? text->get<std::string>() : "";
}

class Reader {
 public:
  Reader(JsonReader* body, ApiRequest* request)
      : body_(*body), request_(*request), flat_(request->endpoint == Endpoint::kResponses) {}

  void List(const OrderedJson& list) {
    if (!list.is_array()) return body_.Fail("tools", "must be a list");
    if (list.size() > ToolRequest::kMaxTools) {
      return body_.Fail("tools", fmt::format("{}, limit {}", list.size(), ToolRequest::kMaxTools));
    }
    std::set<std::string> names;
    for (size_t i = 0; i < list.size() && !body_.failed(); ++i) {
      Tool(list[i], fmt::format("tools[{}]", i));
      if (!body_.failed() && !names.insert(tools().back().name).second) {
        body_.Fail(tools().back().place + ".name", "the name of another tool too");
      }
    }
    request_.chat.tools = list;
    for (OrderedJson& tool : request_.chat.tools) {
      if (flat_ && !body_.failed()) tool = ChatTool(std::move(tool));
    }
  }

  void Choice(const OrderedJson& choice) {
    if (choice == "auto") return;
    if (choice == "required") {
      if (tools().empty()) return body_.Fail("tool_choice", "required, and there are no tools");
      request_.tools.required = true;
    } else if (choice == "none") {
      tools().clear();
      request_.chat.tools = nullptr;
    } else if (TextOf(choice, "type") == "function") {
      request_.tools.required = true;
      Keep({NameOf(choice)});
    } else if (TextOf(choice, "type") == "allowed_tools") {
      Allowed(choice);
    } else {
      body_.Fail("tool_choice", "must be none, auto, required, or name a function");
    }
  }

 private:
  std::vector<ApiTool>& tools() { return request_.tools.tools; }

  void Tool(const OrderedJson& tool, const std::string& place) {
    if (TextOf(tool, "type") != "function") {
      return body_.Fail(place + ".type", "must be function, others are not supported");
    }
    const OrderedJson* function = flat_ ? &tool : Find(tool, "function");
    if (function == nullptr || !function->is_object()) {
      return body_.Fail(place + ".function", "must be an object");
    }
    ApiTool read{.name = TextOf(*function, "name"), .place = flat_ ? place : place + ".function"};
    if (!IsName(read.name)) {
      return body_.Fail(read.place + ".name",
                        fmt::format("must be 1 to {} letters, digits, _ - .", kLongestName));
    }
    const OrderedJson* strict = Find(*function, "strict");
    if (strict != nullptr && !strict->is_boolean()) {
      return body_.Fail(read.place + ".strict", "must be true or false");
    }
    read.strict = strict != nullptr && strict->get<bool>();
    const OrderedJson* parameters = Find(*function, "parameters");
    if (parameters != nullptr && !parameters->is_object()) {
      return body_.Fail(read.place + ".parameters", "must be a JSON schema of an object");
    }
    read.schema = parameters == nullptr ? kNoParameters : ObjectSchema(*parameters);
    tools().push_back(std::move(read));
  }

  // A tool of /v1/responses as templates know them.
  static OrderedJson ChatTool(OrderedJson tool) {
    tool.erase("type");
    return {{"type", "function"}, {"function", std::move(tool)}};
  }

  static std::string ObjectSchema(OrderedJson schema) {
    if (Find(schema, "type") == nullptr) schema["type"] = "object";
    return schema.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }

  // {"function": {"name": ...}}, or without the inner object.
  static std::string NameOf(const OrderedJson& tool) {
    const OrderedJson* function = Find(tool, "function");
    return TextOf(function == nullptr ? tool : *function, "name");
  }

  void Allowed(const OrderedJson& choice) {
    const OrderedJson* allowed = Find(choice, "allowed_tools");
    if (allowed == nullptr) allowed = &choice;
    const std::string mode = TextOf(*allowed, "mode");
    const OrderedJson* list = Find(*allowed, "tools");
    if ((mode != "auto" && mode != "required") || list == nullptr || !list->is_array()) {
      return body_.Fail("tool_choice.allowed_tools", "needs mode auto or required, and tools");
    }
    request_.tools.required = mode == "required";
    std::set<std::string> names;
    for (const OrderedJson& tool : *list) names.insert(NameOf(tool));
    Keep(names);
  }

  void Keep(const std::set<std::string>& names) {
    std::set<std::string> missing = names;
    for (const ApiTool& tool : tools()) missing.erase(tool.name);
    if (names.empty() || !missing.empty()) {
      const std::string name = missing.empty() ? "" : *missing.begin();
      return body_.Fail("tool_choice", Shown(Json(name)) + ", is none of the tools");
    }
    std::erase_if(tools(), [&](const ApiTool& tool) { return !names.contains(tool.name); });
  }

  JsonReader& body_;
  ApiRequest& request_;
  const bool flat_;  // tools are {"type": "function", "name": ...}, without an inner object
};

}  // namespace

void ReadTools(const ApiDefaults& defaults, JsonReader* body, ApiRequest* request) {
  Reader reader(body, request);
  const OrderedJson list = FindOrdered("tools", body);
  const OrderedJson choice = FindOrdered("tool_choice", body);
  body->Read("parallel_tool_calls", &request->tools.parallel);
  if (!list.is_null()) reader.List(list);
  if (!choice.is_null() && !body->failed()) reader.Choice(choice);
  if (request->tools.tools.empty() || body->failed()) return;
  if (!defaults.takes_tools) {
    return body->Fail("tools",
                      "the model's chat template takes none; start the server with --chat-template",
                      "unsupported_parameter");
  }
  if (defaults.tool_format == ToolFormat::kNone) {
    body->Fail("tools",
               "the chat template shows no known format of tool calls; start the server with "
               "--tool-call-parser",
               "unsupported_parameter");
  }
}

}  // namespace talon
