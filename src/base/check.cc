#include "base/check.h"

#include "base/contain.h"

namespace talon {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  throw BrokenInvariant(fmt::format("broken invariant at {}:{}: {}{}{}", file, line, condition,
                                    message.empty() ? "" : ": ", message));
}

}  // namespace talon
