// One log line for each request, refused ones included.
#ifndef TALON_SERVE_HTTP_ACCESS_LOG_H_
#define TALON_SERVE_HTTP_ACCESS_LOG_H_

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace talon {

struct AccessRecord {
  std::string id;      // as in the answer: "cmpl-..."
  std::string client;  // "127.0.0.1:50000"
  std::string method;
  std::string path;            // without a query
  int status = 0;              // status of the answer; 499: the client did not take all of it
  int64_t prompt_tokens = -1;  // -1: none were asked for
  int64_t tokens = 0;
  double first_token_seconds = -1;  // since the header had come; -1: there was none
  Stopwatch age;
};

// At level info; what probes and Prometheus ask for again and again at level debug.
void LogAccess(const AccessRecord& record);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_ACCESS_LOG_H_
