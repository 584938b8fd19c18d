#include "text/answers/step_parser.h"

#include <algorithm>

namespace talon {
namespace {

constexpr std::string_view kSpace = " \n\r\t";

class PlainParser : public StepParser {
 public:
  using StepParser::StepParser;

 private:
  bool Step() override {
    Emit(AnswerDelta::Kind::kContent, Take(rest().size()));
    return false;
  }
};

// The longest end of `text` that begins a marker but is not all of it.
size_t BegunMarker(std::string_view text, std::string_view marker) {
  for (size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size) {
    if (marker.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

}  // namespace

StepParser::StepParser(ParserOptions options) : options_(std::move(options)) {
  if (options_.thinking == Thinking::kMay) phase_ = Phase::kBefore;
  if (options_.thinking == Thinking::kBegun) phase_ = Phase::kOpened;
}

std::vector<AnswerDelta> StepParser::Run() {
  while (StepPhase()) {
  }
  text_.erase(0, std::exchange(at_, 0));
  return std::exchange(deltas_, {});
}

std::vector<AnswerDelta> StepParser::Feed(std::string_view text) {
  text_ += text;
  return Run();
}

std::vector<AnswerDelta> StepParser::Finish() {
  ended_ = true;
  std::vector<AnswerDelta> deltas = Run();
  if (call_ && !call_->begun) Content(std::exchange(call_->raw, {}));
  Content(rest());
  const bool in_answer = phase_ == Phase::kAnswer && !any_call_;
  if (in_answer) Emit(AnswerDelta::Kind::kContent, space_);
  std::ranges::move(std::exchange(deltas_, {}), std::back_inserter(deltas));
  return deltas;
}

bool StepParser::StepPhase() {
  switch (phase_) {
    case Phase::kBefore:
      return StepBefore();
    case Phase::kThoughts:
      return StepThoughts();
    case Phase::kOpened:
    case Phase::kClosed:
      SkipSpace();
      if (rest().empty() && !ended_) return false;
      phase_ = phase_ == Phase::kOpened ? Phase::kThoughts : Phase::kAnswer;
      return true;
    case Phase::kAnswer:
      break;
  }
  return Step();
}

bool StepParser::StepBefore() {
  const size_t begin = std::min(rest().find_first_not_of(kSpace), rest().size());
  const std::string_view text = rest().substr(begin);
  const bool opens = text.starts_with(kThinkBegin);
  if (!opens && !ended_ && kThinkBegin.starts_with(text)) return false;
  if (opens) Take(begin + kThinkBegin.size());
  phase_ = opens ? Phase::kOpened : Phase::kAnswer;
  return true;
}

bool StepParser::StepThoughts() {
  const auto [text, marker] = TakeUntil(std::span(&kThinkEnd, 1));
  EmitInner(AnswerDelta::Kind::kReasoning, text);
  if (marker.empty()) return false;
  Take(marker.size());
  space_.clear();
  phase_ = Phase::kClosed;
  return true;
}

std::string_view StepParser::Take(size_t count) {
  const std::string_view taken = rest().substr(0, count);
  at_ += taken.size();
  return taken;
}

void StepParser::SkipSpace() { Take(std::min(rest().find_first_not_of(kSpace), rest().size())); }

std::optional<bool> StepParser::BeginsWith(std::string_view marker) const {
  if (rest().starts_with(marker)) return true;
  if (!ended_ && marker.starts_with(rest())) return std::nullopt;
  return false;
}

StepParser::Text StepParser::TakeUntil(std::span<const std::string_view> markers) {
  size_t first = std::string_view::npos;
  size_t held = 0;
  std::string_view found;
  for (const std::string_view marker : markers) {
    const size_t at = rest().find(marker);
    if (at < first) {
      first = at;
      found = marker;
    }
    held = std::max(held, BegunMarker(rest(), marker));
  }
  if (!found.empty()) return {.text = Take(first), .marker = found};
  return {.text = Take(rest().size() - (ended_ ? 0 : held)), .marker = ""};
}

void StepParser::EmitInner(AnswerDelta::Kind kind, std::string_view text) {
  const size_t end = text.find_last_not_of(kSpace) + 1;  // 0: all of it is white space
  if (end > 0) {
    Emit(kind, std::exchange(space_, {}));
    Emit(kind, text.substr(0, end));
  }
  space_ += text.substr(end);
}

void StepParser::Emit(AnswerDelta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const bool joins =
      !deltas_.empty() && deltas_.back().kind == kind && kind != AnswerDelta::Kind::kCall;
  if (!joins) deltas_.push_back({kind, ""});
  deltas_.back().text += text;
}

void StepParser::BeginCall(std::string raw, CallReader reader) {
  call_ = Call{.reader = std::move(reader), .raw = std::move(raw)};
}

CallReader::State StepParser::StepCall() {
  auto state = CallReader::State::kMore;
  size_t used = 0;
  for (; used < rest().size() && state == CallReader::State::kMore; ++used) {
    state = call_->reader.Push(rest()[used]);
  }
  if (state == CallReader::State::kFailed) --used;
  call_->raw += Take(used);
  const bool done = state == CallReader::State::kDone;
  if (done || (options_.constrained && !call_->reader.name().empty())) EmitCall();
  if (state == CallReader::State::kFailed && !call_->begun) Content(call_->raw);
  if (state != CallReader::State::kMore) call_.reset();
  return state;
}

void StepParser::EmitCall() {
  if (!std::exchange(call_->begun, true)) {
    Emit(AnswerDelta::Kind::kCall, call_->reader.name());
    any_call_ = true;
    space_.clear();
  }
  Emit(AnswerDelta::Kind::kArguments, call_->reader.TakeArguments());
}

bool StepParser::KnowsTool(std::string_view name) const {
  return std::ranges::find(options_.tools, name) != options_.tools.end();
}

std::unique_ptr<AnswerParser> NewAnswerParser(ToolFormat format, ParserOptions options) {
  switch (format) {
    case ToolFormat::kHarmony:
      return NewHarmonyParser(std::move(options));
    case ToolFormat::kHermes:
      return NewHermesParser(std::move(options));
    case ToolFormat::kLlama3:
      return NewLlama3Parser(std::move(options));
    case ToolFormat::kMistral:
    case ToolFormat::kMistralArgs:
      return NewMistralParser(std::move(options));
    case ToolFormat::kNone:
      break;
  }
  return std::make_unique<PlainParser>(std::move(options));
}

}  // namespace talon
