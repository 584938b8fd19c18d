// A line on the terminal that is rewritten as work goes on and erased at the end. Shows nothing
// where standard error is not a terminal.
#ifndef TALON_SETUP_PROGRESS_H_
#define TALON_SETUP_PROGRESS_H_

#include <string>

namespace talon {

class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  // Shows the end of a text that is too long: a wrapped line could not be rewritten.
  void Show(const std::string& text) const;

 private:
  bool shown_;
};

}  // namespace talon

#endif  // TALON_SETUP_PROGRESS_H_
