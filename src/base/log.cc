#include "base/log.h"

#include <fmt/chrono.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include "base/json.h"

namespace talon {
namespace {

std::atomic<LogFormat> log_format = LogFormat::kText;
std::atomic<bool> log_times = false;

constexpr std::array<std::pair<std::string_view, LogLevel>, 5> kLevelNames = {{
    {"debug", LogLevel::kDebug},
    {"info", LogLevel::kInfo},
    {"warning", LogLevel::kWarning},
    {"error", LogLevel::kError},
    {"off", LogLevel::kOff},
}};
constexpr std::array<std::pair<std::string_view, LogFormat>, 2> kFormatNames = {{
    {"text", LogFormat::kText},
    {"json", LogFormat::kJson},
}};

template <typename Names, typename Value>
bool FindByName(const Names& names, std::string_view name, Value* value) {
  const auto at = std::find_if(names.begin(), names.end(),
                               [name](const auto& entry) { return entry.first == name; });
  if (at == names.end()) return false;
  *value = at->second;
  return true;
}

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

std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson ToJson(std::span<const LogField> fields) {
  OrderedJson json = OrderedJson::object();
  for (const LogField& field : fields) {
    std::visit([&](const auto& value) { json[std::string(field.key)] = value; }, field.value);
  }
  return json;
}

std::string FormatJsonLine(const LogRecord& record) {
  OrderedJson line = {{"time", FormatLogTime(record.time)},
                      {"level", kLevelNames[static_cast<size_t>(record.level)].first},
                      {"message", record.message}};
  if (!record.fields.empty()) line["fields"] = ToJson(record.fields);
  return Dump(line);
}

// The message as one line, control characters escaped so that it cannot change the terminal.
std::string EscapeControls(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      out += c == '\n' ? "\\n" : fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

std::string FormatTextValue(const LogField& field) {
  if (!std::holds_alternative<std::string_view>(field.value)) {
    return std::visit([](const auto& value) { return fmt::format("{}", value); }, field.value);
  }
  const auto text = std::get<std::string_view>(field.value);
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
  });
  return plain ? std::string(text) : EscapeControls(Dump(text));
}

std::string FormatTextLine(const LogRecord& record) {
  std::string line = EscapeControls(record.message);
  for (const LogField& field : record.fields) {
    line += fmt::format(" {}={}", field.key, FormatTextValue(field));
  }
  return line;
}

void Write(LogLevel level, std::string_view message, std::span<const LogField> fields) {
  if (!Logger().should_log(ToSpdlog(level))) return;
  const LogRecord record{.time = std::chrono::system_clock::now(),
                         .level = level,
                         .message = message,
                         .fields = fields};
  const LogFormat format = log_format;
  const bool timed = format == LogFormat::kText && log_times;
  Logger().log(ToSpdlog(level), "{}{}", timed ? FormatLogTime(record.time) + " " : "",
               FormatLogLine(format, record));
}

}  // namespace

void SetLogLevel(LogLevel level) { Logger().set_level(ToSpdlog(level)); }

bool ParseLogLevel(std::string_view name, LogLevel* level) {
  return FindByName(kLevelNames, name, level);
}

void SetLogFormat(LogFormat format) {
  log_format = format;
  Logger().set_pattern(format == LogFormat::kJson ? "%v" : "%^%v%$");  // colours are for text
}

bool ParseLogFormat(std::string_view name, LogFormat* format) {
  return FindByName(kFormatNames, name, format);
}

void SetLogTimes(bool times) { log_times = times; }

void LogMessage(LogLevel level, const std::string& message) { Write(level, message, {}); }

void LogFallback(std::string_view feature, std::string_view detail) {
  LogMessage(LogLevel::kWarning, fmt::format("[talon][{}][fallback] {}", feature, detail));
}

void LogEvent(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  Write(level, event, {fields.begin(), fields.size()});
}

void LogEvent(LogLevel level, std::string_view event, std::span<const LogField> fields) {
  Write(level, event, fields);
}

std::string FieldsAsJson(std::span<const LogField> fields) { return Dump(ToJson(fields)); }

std::string FormatLogTime(std::chrono::system_clock::time_point time) {
  using std::chrono::milliseconds;
  const auto since_epoch = std::chrono::floor<milliseconds>(time.time_since_epoch());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(static_cast<std::time_t>(seconds.count())),
                     (since_epoch - seconds).count());
}

std::string FormatLogLine(LogFormat format, const LogRecord& record) {
  return format == LogFormat::kJson ? FormatJsonLine(record) : FormatTextLine(record);
}

}  // namespace talon
