// The metrics in Prometheus' text format, as GET /metrics answers.
#ifndef TALON_SERVE_HTTP_PROMETHEUS_TEXT_H_
#define TALON_SERVE_HTTP_PROMETHEUS_TEXT_H_

#include <string>

#include "observe/metrics.h"

namespace talon {

inline constexpr char kPrometheusContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Every metric with its help and type, sorted, names with the prefix "talon_". Of one moment; safe
// from any thread.
std::string PrometheusText(const Metrics& metrics);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_PROMETHEUS_TEXT_H_
