// Calls as Hermes and Qwen models write them: <tool_call>\n{...}\n</tool_call>.
#include "text/answers/step_parser.h"

namespace talon {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";

class HermesParser : public StepParser {
 public:
  using StepParser::StepParser;

 private:
  enum class State { kText, kCall, kAfterCall };

  bool Step() override {
    switch (state_) {
      case State::kText:
        return StepText();
      case State::kCall:
        return EndCall(StepCall());
      case State::kAfterCall:
        SkipSpace();
        const std::optional<bool> closes = BeginsWith(kClose);
        if (!closes) return false;
        if (*closes) Take(kClose.size());
        state_ = State::kText;
        return true;
    }
    return false;
  }

  bool StepText() {
    const auto [text, marker] = TakeUntil(std::span(&kOpen, 1));
    Content(text);
    if (marker.empty()) return false;
    BeginCall(std::string(Take(kOpen.size())), CallReader(options().tools));
    state_ = State::kCall;
    return true;
  }

  bool EndCall(CallReader::State call) {
    if (call == CallReader::State::kMore) return false;
    state_ = call == CallReader::State::kDone ? State::kAfterCall : State::kText;
    return true;
  }

  State state_ = State::kText;
};

}  // namespace

std::unique_ptr<AnswerParser> NewHermesParser(ParserOptions options) {
  return std::make_unique<HermesParser>(std::move(options));
}

}  // namespace talon
