// What a chat template expects of its messages, read off its source.
#ifndef TALON_TEXT_CHAT_TRAITS_H_
#define TALON_TEXT_CHAT_TRAITS_H_

#include <set>
#include <string>
#include <vector>

#include "text/jinja/ast.h"

namespace talon {

struct ChatTraits {
  bool loops_over_content = false;   // takes a message's content as a list of parts
  bool takes_argument_text = false;  // takes a tool call's arguments as a string
  bool tests_none = false;           // tells a content that is none from one that is empty
  bool names_developer = false;      // knows the role developer
  bool cuts_texts = false;           // splits texts, or replaces parts of them
  std::set<std::string> variables;   // names it reads, such as "tools"
  std::vector<std::string> sought;   // texts it looks for in messages, such as "</think>"
};

ChatTraits FindChatTraits(const jinja::Block& block);

}  // namespace talon

#endif  // TALON_TEXT_CHAT_TRAITS_H_
