#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "apps/chat/line_input.h"

namespace talon {
namespace {

class PlainInput : public LineInput {
 public:
  ~PlainInput() override { std::free(line_); }

  std::optional<std::string> Read(const std::string& prompt) override {
    if (isatty(STDIN_FILENO) != 0) {
      std::fputs(prompt.c_str(), stdout);
      std::fflush(stdout);
    }
    errno = 0;
    const ssize_t length = getline(&line_, &capacity_, stdin);
    if (length < 0) {
      const bool interrupted = errno == EINTR;
      std::clearerr(stdin);
      return interrupted ? std::optional<std::string>("") : std::nullopt;
    }
    std::string text(line_, static_cast<size_t>(length));
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    return text;
  }

  void Remember(const std::string&) override {}

 private:
  char* line_ = nullptr;  // getline()'s
  size_t capacity_ = 0;
};

}  // namespace

std::unique_ptr<LineInput> NewPlainInput() { return std::make_unique<PlainInput>(); }

}  // namespace talon
