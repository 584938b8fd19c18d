// Stands in for the workers' metrics in builds without the HTTP server's libraries.
#include "serve/http/metrics_server.h"

namespace talon {

Result<std::unique_ptr<MetricsServer>> StartMetricsServer(const std::string&, int, const Metrics*) {
  return Unimplemented("metrics_port: this build has no HTTP server");
}

}  // namespace talon
