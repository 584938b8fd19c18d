// What the handlers of the API work with.
#ifndef TALON_SERVE_HTTP_SERVE_PARTS_H_
#define TALON_SERVE_HTTP_SERVE_PARTS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine_thread.h"
#include "engine/grammar_compiler.h"
#include "serve/http/api/api_request.h"
#include "text/chat_template.h"
#include "text/control_tokens.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

// The pointers are not owned and outlive the server.
struct ServeParts {
  EngineThread* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;         // null: prompts are token ids
  const ChatTemplate* chat_template = nullptr;  // null: no chat
  // What the text of messages cannot spell; null: it may spell any token.
  const ControlTokens* control_tokens = nullptr;
  std::vector<int32_t> ends_of_turn;             // end the answers of chats, beside the model's own
  std::string model_name;                        // as clients call it
  std::string draft_model;                       // the head's or draft model's name; "" = none
  ApiDefaults defaults;                          // the drafter's name, what requests leave out
  const GrammarCompiler* grammars = nullptr;     // null: answers cannot follow one
  std::chrono::milliseconds request_timeout{0};  // 0 = none
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_SERVE_PARTS_H_
