// What an answer with tools must match, in the model's format.
#ifndef TALON_SERVE_HTTP_API_TOOL_GRAMMAR_H_
#define TALON_SERVE_HTTP_API_TOOL_GRAMMAR_H_

#include "grammar/grammar_spec.h"
#include "serve/http/api/tool_request.h"
#include "text/answers/thinking.h"
#include "text/answers/tool_format.h"

namespace talon {

// What an answer is put together of.
struct AnswerShape {
  ToolFormat format = ToolFormat::kNone;
  Thinking thinking = Thinking::kNever;
  bool operator==(const AnswerShape&) const = default;
};

// Whether calls, thoughts or the parts of a harmony answer change what `content` has to match. Only
// then is AnswerGrammar() needed.
bool NeedsAnswerGrammar(const AnswerShape& shape, const ToolRequest& tools,
                        const GrammarSpec& content);

// Thoughts, then free text (or `content`) and calls where they may come, each call's arguments by
// its schema; calls alone if they are required.
// REQUIRES: `content` is not itself of parts.
GrammarSpec AnswerGrammar(const AnswerShape& shape, const ToolRequest& tools,
                          const GrammarSpec& content);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_TOOL_GRAMMAR_H_
