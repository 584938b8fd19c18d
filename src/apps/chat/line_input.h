// Lines that a user types, or that come from a pipe.
#ifndef TALON_APPS_CHAT_LINE_INPUT_H_
#define TALON_APPS_CHAT_LINE_INPUT_H_

#include <memory>
#include <optional>
#include <string>

namespace talon {

class LineInput {
 public:
  virtual ~LineInput() = default;
  // The next line without its end; none at the end of the input. Ctrl-C gives an empty line.
  virtual std::optional<std::string> Read(const std::string& prompt) = 0;
  // Keeps a text for the arrow keys, where there is a line editor.
  virtual void Remember(const std::string& text) = 0;
};

// Lines of standard input, without a prompt where it is not a terminal.
std::unique_ptr<LineInput> NewPlainInput();
// With a line editor, where the build has one and standard input is a terminal.
std::unique_ptr<LineInput> NewTerminalInput();

}  // namespace talon

#endif  // TALON_APPS_CHAT_LINE_INPUT_H_
