// Answers of gpt-oss models: messages with channels.
//   <|channel|>analysis<|message|>...<|end|><|start|>assistant
//   <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
#include <algorithm>

#include "text/answers/step_parser.h"

namespace talon {
namespace {

using Kind = AnswerDelta::Kind;

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kRecipient = " to=";
constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kHeaderEnds[] = {kMessage};
constexpr std::string_view kBodyEnds[] = {"<|end|>", "<|call|>", "<|return|>", kStart, kChannel};
constexpr size_t kLongestHeader = 512;

// The word after `mark`, "" if there is none.
std::string_view WordAfter(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = text.substr(at + mark.size());
  return rest.substr(0, rest.find_first_of(" <"));
}

class HarmonyParser : public StepParser {
 public:
  using StepParser::StepParser;

 private:
  enum class State { kHeader, kBody, kCall };

  bool Step() override {
    switch (state_) {
      case State::kHeader:
        return StepHeader();
      case State::kBody:
        return StepBody();
      case State::kCall:
        if (StepCall() == CallReader::State::kMore) return false;
        kind_ = Kind::kContent;  // what follows a call; nothing but the end should
        state_ = State::kBody;
        return true;
    }
    return false;
  }

  // Whether a header begins here; none: more text is needed.
  std::optional<bool> AtHeader() const {
    bool waits = false;
    for (const std::string_view first : {kStart, kChannel, kRecipient}) {
      const std::optional<bool> begins = BeginsWith(first);
      if (begins.value_or(false)) return true;
      if (!begins) waits = true;
    }
    return waits ? std::nullopt : std::optional<bool>(false);
  }

  bool StepHeader() {
    if (header_.empty()) {
      if (rest().empty()) return false;
      const std::optional<bool> header = AtHeader();
      if (!header) return false;
      if (!*header) return Body(Kind::kContent);
    }
    const auto [text, marker] = TakeUntil(kHeaderEnds);
    header_ += text;
    if (header_.size() > kLongestHeader) {
      Content(header_);
      header_.clear();
      return Body(Kind::kContent);
    }
    if (!marker.empty()) {
      Take(kMessage.size());
      return BeginMessage(std::exchange(header_, {}));
    }
    if (ended()) header_.clear();  // an answer that was cut before its next message
    return false;
  }

  bool BeginMessage(const std::string& header) {
    const std::string_view channel = WordAfter(header, kChannel);
    const std::string_view recipient = WordAfter(header, kRecipient);
    if (recipient.empty() || recipient == "assistant" || recipient == "user") {
      return Body(channel == "analysis" ? Kind::kReasoning : Kind::kContent);
    }
    const bool function = recipient.starts_with(kFunctions);
    const std::string_view name = function ? recipient.substr(kFunctions.size()) : "";
    std::string raw = header + std::string(kMessage);
    if (!KnowsTool(name)) {
      Content(raw);
      return Body(Kind::kContent);
    }
    BeginCall(std::move(raw), CallReader(std::string(name)));
    state_ = State::kCall;
    return true;
  }

  bool Body(Kind kind) {
    kind_ = kind;
    state_ = State::kBody;
    return true;
  }

  bool StepBody() {
    const auto [text, marker] = TakeUntil(kBodyEnds);
    if (kind_ == Kind::kContent) {
      Content(text);
    } else {
      Emit(kind_, text);
    }
    if (marker.empty()) return false;
    if (marker != kStart && marker != kChannel) Take(marker.size());
    state_ = State::kHeader;
    return true;
  }

  State state_ = State::kHeader;
  Kind kind_ = Kind::kContent;
  std::string header_;
};

}  // namespace

std::unique_ptr<AnswerParser> NewHarmonyParser(ParserOptions options) {
  return std::make_unique<HarmonyParser>(std::move(options));
}

}  // namespace talon
