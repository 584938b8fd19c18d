// A line on the terminal that is rewritten as work goes on, and wiped at its end. Where standard
// error is no terminal nothing is shown.
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

  // Of a long text the end is shown: a wrapped line could not be rewritten.
  void Show(const std::string& text) const;

 private:
  bool shown_;
};

}  // namespace talon

#endif  // TALON_SETUP_PROGRESS_H_
