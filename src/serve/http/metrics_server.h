// GET /metrics and nothing else, for processes that serve no HTTP otherwise.
#ifndef TALON_SERVE_HTTP_METRICS_SERVER_H_
#define TALON_SERVE_HTTP_METRICS_SERVER_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "observe/metrics.h"

namespace talon {

// Serves until it is destroyed, on threads of its own.
class MetricsServer {
 public:
  virtual ~MetricsServer() = default;
  virtual int port() const = 0;
};

// Port 0: any that is free. `metrics` must outlive the server.
Result<std::unique_ptr<MetricsServer>> StartMetricsServer(const std::string& host, int port,
                                                          const Metrics* metrics);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_METRICS_SERVER_H_
