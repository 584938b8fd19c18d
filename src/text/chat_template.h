// A model's chat template: OpenAI-style messages to the text of a prompt.
//
// Templates are Jinja, rendered as transformers renders them, by the small interpreter in jinja/.
// What it does not know is an error when the template is loaded, never a wrong prompt.
#ifndef TALON_TEXT_CHAT_TEMPLATE_H_
#define TALON_TEXT_CHAT_TEMPLATE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "text/marked_text.h"

namespace talon {

struct ChatOptions;   // text/chat_options.h
class ControlTokens;  // text/control_tokens.h

// Immutable; use from any thread. Copies share the parsed template.
class ChatTemplate {
 public:
  // From a model's directory: chat_template.jinja, else `chat_template` of tokenizer_config.json (a
  // string, or a list of {name, template}), else chat_template.json; files in
  // additional_chat_templates/ add named ones. Of these "default" is used, and "tool_use" where
  // tools are given. Special tokens come from tokenizer_config.json and special_tokens_map.json.
  // None if the directory has no template.
  static Result<std::optional<ChatTemplate>> Load(const std::string& model_dir);
  // The file of that path, or else the built-in template of that name (text/builtin_templates.h).
  static Result<ChatTemplate> LoadFileOrName(const std::string& file_or_name,
                                             const std::string& model_dir);
  // `special_tokens`: an object such as {"bos_token": "<s>"}.
  // Errors: "chat template, line 12: unknown filter 'foo'".
  static Result<ChatTemplate> Parse(std::string_view source, const OrderedJson& special_tokens);

  const std::string& source() const;
  // The source of the template for tools.
  const std::string& tools_source() const;
  // Whether it reads a variable of that name, such as "tools".
  bool Reads(const std::string& variable) const;
  // Literals of the template that it looks for in other texts.
  std::vector<std::string> SoughtTexts() const;

  // Messages: a list of {role, content, ...}; content is a string, null or a list of
  // {"type": "text", "text": ...}. A template that does not loop over such a list gets the texts
  // joined by newlines; content that is null or missing becomes empty unless it tests for none.
  // Arguments of tool calls, in OpenAI's API a string of JSON, become objects unless the template
  // takes them as text. The role developer becomes system unless the template names it.
  // InvalidArgument for anything else, for a message that the template leaves out because of its
  // role, for what a template raises by raise_exception (with its own message), and for errors in
  // the template.
  Result<std::string> Render(const OrderedJson& messages, const ChatOptions& options) const;
  // The same; spellings of control tokens that came with messages and options are marked. Also
  // InvalidArgument where the template would put one together out of their parts.
  Result<MarkedText> Render(const OrderedJson& messages, const ChatOptions& options,
                            const ControlTokens& control) const;

 private:
  struct Program;
  using Sources = std::map<std::string, std::string>;  // by name

  static Result<std::shared_ptr<const Program>> Compile(std::string_view source);
  static Result<ChatTemplate> FromSources(const Sources& sources, const OrderedJson& special);
  const Program& ProgramFor(const ChatOptions& options) const;
  Result<std::string> Run(const OrderedJson& prepared, const ChatOptions& options) const;
  struct Rendering;  // some messages as text
  Status CheckWithProbes(const Rendering& rendering) const;

  // Shared by all copies; never change. Only tool_use_ may be null: no template of its own for
  // tools.
  std::shared_ptr<const Program> default_;
  std::shared_ptr<const Program> tool_use_;
  std::shared_ptr<const OrderedJson> special_tokens_;
};

}  // namespace talon

#endif  // TALON_TEXT_CHAT_TEMPLATE_H_
