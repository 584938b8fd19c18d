// Streaming clients that put a server under load, and what they measure.
#ifndef TALON_SERVE_HTTP_LOAD_CLIENT_H_
#define TALON_SERVE_HTTP_LOAD_CLIENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

struct LoadPlan {
  std::string url;  // http://HOST:PORT
  std::string api_key;
  std::vector<std::string> prompts;
  int clients = 1;
  double seconds = 10;  // no request is begun after this
  int min_tokens = 16;  // length of an answer, drawn between the two
  int max_tokens = 96;
  double disconnects = 0;  // share of requests that the client cancels
  uint64_t seed = 1;
};

struct LoadReport {
  int64_t finished = 0;
  int64_t left = 0;                         // cancelled by the client, as planned
  std::map<std::string, int64_t> errors;    // by message
  std::vector<double> first_token_seconds;  // ascending
  std::vector<double> answer_seconds;       // times of finished requests, ascending
  double seconds = 0;                       // until the last client finished
  double tokens = 0;                        // tokens that the server has generated meanwhile

  int64_t num_errors() const;
  double TokensPerSecond() const { return seconds > 0 ? tokens / seconds : 0; }
};

// The value at this share (0.5 = the median) of ascending values; 0 of none.
double Percentile(const std::vector<double>& ascending, double share);

// Runs all clients, each with one connection and one request at a time.
Result<LoadReport> RunLoad(const LoadPlan& plan);

// GET /talon/status.
Result<Json> ReadStatus(const LoadPlan& plan);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_LOAD_CLIENT_H_
