// Takes the text of an answer apart as it arrives: content, reasoning, calls of tools.
//
// Pure: the parts depend on the text alone, wherever it is cut into pieces. What is malformed is
// content and never left out; only white space around calls and thoughts is. One thread at a time.
#ifndef TALON_TEXT_ANSWERS_ANSWER_PARSER_H_
#define TALON_TEXT_ANSWERS_ANSWER_PARSER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answers/thinking.h"
#include "text/answers/tool_format.h"

namespace talon {

struct AnswerDelta {
  enum class Kind {
    kContent,
    kReasoning,
    kCall,       // begins a call; the text is the tool's name
    kArguments,  // goes on with the arguments of the last call
  };
  Kind kind = Kind::kContent;
  std::string text;
  bool operator==(const AnswerDelta&) const = default;
};

struct ParserOptions {
  std::vector<std::string> tools;  // names that can be called
  // A grammar keeps calls well-formed: their arguments are passed on as they arrive. Otherwise a
  // call is passed on when it is complete, because it may still turn out to be content.
  bool constrained = false;
  Thinking thinking = Thinking::kNever;  // a harmony answer has channels instead
};

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  // What the text adds to the answer.
  virtual std::vector<AnswerDelta> Feed(std::string_view text) = 0;
  // What was held back. Call it once, at the end of the text.
  virtual std::vector<AnswerDelta> Finish() = 0;
};

// For kNone: all that follows the thoughts is content.
std::unique_ptr<AnswerParser> NewAnswerParser(ToolFormat format, ParserOptions options);

}  // namespace talon

#endif  // TALON_TEXT_ANSWERS_ANSWER_PARSER_H_
