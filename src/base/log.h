// Logging to standard error, one line per message: as text, or as one JSON object.
//
// Text:  request finished id=7 reason=stop tokens=64
// JSON:  {"time":"2025-01-31T12:00:00.250Z","level":"info","message":"request finished",
//         "fields":{"id":7,"reason":"stop","tokens":64}}      (on one line)
// Any bytes are safe to log: control characters are escaped, and JSON lines are valid UTF-8.
// Fallbacks have one form: "[talon][<feature>][fallback] reason". Thread-safe.
#ifndef TALON_BASE_LOG_H_
#define TALON_BASE_LOG_H_

#include <fmt/core.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace talon {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };
enum class LogFormat { kText, kJson };

// Messages below `level` are dropped. Default: kWarning.
void SetLogLevel(LogLevel level);
// "debug", "info", "warning", "error", "off"; false if unknown.
bool ParseLogLevel(std::string_view name, LogLevel* level);

// Default: kText.
void SetLogFormat(LogFormat format);
// "text", "json"; false if unknown.
bool ParseLogFormat(std::string_view name, LogFormat* format);

void LogMessage(LogLevel level, const std::string& message);

template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogMessage(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogMessage(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogMessage(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

// "[talon][feature][fallback] detail", at warning level.
void LogFallback(std::string_view feature, std::string_view detail);

// A named value: a bool, a number or a string. Strings are not owned.
struct LogField {
  template <typename T>
  LogField(std::string_view name, const T& given) : key(name), value(ValueOf(given)) {}

  std::string_view key;
  std::variant<bool, int64_t, uint64_t, double, std::string_view> value;

 private:
  template <typename T>
  static decltype(value) ValueOf(const T& given) {
    if constexpr (std::same_as<T, bool>) {
      return given;
    } else if constexpr (std::signed_integral<T>) {
      return static_cast<int64_t>(given);
    } else if constexpr (std::unsigned_integral<T>) {
      return static_cast<uint64_t>(given);
    } else if constexpr (std::floating_point<T>) {
      return static_cast<double>(given);
    } else {
      return std::string_view(given);
    }
  }
};

// LogEvent(LogLevel::kInfo, "request finished", {{"id", id}, {"reason", "stop"}});
void LogEvent(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);

// {"id":7,"reason":"stop"}, on one line. Invalid UTF-8 becomes U+FFFD, a number without a value
// null.
std::string FieldsAsJson(std::span<const LogField> fields);

struct LogRecord {
  std::chrono::system_clock::time_point time;
  LogLevel level = LogLevel::kInfo;
  std::string_view message;
  std::span<const LogField> fields;
};
// The line of a record, without its end.
std::string FormatLogLine(LogFormat format, const LogRecord& record);

}  // namespace talon

#endif  // TALON_BASE_LOG_H_
