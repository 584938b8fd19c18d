#include "base/log.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/json.h"

namespace talon {
namespace {

// 2025-01-31T12:00:00.250Z
constexpr std::chrono::system_clock::time_point kTime{std::chrono::milliseconds(1738324800250)};

std::string Line(LogFormat format, std::string_view message,
                 const std::vector<LogField>& fields = {}) {
  return FormatLogLine(
      format, {.time = kTime, .level = LogLevel::kWarning, .message = message, .fields = fields});
}

// Parses a line of the JSON log.
Json Parsed(std::string_view message, const std::vector<LogField>& fields = {}) {
  const std::string line = Line(LogFormat::kJson, message, fields);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Result<Json> json = ParseJson(line, "line");
  EXPECT_TRUE(json.ok()) << line;
  return json.ok() ? *json : Json::object();
}

// Restores the log settings.
class LogSettings {
 public:
  ~LogSettings() {
    SetLogLevel(LogLevel::kWarning);
    SetLogFormat(LogFormat::kText);
    SetLogTimes(false);
  }
};

TEST(LogTest, TextIsTheMessageAndItsFields) {
  EXPECT_EQ(Line(LogFormat::kText, "plain"), "plain");
  EXPECT_EQ(Line(LogFormat::kText, "request finished",
                 {{"id", 7}, {"reason", "stop"}, {"tau", 2.5}, {"ok", true}}),
            "request finished id=7 reason=stop tau=2.5 ok=true");
}

TEST(LogTest, TextQuotesWhatIsNotOneWord) {
  EXPECT_EQ(Line(LogFormat::kText, "e", {{"a", ""}, {"b", "two words"}, {"c", "x=\"y\""}}),
            R"(e a="" b="two words" c="x=\"y\"")");
}

TEST(LogTest, TextStaysOnOneLine) {
  EXPECT_EQ(Line(LogFormat::kText, "a\nb\x1b[2J"), "a\\nb\\x1b[2J");
  EXPECT_EQ(Line(LogFormat::kText, "e", {{"a", "x\ny\x7f"}}), "e a=\"x\\ny\\x7f\"");
}

TEST(LogTest, JsonHasTimeLevelMessageAndFields) {
  EXPECT_EQ(Line(LogFormat::kJson, "request finished", {{"id", 7}, {"reason", "stop"}}),
            R"({"time":"2025-01-31T12:00:00.250Z","level":"warning",)"
            R"("message":"request finished","fields":{"id":7,"reason":"stop"}})");
  EXPECT_FALSE(Parsed("no fields").contains("fields"));
}

TEST(LogTest, JsonKeepsTypes) {
  const std::string owned = "text";
  const Json fields = Parsed("e", {{"bool", false},
                                   {"negative", -3},
                                   {"seed", std::numeric_limits<uint64_t>::max()},
                                   {"double", 0.1},
                                   {"string", owned},
                                   {"nan", std::nan("")}})["fields"];
  EXPECT_EQ(fields["bool"], false);
  EXPECT_EQ(fields["negative"], -3);
  EXPECT_EQ(fields["seed"], std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(fields["double"], 0.1);
  EXPECT_EQ(fields["string"], "text");
  EXPECT_TRUE(fields["nan"].is_null());
}

TEST(LogTest, JsonIsValidForAnyBytes) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const Json line = Parsed(all, {{"bytes", std::string_view(all)}});
  const auto message = line["message"].get<std::string>();
  EXPECT_EQ(message.substr(0, 128), all.substr(0, 128));
  EXPECT_NE(message.find("\xef\xbf\xbd"), std::string::npos);  // U+FFFD
  EXPECT_EQ(line["fields"]["bytes"], message);
  EXPECT_EQ(Parsed("gr\xc3\xbc\xc3\x9f")["message"], "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(Parsed("\"\\\n\xff")["message"], "\"\\\n\xef\xbf\xbd");
}

TEST(LogTest, LevelAndFormatApplyToWhatIsWritten) {
  const LogSettings restored;
  testing::internal::CaptureStderr();
  LogEvent(LogLevel::kInfo, "dropped", {});
  SetLogLevel(LogLevel::kInfo);
  LogEvent(LogLevel::kInfo, "text", {{"n", 1}});
  SetLogFormat(LogFormat::kJson);
  LogFallback("tree", "no \"drafts\"");
  const std::string written = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(written.starts_with("text n=1\n{")) << written;
  const Result<Json> line = ParseJson(written.substr(written.find('\n') + 1), "line");
  ASSERT_TRUE(line.ok()) << written;
  EXPECT_EQ((*line)["message"], "[talon][tree][fallback] no \"drafts\"");
  EXPECT_EQ((*line)["level"], "warning");
}

TEST(LogTest, TextHasATimeWhereAsked) {
  const LogSettings restored;
  EXPECT_EQ(FormatLogTime(kTime), "2025-01-31T12:00:00.250Z");
  SetLogTimes(true);
  testing::internal::CaptureStderr();
  LogWarning("text");
  SetLogFormat(LogFormat::kJson);
  LogWarning("json");
  const std::string written = testing::internal::GetCapturedStderr();
  const size_t end = FormatLogTime(kTime).size();
  EXPECT_EQ(written.substr(end - 1, 7), "Z text\n") << written;
  EXPECT_EQ(written[end + 6], '{') << written;  // its time is a member
}

TEST(LogTest, NamesOfLevelsAndFormats) {
  LogLevel level = LogLevel::kOff;
  EXPECT_TRUE(ParseLogLevel("debug", &level));
  EXPECT_EQ(level, LogLevel::kDebug);
  EXPECT_FALSE(ParseLogLevel("loud", &level));
  EXPECT_EQ(level, LogLevel::kDebug);
  LogFormat format = LogFormat::kText;
  EXPECT_TRUE(ParseLogFormat("json", &format));
  EXPECT_EQ(format, LogFormat::kJson);
  EXPECT_FALSE(ParseLogFormat("JSON", &format));
}

}  // namespace
}  // namespace talon
