// Broken invariants: a program error, never bad input. Throws BrokenInvariant, which names the
// place and fails the step under way (contain.h). `TALON_DCHECK` is compiled out in release builds.
#ifndef TALON_BASE_CHECK_H_
#define TALON_BASE_CHECK_H_

#include <fmt/core.h>

#include <string>

namespace talon {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

}  // namespace talon

// TALON_CHECK(a == b, "a {} b {}", a, b); the message is optional.
#define TALON_CHECK(condition, ...)                                                             \
  do {                                                                                          \
    if (__builtin_expect(!(condition), 0))                                                      \
      ::talon::CheckFailed(__FILE__, __LINE__, #condition, ::talon::CheckMessage(__VA_ARGS__)); \
  } while (false)

#ifdef NDEBUG
#define TALON_DCHECK(condition, ...) \
  do {                               \
    if (false) (void)(condition);    \
  } while (false)
#else
#define TALON_DCHECK(condition, ...) TALON_CHECK(condition, ##__VA_ARGS__)
#endif

namespace talon {

inline std::string CheckMessage() { return {}; }

template <typename... Args>
std::string CheckMessage(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace talon

#endif  // TALON_BASE_CHECK_H_
