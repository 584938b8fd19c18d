// The user's side of a chat: messages of one or several lines, commands, the conversation so far.
#ifndef TALON_APPS_CHAT_CHAT_SHELL_H_
#define TALON_APPS_CHAT_CHAT_SHELL_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "apps/chat/chat_model.h"
#include "apps/chat/line_input.h"
#include "base/json.h"

namespace talon {

class ChatShell {
 public:
  struct Parts {
    ChatModel* model = nullptr;
    LineInput* input = nullptr;
    std::function<void(std::string_view)> print;  // answers and what commands say
    std::function<bool()> cancelled;              // the user has asked to stop the answer
    bool interactive = false;                     // prompts and hints are shown
    bool colours = false;
  };
  explicit ChatShell(Parts parts, std::string system = "");

  // Until the end of the input or /quit. An error is that of the last answer that failed, where
  // it was not shown.
  Status Run();

 private:
  // A message or a command; none at the end of the input.
  std::optional<std::string> ReadMessage();
  void Ask(const std::string& message);
  // False: leave.
  bool RunCommand(const std::string& line);
  void SetSystem(const std::string& text);
  void Retry();
  void ShowStats();
  void Save(const std::string& path);
  OrderedJson Messages() const;
  void Say(const std::string& line) { parts_.print(line + "\n"); }

  Parts parts_;
  std::string system_;
  OrderedJson turns_ = OrderedJson::array();
  std::optional<ChatAnswerEnd> last_;
  Status failure_;
};

}  // namespace talon

#endif  // TALON_APPS_CHAT_CHAT_SHELL_H_
