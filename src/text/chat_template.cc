#include "text/chat_template.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/ordered_json.h"
#include "text/builtin_templates.h"
#include "text/chat_messages.h"
#include "text/chat_options.h"
#include "text/chat_traits.h"
#include "text/control_tokens.h"
#include "text/jinja/characters.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/jinja/value_from_json.h"
#include "text/special_tokens.h"

namespace talon {
namespace {

using Variables = std::map<std::string, jinja::Value>;

Status AddVariables(const OrderedJson& object, const std::string& what, Variables* variables) {
  if (!object.is_object()) {
    return InvalidArgument("{}: expected an object, found {}", what, object.type_name());
  }
  for (const auto& [name, json] : object.items()) {
    auto value = jinja::ValueFromJson(json);
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

// Texts of probe messages: no template changes digits.
constexpr std::string_view kProbe = "7301946258";
constexpr int kProbeDigits = 6;  // digits of the message's number, after kProbe

constexpr size_t kShownRole = 100;  // bytes of a role that a message quotes

std::string ProbeText(size_t index) { return fmt::format("{}{:0{}}", kProbe, index, kProbeDigits); }

bool HasText(const OrderedJson& message) { return !jinja::Strip(ContentText(message)).empty(); }

// The text of a message, replaced by its probe.
void Probe(size_t index, OrderedJson* message) {
  OrderedJson& content = (*message)["content"];
  if (!content.is_array()) {
    content = ProbeText(index);
    return;
  }
  for (OrderedJson& part : content) part["text"] = ProbeText(index);
}

// Which of the probes of `count` messages are in the text.
std::vector<bool> FindProbes(std::string_view text, size_t count) {
  std::vector<bool> found(count, false);
  for (size_t at = text.find(kProbe); at != std::string_view::npos; at = text.find(kProbe, at)) {
    at += kProbe.size();
    const std::string_view digits = text.substr(at, kProbeDigits);
    size_t index = count;
    std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (index < count) found[index] = true;
  }
  return found;
}

bool IsCommonRole(const OrderedJson& message) {
  return message.at("role") == "user" || message.at("role") == "assistant";
}

// What stands under "chat_template": the default one, or a list of named ones.
Result<std::map<std::string, std::string>> SourcesFromJson(const OrderedJson& value) {
  std::map<std::string, std::string> sources;
  if (value.is_string()) {
    sources["default"] = value.get<std::string>();
    return sources;
  }
  if (!value.is_array()) {
    return InvalidArgument("chat_template: expected a string or a list, found {}",
                           value.type_name());
  }
  for (const OrderedJson& entry : value) {
    const OrderedJson name = TextMember(entry, "name");
    const OrderedJson source = TextMember(entry, "template");
    if (name.is_null() || source.is_null()) {
      return InvalidArgument("chat_template: expected a list of {{name, template}}");
    }
    sources[name.get<std::string>()] = source.get<std::string>();
  }
  return sources;
}

// The files of additional_chat_templates/, each named after itself.
Status AddNamedFiles(const std::string& model_dir, std::map<std::string, std::string>* sources) {
  std::error_code none;  // not an error: the folder is not there
  std::filesystem::directory_iterator file(model_dir + "/additional_chat_templates", none);
  for (; file != std::filesystem::directory_iterator(); file.increment(none)) {
    const std::filesystem::path& path = file->path();
    if (path.extension() != ".jinja") continue;
    TALON_ASSIGN_OR_RETURN((*sources)[path.stem().string()], ReadFile(path.string()));
  }
  return OkStatus();
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

Result<ChatTemplate> ChatTemplate::FromSources(const Sources& sources,
                                               const OrderedJson& special_tokens) {
  const auto chosen = sources.find("default");
  if (chosen == sources.end()) {
    return InvalidArgument("chat_template: {} templates, none named 'default'", sources.size());
  }
  TALON_ASSIGN_OR_RETURN(ChatTemplate chat_template, Parse(chosen->second, special_tokens));
  if (const auto tools = sources.find("tool_use"); tools != sources.end()) {
    TALON_ASSIGN_OR_RETURN(chat_template.tool_use_, Compile(tools->second));
  }
  return chat_template;
}

Result<std::optional<ChatTemplate>> ChatTemplate::Load(const std::string& model_dir) {
  TALON_ASSIGN_OR_RETURN(const OrderedJson special_tokens, ReadSpecialTokens(model_dir));
  std::string path = model_dir + "/chat_template.jinja";
  OrderedJson value;
  if (FileExists(path)) {
    TALON_ASSIGN_OR_RETURN(value, ReadFile(path));
  }
  for (const char* name : {"/tokenizer_config.json", "/chat_template.json"}) {
    if (!value.is_null()) break;
    path = model_dir + name;
    TALON_ASSIGN_OR_RETURN(const OrderedJson config, ReadConfigFile(path));
    value = config.value("chat_template", OrderedJson());
  }
  Result<Sources> sources = value.is_null() ? Sources() : SourcesFromJson(value);
  if (!sources.ok()) return sources.status().WithContext(path);
  TALON_RETURN_IF_ERROR(AddNamedFiles(model_dir, &*sources));
  if (sources->empty()) return std::optional<ChatTemplate>();
  auto chat_template = FromSources(*sources, special_tokens);
  if (!chat_template.ok()) return chat_template.status().WithContext(path);
  return std::optional<ChatTemplate>(std::move(*chat_template));
}

Result<ChatTemplate> ChatTemplate::LoadFileOrName(const std::string& file_or_name,
                                                  const std::string& model_dir) {
  TALON_ASSIGN_OR_RETURN(const OrderedJson special_tokens, ReadSpecialTokens(model_dir));
  if (FileExists(file_or_name)) {
    TALON_ASSIGN_OR_RETURN(const std::string source, ReadFile(file_or_name));
    auto chat_template = Parse(source, special_tokens);
    if (!chat_template.ok()) return chat_template.status().WithContext(file_or_name);
    return chat_template;
  }
  if (const auto source = BuiltinTemplate(file_or_name)) return Parse(*source, special_tokens);
  return NotFound("chat_template: '{}' is neither a file nor one of {}", file_or_name,
                  BuiltinTemplateNames());
}

const std::string& ChatTemplate::source() const { return default_->source; }

const std::string& ChatTemplate::tools_source() const {
  return tool_use_ == nullptr ? default_->source : tool_use_->source;
}

bool ChatTemplate::Reads(const std::string& variable) const {
  return default_->traits.variables.contains(variable) ||
         (tool_use_ != nullptr && tool_use_->traits.variables.contains(variable));
}

std::vector<std::string> ChatTemplate::SoughtTexts() const {
  std::vector<std::string> texts = default_->traits.sought;
  if (tool_use_ == nullptr) return texts;
  texts.insert(texts.end(), tool_use_->traits.sought.begin(), tool_use_->traits.sought.end());
  return texts;
}

const ChatTemplate::Program& ChatTemplate::ProgramFor(const ChatOptions& options) const {
  return tool_use_ != nullptr && !options.tools.is_null() ? *tool_use_ : *default_;
}

Result<std::string> ChatTemplate::Run(const OrderedJson& prepared,
                                      const ChatOptions& options) const {
  TALON_ASSIGN_OR_RETURN(Variables variables,
                         TemplateVariables(*special_tokens_, prepared, options));
  jinja::Evaluator evaluator;
  return evaluator.Run(ProgramFor(options).body, std::move(variables));
}

struct ChatTemplate::Rendering {
  const OrderedJson& messages;  // as they were given
  const OrderedJson& prepared;  // and as they were rendered
  const ChatOptions& options;
  const ControlTokens& control;
  const std::string& prompt;
};

// Renders the messages once more with other texts: all of them must be there, and as many turns.
Status ChatTemplate::CheckWithProbes(const Rendering& rendering) const {
  const auto& [messages, prepared, options, control, prompt] = rendering;
  const bool may_forge =
      ProgramFor(options).traits.cuts_texts && control.CouldSeparateTurns(prepared);
  if (std::ranges::all_of(prepared, IsCommonRole) && !may_forge) return OkStatus();
  OrderedJson probes = prepared;
  for (size_t i = 0; i < probes.size(); ++i) {
    if (HasText(probes[i])) Probe(i, &probes[i]);
  }
  const Result<std::string> text = Run(probes, options);
  if (!text.ok()) return OkStatus();  // a template that insists on certain texts
  const std::vector<bool> found = FindProbes(*text, probes.size());
  for (size_t i = 0; i < probes.size(); ++i) {
    // Some templates leave out the text beside tool calls.
    if (found[i] || !HasText(probes[i]) || probes[i].contains("tool_calls")) continue;
    return InvalidArgument("messages[{}].role: the model's chat template leaves out '{}'", i,
                           messages[i].at("role").get<std::string>().substr(0, kShownRole));
  }
  if (may_forge && control.CountSeparators(prompt) > control.CountSeparators(*text)) {
    return InvalidArgument("messages: what the chat template leaves of them spells special tokens");
  }
  return OkStatus();
}

Result<std::string> ChatTemplate::Render(const OrderedJson& messages,
                                         const ChatOptions& options) const {
  TALON_ASSIGN_OR_RETURN(MarkedText prompt, Render(messages, options, ControlTokens()));
  return std::move(prompt.text);
}

Result<MarkedText> ChatTemplate::Render(const OrderedJson& messages, const ChatOptions& options,
                                        const ControlTokens& control) const {
  if (!options.tools.is_null() && !options.tools.is_array()) {
    return InvalidArgument("tools: expected a list, found {}", options.tools.type_name());
  }
  TALON_ASSIGN_OR_RETURN(OrderedJson prepared,
                         PrepareMessages(messages, ProgramFor(options).traits));
  MarkedText prompt;
  ChatOptions marked = options;
  TALON_ASSIGN_OR_RETURN(prompt.mark, control.Mark({&prepared, &marked.tools, &marked.variables}));
  TALON_ASSIGN_OR_RETURN(prompt.text, Run(prepared, marked));
  TALON_RETURN_IF_ERROR(CheckWithProbes({messages, prepared, marked, control, prompt.text}));
  if (options.continue_final_message) {
    TALON_ASSIGN_OR_RETURN(prompt.text,
                           CutAfterFinalMessage(std::move(prompt.text), prepared.back()));
  }
  return prompt;
}

}  // namespace talon
