#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace talon {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "talon: broken invariant at %s:%d: %s%s%s\n", file, line, condition,
               message.empty() ? "" : ": ", message.c_str());
  std::abort();
}

}  // namespace talon
