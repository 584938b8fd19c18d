// A model's chat template: OpenAI-style messages to the text of a prompt.
//
// Templates are Jinja, rendered as transformers renders them, by the small interpreter in jinja/.
// What it does not know is an error when the template is loaded, never a wrong prompt. A model
// without a template gets a plain form:
//
//   Be brief.
//
//   User: Hi
//   Assistant: Hello
//   User: How are you?
//   Assistant:
#ifndef TALON_TEXT_CHAT_TEMPLATE_H_
#define TALON_TEXT_CHAT_TEMPLATE_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

struct ChatOptions;  // text/chat_options.h

// Immutable; use from any thread. Copies share the parsed template.
class ChatTemplate {
 public:
  // From a model's directory: `chat_template` of tokenizer_config.json (a string, or a list of
  // {name, template}, of which "default" is used, and "tool_use" where tools are given), else
  // chat_template.jinja, else chat_template.json, else the plain form. Special tokens come from
  // tokenizer_config.json and special_tokens_map.json.
  static Result<ChatTemplate> Load(const std::string& model_dir);
  // `special_tokens`: an object such as {"bos_token": "<s>"}.
  // Errors: "chat template, line 12: unknown filter 'foo'".
  static Result<ChatTemplate> Parse(std::string_view source, const OrderedJson& special_tokens);
  static ChatTemplate Plain();

  bool is_plain() const { return default_ == nullptr; }
  // Empty for the plain form.
  const std::string& source() const;

  // Messages: a list of {role, content, ...}; content is a string, null or a list of
  // {"type": "text", "text": ...}. A template that does not loop over such a list gets the texts
  // joined by newlines. Arguments of tool calls, in OpenAI's API a string of JSON, become objects
  // unless the template takes them as text. InvalidArgument for anything else, for what a template
  // raises by raise_exception (with its own message), and for errors in the template.
  Result<std::string> Render(const OrderedJson& messages, const ChatOptions& options) const;

 private:
  struct Program;

  static Result<std::shared_ptr<const Program>> Compile(std::string_view source);
  static Result<ChatTemplate> FromConfig(const OrderedJson& value, const OrderedJson& special);
  const Program& ProgramFor(const ChatOptions& options) const;

  // Shared by all copies; never change. Null: the plain form; no template of its own for tools; no
  // special tokens.
  std::shared_ptr<const Program> default_;
  std::shared_ptr<const Program> tool_use_;
  std::shared_ptr<const OrderedJson> special_tokens_;
};

}  // namespace talon

#endif  // TALON_TEXT_CHAT_TEMPLATE_H_
