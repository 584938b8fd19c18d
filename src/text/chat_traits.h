// What a chat template expects of its messages, read off its source.
#ifndef TALON_TEXT_CHAT_TRAITS_H_
#define TALON_TEXT_CHAT_TRAITS_H_

#include "text/jinja/ast.h"

namespace talon {

struct ChatTraits {
  bool loops_over_content = false;   // takes a message's content as a list of parts
  bool takes_argument_text = false;  // takes a tool call's arguments as a string
};

ChatTraits FindChatTraits(const jinja::Block& block);

}  // namespace talon

#endif  // TALON_TEXT_CHAT_TRAITS_H_
