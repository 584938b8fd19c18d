#include "text/chat_template.h"

#include <map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/chat_messages.h"
#include "text/chat_options.h"
#include "text/chat_traits.h"
#include "text/jinja/characters.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "base/ordered_json.h"

namespace talon {
namespace {

using Variables = std::map<std::string, jinja::Value>;

constexpr const char* kSpecialTokens[] = {"bos_token", "cls_token", "eos_token", "mask_token",
                                          "pad_token", "sep_token", "unk_token"};

Result<OrderedJson> ReadOrderedJson(const std::string& path) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseOrderedJson(text, path);
}

// A token as both files write it, "<s>" or {"content": "<s>"}; null if there is none.
OrderedJson TokenText(const OrderedJson& config, const char* name) {
  if (!config.is_object()) return nullptr;
  auto found = config.find(name);
  if (found == config.end()) return nullptr;
  if (found->is_object() && found->contains("content")) return TokenText(*found, "content");
  return found->is_string() ? *found : OrderedJson();
}

OrderedJson SpecialTokens(const std::vector<OrderedJson>& configs) {
  OrderedJson tokens = OrderedJson::object();
  for (const OrderedJson& config : configs) {
    for (const char* name : kSpecialTokens) {
      const OrderedJson text = TokenText(config, name);
      if (!text.is_null() && !tokens.contains(name)) tokens[name] = text;
    }
  }
  return tokens;
}

Status AddVariables(const OrderedJson& object, const std::string& what, Variables* variables) {
  if (!object.is_object()) {
    return InvalidArgument("{}: expected an object, found {}", what, object.type_name());
  }
  for (const auto& [name, json] : object.items()) {
    auto value = jinja::Value::FromJson(json);
    if (!value.ok()) return value.status().WithContext(what + "." + name);
    (*variables)[name] = std::move(*value);
  }
  return OkStatus();
}

// Later ones win: special tokens, the caller's variables, then what every template is given.
Result<Variables> TemplateVariables(const OrderedJson& special_tokens, const OrderedJson& messages,
                                    const ChatOptions& options) {
  Variables variables;
  variables["documents"] = jinja::Value::MakeNone();
  TALON_RETURN_IF_ERROR(AddVariables(special_tokens, "special tokens", &variables));
  TALON_RETURN_IF_ERROR(AddVariables(options.variables, "variables", &variables));
  const OrderedJson given = {
      {"messages", messages},
      {"tools", options.tools},
      {"add_generation_prompt", options.add_generation_prompt && !options.continue_final_message}};
  TALON_RETURN_IF_ERROR(AddVariables(given, "request", &variables));
  return variables;
}

// `prompt` up to the end of the last message's text, which templates often strip.
Result<std::string> CutAfterFinalMessage(std::string prompt, const OrderedJson& message) {
  const std::string text = ContentText(message);
  const std::string_view stripped = jinja::Strip(text);
  if (stripped.empty()) {
    return InvalidArgument("continue_final_message: the last message has no text");
  }
  const size_t found = prompt.rfind(stripped);
  if (found == std::string::npos) {
    return InvalidArgument(
        "continue_final_message: the chat template does not show the last message's text");
  }
  const std::string_view kept_end = jinja::Strip(text, nullptr, {.right = false});
  const bool keeps_spaces = std::string_view(prompt).substr(found).starts_with(kept_end);
  prompt.resize(found + (keeps_spaces ? kept_end.size() : stripped.size()));
  return prompt;
}

std::string RenderPlain(const OrderedJson& messages, const ChatOptions& options) {
  std::string prompt;
  for (const OrderedJson& message : messages) {
    const std::string role = message.at("role").get<std::string>();
    if (role == "system" || role == "developer") {
      prompt += ContentText(message) + "\n\n";
    } else {
      prompt += jinja::Capitalize(role) + ": " + ContentText(message) + "\n";
    }
  }
  if (options.add_generation_prompt && !options.continue_final_message) prompt += "Assistant:";
  return prompt;
}

}  // namespace

struct ChatTemplate::Program {
  std::string source;
  jinja::Block body;
  ChatTraits traits;
};

Result<std::shared_ptr<const ChatTemplate::Program>> ChatTemplate::Compile(
    std::string_view source) {
  auto body = jinja::ParseTemplate(source);
  if (!body.ok()) {
    return Status(body.status().code(), "chat template, " + body.status().message());
  }
  const ChatTraits traits = FindChatTraits(*body);
  return std::make_shared<const Program>(Program{std::string(source), std::move(*body), traits});
}

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source,
                                         const OrderedJson& special_tokens) {
  ChatTemplate chat_template;
  TALON_ASSIGN_OR_RETURN(chat_template.default_, Compile(source));
  chat_template.special_tokens_ = std::make_shared<const OrderedJson>(
      special_tokens.is_null() ? OrderedJson::object() : special_tokens);
  Variables checked;
  TALON_RETURN_IF_ERROR(AddVariables(*chat_template.special_tokens_, "special tokens", &checked));
  return chat_template;
}

