#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <utility>

namespace talon {
namespace {

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = spdlog::stderr_color_mt("talon");
    made->set_pattern("%^%v%$");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

}  // namespace

void SetLogLevel(LogLevel level) { Logger().set_level(ToSpdlog(level)); }

bool ParseLogLevel(std::string_view name, LogLevel* level) {
  static constexpr std::array<std::pair<std::string_view, LogLevel>, 5> kNames = {{
      {"debug", LogLevel::kDebug},
      {"info", LogLevel::kInfo},
      {"warning", LogLevel::kWarning},
      {"error", LogLevel::kError},
      {"off", LogLevel::kOff},
  }};
  for (const auto& [known, value] : kNames) {
    if (known == name) {
      *level = value;
      return true;
    }
  }
  return false;
}

void LogMessage(LogLevel level, const std::string& message) {
  Logger().log(ToSpdlog(level), "{}", message);
}

void LogFallback(std::string_view feature, std::string_view detail) {
  LogMessage(LogLevel::kWarning, fmt::format("[talon][{}][fallback] {}", feature, detail));
}

}  // namespace talon
