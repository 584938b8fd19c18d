// Calls as Llama 3 models write them: an answer that is {"name": ..., "parameters": {...}}, perhaps
// after <|python_tag|>, or several of these with semicolons between them.
#include "text/answers/step_parser.h"

namespace talon {
namespace {

constexpr std::string_view kTag = "<|python_tag|>";

class Llama3Parser : public StepParser {
 public:
  using StepParser::StepParser;

 private:
  enum class State { kStart, kCall, kText };

  bool Step() override {
    switch (state_) {
      case State::kStart:
        return StepStart();
      case State::kCall: {
        const CallReader::State call = StepCall();
        if (call == CallReader::State::kMore) return false;
        state_ = call == CallReader::State::kDone ? State::kStart : State::kText;
        after_call_ = true;
        return true;
      }
      case State::kText:
        Content(Take(rest().size()));
        return false;
    }
    return false;
  }

  // Looks for the start of a call. Skipped characters are content if none follows.
  bool StepStart() {
    const std::string_view separators = after_call_ ? "; \n\r\t" : " \n\r\t";
    const size_t begin = rest().find_first_not_of(separators);
    if (begin == std::string_view::npos) {
      if (!ended()) return false;
      skipped_ += Take(rest().size());
      if (!after_call_) Content(skipped_);
      return false;
    }
    skipped_ += Take(begin);
    const std::optional<bool> tagged = BeginsWith(kTag);
    if (!tagged) return false;
    if (*tagged) {
      skipped_ += Take(kTag.size());
      return true;
    }
    if (rest()[0] == '{') {
      BeginCall(std::exchange(skipped_, {}), CallReader(options().tools));
      state_ = State::kCall;
    } else {
      Content(std::exchange(skipped_, {}));
      state_ = State::kText;
    }
    return true;
  }

  State state_ = State::kStart;
  bool after_call_ = false;
  std::string skipped_;
};

}  // namespace

std::unique_ptr<AnswerParser> NewLlama3Parser(ParserOptions options) {
  return std::make_unique<Llama3Parser>(std::move(options));
}

}  // namespace talon
