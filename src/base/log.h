// Logging to standard error. Fallbacks have one form: "[talon][<feature>][fallback] reason".
// Thread-safe.
#ifndef TALON_BASE_LOG_H_
#define TALON_BASE_LOG_H_

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace talon {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Messages below `level` are dropped. Default: kWarning.
void SetLogLevel(LogLevel level);
// "debug", "info", "warning", "error", "off"; false if unknown.
bool ParseLogLevel(std::string_view name, LogLevel* level);

void LogMessage(LogLevel level, const std::string& message);

template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogMessage(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogMessage(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

// "[talon][feature][fallback] detail", at warning level.
void LogFallback(std::string_view feature, std::string_view detail);

}  // namespace talon

#endif  // TALON_BASE_LOG_H_
