#include "text/answers/call_reader.h"

#include <algorithm>
#include <optional>

#include "base/json.h"

namespace talon {
namespace {

using Event = JsonScanner::Event;

// The text of a JSON string.
std::optional<std::string> Unquote(const std::string& json) {
  const auto parsed = ParseJson(json, "");
  if (!parsed.ok() || !parsed->is_string()) return std::nullopt;
  return parsed->get<std::string>();
}

}  // namespace

CallReader::State CallReader::Push(char byte) {
  const size_t depth = scanner_.depth();
  const Event event = scanner_.Push(byte);
  const bool begins = depth == 0 && event == Event::kValueBegin;
  if (event == Event::kError || (begins && byte != '{')) return State::kFailed;
  if (!named_) return depth == 0 ? State::kMore : PushMember(byte, event);
  if (depth > 0 || begins) arguments_ += byte;
  return scanner_.done() ? State::kDone : State::kMore;
}

// A byte inside of the call's object.
CallReader::State CallReader::PushMember(char byte, Event event) {
  const size_t depth = scanner_.depth();
  if (scanner_.done()) {
    if (!has_arguments_) arguments_ = "{}";
    return name_.empty() ? State::kFailed : State::kDone;
  }
  if (event == Event::kValueBegin && !in_value_) {
    if (IsArguments() && (has_arguments_ || byte != '{')) return State::kFailed;
    in_value_ = true;
    text_.clear();
  }
  std::string& text = in_value_ && IsArguments() ? arguments_ : text_;
  if (depth == 1 && event == Event::kComma) {
    in_value_ = false;
    text_.clear();
    return State::kMore;
  }
  text += byte;
  if (depth > 1) return State::kMore;
  if (event == Event::kKeyEnd) {
    const auto key = Unquote(text_.substr(text_.find('"')));
    if (!key) return State::kFailed;
    key_ = *key;
  }
  if (event == Event::kValueEnd) {
    if (!EndMember()) return State::kFailed;
    in_value_ = false;
  }
  return State::kMore;
}

bool CallReader::EndMember() {
  if (IsArguments()) has_arguments_ = true;
  if (key_ != "name") return true;
  const auto name = Unquote(text_);
  if (!name || !name_.empty() || std::ranges::find(tools_, *name) == tools_.end()) return false;
  name_ = *name;
  return true;
}

}  // namespace talon
