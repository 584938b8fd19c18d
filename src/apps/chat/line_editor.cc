// The line editor, by libedit.
#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "apps/chat/line_input.h"

namespace talon {
namespace {

constexpr int kHistoryLines = 1000;

class LineEditor : public LineInput {
 public:
  LineEditor() : editor_(el_init("talon", stdin, stdout, stderr)), history_(history_init()) {
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &LineEditor::Prompt);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    // Keys while a line is edited, which no moment can lose.
    el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor_, EL_ADDFN, "talon-cancel", "forget this line", &LineEditor::Cancel);
    el_set(editor_, EL_BIND, "^C", "talon-cancel", nullptr);
    el_set(editor_, EL_ADDFN, "talon-suspend", "stop until fg", &LineEditor::Suspend);
    el_set(editor_, EL_BIND, "^Z", "talon-suspend", nullptr);
    el_source(editor_, nullptr);  // ~/.editrc
  }
  ~LineEditor() override {
    history_end(history_);
    el_end(editor_);
  }
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  std::optional<std::string> Read(const std::string& prompt) override {
    prompt_ = prompt;
    int count = 0;
    cancelled_ = false;
    // Before the prompt, not with the first key as el_gets() would: until then Ctrl-C is a signal.
    el_set(editor_, EL_PREP_TERM, 1);
    const char* line = el_gets(editor_, &count);
    if (line == nullptr || count <= 0) {
      std::fputc('\n', stdout);
      return cancelled_ ? std::optional<std::string>("") : std::nullopt;
    }
    std::string text(line, static_cast<size_t>(count));
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    return text;
  }

  void Remember(const std::string& text) override {
    HistEvent event;
    history(history_, &event, H_ENTER, text.c_str());
  }

 private:
  static char* Prompt(EditLine* editor) {
    LineEditor* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self->prompt_.data();
  }

  static unsigned char Suspend(EditLine* editor, int /*key*/) {
    el_set(editor, EL_PREP_TERM, 0);
    std::raise(SIGTSTP);
    el_set(editor, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }
  static unsigned char Cancel(EditLine* editor, int /*key*/) {
    LineEditor* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    self->cancelled_ = true;
    return CC_EOF;
  }

  EditLine* editor_;
  History* history_;
  std::string prompt_;
  bool cancelled_ = false;  // the line, by Ctrl-C
};

}  // namespace

std::unique_ptr<LineInput> NewTerminalInput() {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return NewPlainInput();
  // The editor reads characters by the locale; text is UTF-8 whatever that says.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  return std::make_unique<LineEditor>();
}

}  // namespace talon
