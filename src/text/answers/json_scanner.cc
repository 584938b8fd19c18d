#include "text/answers/json_scanner.h"

#include <string_view>

namespace talon {
namespace {

bool IsSpace(char byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }
bool IsDigit(char byte) { return byte >= '0' && byte <= '9'; }
bool IsHexDigit(char byte) {
  return IsDigit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

JsonScanner::Event JsonScanner::Push(char byte) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kHex:
      return InString(byte);
    case State::kWord:
      if (byte != *word_) return Event::kError;
      return *++word_ == '\0' ? EndValue() : Event::kNone;
    case State::kZero:
    case State::kInteger:
    case State::kFraction:
    case State::kPower:
      if (InNumber(byte)) return Event::kNone;
      if (open_.empty()) return Event::kError;
      break;  // the number has ended
    case State::kMinus:
    case State::kPoint:
    case State::kExponent:
    case State::kSign:
      return InNumber(byte) ? Event::kNone : Event::kError;
    default:
      break;
  }
  return BetweenValues(byte);
}

JsonScanner::Event JsonScanner::BetweenValues(char byte) {
  if (IsSpace(byte)) {
    const bool number = state_ == State::kZero || state_ == State::kInteger ||
                        state_ == State::kFraction || state_ == State::kPower;
    if (number) state_ = State::kAfterValue;
    return Event::kNone;
  }
  switch (state_) {
    case State::kDone:
      return Event::kError;
    case State::kColon:
      if (byte != ':') return Event::kError;
      state_ = State::kValue;
      return Event::kNone;
    case State::kValue:
      return BeginValue(byte);
    case State::kFirstItem:
      if (byte != ']') return BeginValue(byte);
      open_.pop_back();
      return EndValue();
    case State::kFirstKey:
    case State::kKey:
      if (byte == '}' && state_ == State::kFirstKey) {
        open_.pop_back();
        return EndValue();
      }
      if (byte != '"') return Event::kError;
      key_ = true;
      state_ = State::kString;
      return Event::kNone;
    default:  // after a value
      break;
  }
  const bool object = open_.back() == '{';
  if (byte == ',') {
    state_ = object ? State::kKey : State::kValue;
    return Event::kComma;
  }
  if (byte != (object ? '}' : ']')) return Event::kError;
  open_.pop_back();
  return EndValue();
}

JsonScanner::Event JsonScanner::BeginValue(char byte) {
  switch (byte) {
    case '{':
    case '[':
      if (open_.size() >= kDeepest) return Event::kError;
      open_.push_back(byte);
      state_ = byte == '{' ? State::kFirstKey : State::kFirstItem;
      return Event::kValueBegin;
    case '"':
      key_ = false;
      state_ = State::kString;
      return Event::kValueBegin;
    case 't':
      return BeginWord("rue");
    case 'f':
      return BeginWord("alse");
    case 'n':
      return BeginWord("ull");
    case '-':
      state_ = State::kMinus;
      return Event::kValueBegin;
    default:
      if (!IsDigit(byte)) return Event::kError;
      state_ = byte == '0' ? State::kZero : State::kInteger;
      return Event::kValueBegin;
  }
}

JsonScanner::Event JsonScanner::BeginWord(const char* rest) {
  word_ = rest;
  state_ = State::kWord;
  return Event::kValueBegin;
}

JsonScanner::Event JsonScanner::InString(char byte) {
  if (state_ == State::kHex) {
    if (!IsHexDigit(byte)) return Event::kError;
    if (--left_ == 0) state_ = State::kString;
    return Event::kNone;
  }
  if (state_ == State::kEscape) {
    if (std::string_view("\"\\/bfnrtu").find(byte) == std::string_view::npos) return Event::kError;
    left_ = 4;
    state_ = byte == 'u' ? State::kHex : State::kString;
    return Event::kNone;
  }
  if (byte == '\\') {
    state_ = State::kEscape;
    return Event::kNone;
  }
  if (static_cast<unsigned char>(byte) < 0x20) return Event::kError;
  if (byte != '"') return Event::kNone;
  if (!key_) return EndValue();
  state_ = State::kColon;
  return Event::kKeyEnd;
}

bool JsonScanner::InNumber(char byte) {
  const bool digit = IsDigit(byte);
  switch (state_) {
    case State::kMinus:
      if (digit) state_ = byte == '0' ? State::kZero : State::kInteger;
      return digit;
    case State::kPoint:
    case State::kFraction:
      if (digit) state_ = State::kFraction;
      break;
    case State::kExponent:
      if (byte == '+' || byte == '-') {
        state_ = State::kSign;
        return true;
      }
      [[fallthrough]];
    case State::kSign:
    case State::kPower:
      if (digit) state_ = State::kPower;
      return digit;
    case State::kZero:
      if (digit) return false;
      break;
    default:
      break;
  }
  if (digit) return true;
  const State before = state_;
  if (byte == '.' && (before == State::kZero || before == State::kInteger)) state_ = State::kPoint;
  if ((byte == 'e' || byte == 'E') && before != State::kPoint) state_ = State::kExponent;
  return state_ != before;
}

JsonScanner::Event JsonScanner::EndValue() {
  state_ = open_.empty() ? State::kDone : State::kAfterValue;
  return Event::kValueEnd;
}

}  // namespace talon
