// What an answer with tools must match, in the model's format.
#ifndef TALON_SERVE_HTTP_API_TOOL_GRAMMAR_H_
#define TALON_SERVE_HTTP_API_TOOL_GRAMMAR_H_

#include "grammar/grammar_spec.h"
#include "serve/http/api/tool_request.h"
#include "text/answers/tool_format.h"

namespace talon {

// Whether calls, or the parts of a harmony answer, change what `content` has to match. Only then is
// AnswerGrammar() needed.
bool NeedsAnswerGrammar(ToolFormat format, const ToolRequest& tools, const GrammarSpec& content);

// Whether the model reasons between <think> and </think> before it answers.
enum class Thinking {
  kNever,
  kMay,
  kBegun,  // the prompt ends with <think>
};

// Free text (or `content`) and calls where they may come, each call's arguments by its schema;
// calls alone if they are required.
// REQUIRES: `content` is none, a JSON object or a JSON schema.
GrammarSpec AnswerGrammar(ToolFormat format, const ToolRequest& tools, const GrammarSpec& content,
                          Thinking thinking);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_TOOL_GRAMMAR_H_
