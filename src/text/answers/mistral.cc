// Calls as Mistral's models write them: [TOOL_CALLS] and a list of {"name": ..., "arguments": ...},
// or, of newer models, [TOOL_CALLS]NAME[ARGS]{...} for each call.
#include <algorithm>

#include "text/answers/step_parser.h"

namespace talon {
namespace {

constexpr std::string_view kMarker = "[TOOL_CALLS]";
constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";
constexpr size_t kLongestName = 256;  // with the call's id

class MistralParser : public StepParser {
 public:
  using StepParser::StepParser;

 private:
  enum class State { kText, kOpen, kName, kItem, kCall, kAfterItem };

  bool Step() override {
    switch (state_) {
      case State::kText: {
        const auto [text, marker] = TakeUntil(std::span(&kMarker, 1));
        Content(text);
        if (marker.empty()) return false;
        raw_ = Take(kMarker.size());
        return Go(State::kOpen);
      }
      case State::kOpen:
        if (!SkipRawSpace()) return false;
        in_list_ = rest()[0] == '[';
        if (in_list_) raw_ += Take(1);
        return Go(in_list_ ? State::kItem : State::kName);
      case State::kName:
        return StepName();
      case State::kItem:
        if (!SkipRawSpace()) return false;
        if (rest()[0] != '{') return GiveUp();
        BeginCall(std::exchange(raw_, {}), CallReader(options().tools));
        return Go(State::kCall);
      case State::kCall: {
        const CallReader::State call = StepCall();
        if (call == CallReader::State::kMore) return false;
        return Go(call == CallReader::State::kDone && in_list_ ? State::kAfterItem : State::kText);
      }
      case State::kAfterItem:
        SkipSpace();
        if (rest().empty()) return false;
        if (rest()[0] == ',') raw_ = Take(1);
        if (rest().starts_with(']')) Take(1);
        return Go(raw_.empty() ? State::kText : State::kItem);
    }
    return false;
  }

  bool Go(State state) {
    state_ = state;
    return true;
  }

  // What was read since the marker is content.
  bool GiveUp() {
    Content(std::exchange(raw_, {}));
    return Go(State::kText);
  }

  // False: only white space has come.
  bool SkipRawSpace() {
    raw_ += Take(std::min(rest().find_first_not_of(" \n\r\t"), rest().size()));
    if (!rest().empty()) return true;
    if (ended()) GiveUp();
    return false;
  }

  bool StepName() {
    const size_t object = rest().find('{');
    if (object == std::string_view::npos) {
      return ended() || rest().size() > kLongestName ? GiveUp() : false;
    }
    std::string_view head = rest().substr(0, object);
    if (head.ends_with(kArgs)) head.remove_suffix(kArgs.size());
    const std::string_view name = head.substr(0, head.find(kCallId));
    if (!KnowsTool(name)) return GiveUp();
    std::string call(name);
    raw_ += Take(object);
    BeginCall(std::exchange(raw_, {}), CallReader(std::move(call)));
    return Go(State::kCall);
  }

  State state_ = State::kText;
  bool in_list_ = false;
  std::string raw_;  // since the marker
};

}  // namespace

std::unique_ptr<AnswerParser> NewMistralParser(ParserOptions options) {
  return std::make_unique<MistralParser>(std::move(options));
}

}  // namespace talon
