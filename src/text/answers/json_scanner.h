// Follows one JSON value, byte by byte: whether the text can still become one, and where it ends.
#ifndef TALON_TEXT_ANSWERS_JSON_SCANNER_H_
#define TALON_TEXT_ANSWERS_JSON_SCANNER_H_

#include <cstdint>
#include <string>

namespace talon {

// Bytes of strings are not checked to be UTF-8. A number that stands alone has no end. Copyable.
class JsonScanner {
 public:
  static constexpr size_t kDeepest = 256;

  // What a byte did.
  enum class Event : uint8_t {
    kNone,
    kKeyEnd,      // the last byte of a key, its quote
    kValueBegin,  // the first byte of a value
    kValueEnd,    // the last byte of a value other than a number
    kComma,       // between two members or items
    kError,       // no JSON begins like this
  };
  Event Push(char byte);

  // Objects and arrays that are open.
  size_t depth() const { return open_.size(); }
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State : uint8_t {
    kValue,       // a value must come
    kFirstItem,   // a value or ]
    kFirstKey,    // a key or }
    kKey,         // a key must come
    kColon,       //
    kAfterValue,  // a comma, or the end of what is open
    kString,      //
    kEscape,      // after a backslash
    kHex,         // digits of \u; `left_` more
    kWord,        // true, false or null; `word_` is left
    kMinus,       // digits must come
    kZero,        // . e or the end
    kInteger,     // digits . e or the end
    kPoint,       // digits must come
    kFraction,    // digits, e or the end
    kExponent,    // a sign or digits must come
    kSign,        // digits must come
    kPower,       // digits or the end
    kDone,
  };

  Event BeginValue(char byte);
  Event BeginWord(const char* rest);
  Event InString(char byte);
  // In a number; false if the byte is not of it.
  bool InNumber(char byte);
  Event BetweenValues(char byte);
  Event EndValue();

  State state_ = State::kValue;
  bool key_ = false;  // the string under way is a key
  int left_ = 0;
  const char* word_ = "";
  std::string open_;  // '{' and '['
};

}  // namespace talon

#endif  // TALON_TEXT_ANSWERS_JSON_SCANNER_H_
