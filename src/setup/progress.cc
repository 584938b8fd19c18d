#include "setup/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

namespace talon {
namespace {

constexpr size_t kWidth = 76;

}  // namespace

StatusLine::StatusLine() : shown_(isatty(STDERR_FILENO) != 0) {}

StatusLine::~StatusLine() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
}

void StatusLine::Show(const std::string& text) const {
  if (!shown_) return;
  const std::string line =
      text.size() <= kWidth ? text : fmt::format("...{}", text.substr(text.size() - kWidth + 3));
  std::fprintf(stderr, "\r%s\033[K", line.c_str());
}

}  // namespace talon
