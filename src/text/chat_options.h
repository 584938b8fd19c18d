// How a chat template is to be rendered.
#ifndef TALON_TEXT_CHAT_OPTIONS_H_
#define TALON_TEXT_CHAT_OPTIONS_H_

#include "base/json.h"

namespace talon {

// The JSON keeps the order of keys, which shows where a template prints tools; ParseOrderedJson
// (base/ordered_json.h) keeps a text's order.
struct ChatOptions {
  bool add_generation_prompt = true;
  // The prompt ends with the last message's text, for the model to go on with it. Takes the place
  // of the generation prompt.
  bool continue_final_message = false;
  OrderedJson tools = nullptr;                    // an array; null = none
  OrderedJson variables = OrderedJson::object();  // the template's, such as enable_thinking
};

}  // namespace talon

#endif  // TALON_TEXT_CHAT_OPTIONS_H_