ChatTemplate ChatTemplate::Plain() { return {}; }

// `value` is what stands under "chat_template".
Result<ChatTemplate> ChatTemplate::FromConfig(const OrderedJson& value,
                                              const OrderedJson& special_tokens) {
  if (value.is_string()) return Parse(value.get_ref<const std::string&>(), special_tokens);
  if (!value.is_array()) {
    return InvalidArgument("chat_template: expected a string or a list, found {}",
                           value.type_name());
  }
  std::map<std::string, std::string> by_name;
  for (const OrderedJson& entry : value) {
    const OrderedJson name = TokenText(entry, "name");
    const OrderedJson source = TokenText(entry, "template");
    if (name.is_null() || source.is_null()) {
      return InvalidArgument("chat_template: expected a list of {{name, template}}");
    }
    by_name[name.get<std::string>()] = source.get<std::string>();
  }
  if (!by_name.contains("default")) {
    return InvalidArgument("chat_template: {} templates, none named 'default'", by_name.size());
  }
  TALON_ASSIGN_OR_RETURN(ChatTemplate chat_template, Parse(by_name["default"], special_tokens));
  if (by_name.contains("tool_use")) {
    TALON_ASSIGN_OR_RETURN(chat_template.tool_use_, Compile(by_name["tool_use"]));
  }
  return chat_template;
}

Result<ChatTemplate> ChatTemplate::Load(const std::string& model_dir) {
  const std::string config_path = model_dir + "/tokenizer_config.json";
  const std::string tokens_path = model_dir + "/special_tokens_map.json";
  OrderedJson config = OrderedJson::object();
  OrderedJson tokens = OrderedJson::object();
  if (FileExists(config_path)) {
    TALON_ASSIGN_OR_RETURN(config, ReadOrderedJson(config_path));
    if (!config.is_object()) return InvalidArgument("{}: expected an object", config_path);
  }
  if (FileExists(tokens_path)) {
    TALON_ASSIGN_OR_RETURN(tokens, ReadOrderedJson(tokens_path));
  }
  const OrderedJson special_tokens = SpecialTokens({config, tokens});
  const auto from = [&](const std::string& path, const OrderedJson& value) -> Result<ChatTemplate> {
    auto result = FromConfig(value, special_tokens);
    if (!result.ok()) return result.status().WithContext(path);
    return result;
  };
  if (const auto found = config.find("chat_template"); found != config.end() && !found->is_null()) {
    return from(config_path, *found);
  }
  if (const std::string path = model_dir + "/chat_template.jinja"; FileExists(path)) {
    TALON_ASSIGN_OR_RETURN(const std::string source, ReadFile(path));
    return from(path, source);
  }
  if (const std::string path = model_dir + "/chat_template.json"; FileExists(path)) {
    TALON_ASSIGN_OR_RETURN(const OrderedJson file, ReadOrderedJson(path));
    return from(path, file.is_object() ? file.value("chat_template", OrderedJson()) : file);
  }
  return Plain();
}

const std::string& ChatTemplate::source() const {
  static const std::string kNone;
  return is_plain() ? kNone : default_->source;
}

const ChatTemplate::Program& ChatTemplate::ProgramFor(const ChatOptions& options) const {
  return tool_use_ != nullptr && !options.tools.is_null() ? *tool_use_ : *default_;
}

Result<std::string> ChatTemplate::Render(const OrderedJson& messages,
                                         const ChatOptions& options) const {
  if (!options.tools.is_null() && !options.tools.is_array()) {
    return InvalidArgument("tools: expected a list, found {}", options.tools.type_name());
  }
  if (is_plain() && !options.tools.is_null()) {
    return InvalidArgument("tools: the model has no chat template that could show them");
  }
  const ChatTraits traits = is_plain() ? ChatTraits{} : ProgramFor(options).traits;
  TALON_ASSIGN_OR_RETURN(const OrderedJson prepared, PrepareMessages(messages, traits));
  std::string prompt;
  if (is_plain()) {
    prompt = RenderPlain(prepared, options);
  } else {
    TALON_ASSIGN_OR_RETURN(Variables variables,
                           TemplateVariables(*special_tokens_, prepared, options));
    jinja::Evaluator evaluator;
    TALON_ASSIGN_OR_RETURN(prompt, evaluator.Run(ProgramFor(options).body, std::move(variables)));
  }
  if (!options.continue_final_message) return prompt;
  return CutAfterFinalMessage(std::move(prompt), prepared.back());
}

}  // namespace talon
