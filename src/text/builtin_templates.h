// Chat templates for models whose files have none.
#ifndef TALON_TEXT_BUILTIN_TEMPLATES_H_
#define TALON_TEXT_BUILTIN_TEMPLATES_H_

#include <optional>
#include <string>
#include <string_view>

namespace talon {

// The source of the template of that name.
std::optional<std::string_view> BuiltinTemplate(std::string_view name);

// "chatml, llama2, ...", for messages.
std::string BuiltinTemplateNames();

}  // namespace talon

#endif  // TALON_TEXT_BUILTIN_TEMPLATES_H_
