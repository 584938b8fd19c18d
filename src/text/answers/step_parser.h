// The common part of the parsers: text that waits, content, and the call under way.
#ifndef TALON_TEXT_ANSWERS_STEP_PARSER_H_
#define TALON_TEXT_ANSWERS_STEP_PARSER_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/answers/answer_parser.h"
#include "text/answers/call_reader.h"

namespace talon {

class StepParser : public AnswerParser {
 public:
  explicit StepParser(ParserOptions options);
  std::vector<AnswerDelta> Feed(std::string_view text) final;
  std::vector<AnswerDelta> Finish() final;

 protected:
  // Takes something off rest(), which follows the thoughts, or goes on to another state. False:
  // needs more text, or there is none and it has ended().
  virtual bool Step() = 0;

  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  bool ended() const { return ended_; }
  std::string_view Take(size_t count);
  void SkipSpace();

  // Whether rest() begins with the marker; none: more text is needed to tell.
  std::optional<bool> BeginsWith(std::string_view marker) const;
  // Takes the text before the first of the markers, or as much as is certainly before one.
  struct Text {
    std::string_view text;
    std::string_view marker;  // which follows; "" if none does yet
  };
  Text TakeUntil(std::span<const std::string_view> markers);

  void Content(std::string_view text) { EmitInner(AnswerDelta::Kind::kContent, text); }
  void Emit(AnswerDelta::Kind kind, std::string_view text);

  // The text `raw` opened a call; it is content if no call follows.
  void BeginCall(std::string raw, CallReader reader);
  // Gives rest() to the call. When it has failed, its text has become content.
  CallReader::State StepCall();

  bool KnowsTool(std::string_view name) const;
  const ParserOptions& options() const { return options_; }

 private:
  struct Call {
    CallReader reader;
    std::string raw;
    bool begun = false;  // its name was passed on
  };
  enum class Phase { kBefore, kOpened, kThoughts, kClosed, kAnswer };
  void EmitCall();
  // Holds back white space at the end of the text until more follows.
  void EmitInner(AnswerDelta::Kind kind, std::string_view text);
  // Takes the thoughts off rest(), then what follows by Step(). The same result.
  bool StepPhase();
  bool StepBefore();
  bool StepThoughts();
  std::vector<AnswerDelta> Run();

  ParserOptions options_;
  std::string text_;
  size_t at_ = 0;  // what was taken of text_
  Phase phase_ = Phase::kAnswer;
  bool ended_ = false;
  std::string space_;  // white space that is part of the text if more of it follows
  bool any_call_ = false;
  std::optional<Call> call_;
  std::vector<AnswerDelta> deltas_;
};

// One for each format.
std::unique_ptr<AnswerParser> NewHarmonyParser(ParserOptions options);
std::unique_ptr<AnswerParser> NewHermesParser(ParserOptions options);
std::unique_ptr<AnswerParser> NewLlama3Parser(ParserOptions options);
std::unique_ptr<AnswerParser> NewMistralParser(ParserOptions options);

}  // namespace talon

#endif  // TALON_TEXT_ANSWERS_STEP_PARSER_H_
