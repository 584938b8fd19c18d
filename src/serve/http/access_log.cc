#include "serve/http/access_log.h"

#include <vector>

#include "base/log.h"

namespace talon {

void LogAccess(const AccessRecord& record) {
  std::vector<LogField> fields = {{"id", record.id},
                                  {"client", record.client},
                                  {"method", record.method},
                                  {"path", record.path},
                                  {"status", record.status}};
  if (record.prompt_tokens >= 0) {
    fields.emplace_back("prompt_tokens", record.prompt_tokens);
    fields.emplace_back("tokens", record.tokens);
  }
  if (record.first_token_seconds >= 0) {
    fields.emplace_back("first_token_seconds", record.first_token_seconds);
  }
  fields.emplace_back("seconds", record.age.Seconds());
  const bool probe =
      record.path == "/health" || record.path == "/metrics" || record.path == "/talon/status";
  LogEvent(probe && record.status == 200 ? LogLevel::kDebug : LogLevel::kInfo, "access", fields);
}

}  // namespace talon
