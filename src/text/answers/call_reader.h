// Reads one call of a tool, byte by byte: {"name": ..., "arguments": {...}}, or arguments alone.
#ifndef TALON_TEXT_ANSWERS_CALL_READER_H_
#define TALON_TEXT_ANSWERS_CALL_READER_H_

#include <span>
#include <string>
#include <utility>

#include "text/answers/json_scanner.h"

namespace talon {

class CallReader {
 public:
  enum class State { kMore, kDone, kFailed };

  // An object with the name of one of `tools`, and "arguments" or "parameters", an object.
  explicit CallReader(std::span<const std::string> tools) : tools_(tools) {}
  // The arguments of a call whose name was read before.
  explicit CallReader(std::string name) : named_(true), name_(std::move(name)) {}

  // kFailed: with this byte the text is not a call, and nothing more may be pushed.
  State Push(char byte);

  // The name, once it is known; else "".
  const std::string& name() const { return name_; }
  // JSON of the arguments that came since the last call of this.
  std::string TakeArguments() { return std::exchange(arguments_, {}); }

 private:
  State PushMember(char byte, JsonScanner::Event event);
  bool EndMember();
  bool IsArguments() const { return key_ == "arguments" || key_ == "parameters"; }

  std::span<const std::string> tools_;
  bool named_ = false;  // the object is the arguments
  std::string name_;
  std::string arguments_;
  JsonScanner scanner_;
  std::string key_;        // key of the call's member under way
  std::string text_;       // text of that key or value, as far as it came
  bool in_value_ = false;  // inside the value of a member
  bool has_arguments_ = false;
};

}  // namespace talon

#endif  // TALON_TEXT_ANSWERS_CALL_READER_H_
