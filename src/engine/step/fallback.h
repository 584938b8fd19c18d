// A sequence that takes a single-token step instead of what was planned: one log line, one count.
// Statuses of the KV cache begin with their reason: "no_blocks: kv: need ...".
#ifndef TALON_ENGINE_STEP_FALLBACK_H_
#define TALON_ENGINE_STEP_FALLBACK_H_

#include <string>

#include "base/ids.h"
#include "base/log.h"
#include "base/status.h"
#include "observe/metrics.h"

namespace talon {

struct StepFallback {
  Counter counter;
  const char* feature;
  std::string reason;
};

inline std::string ReasonOf(const Status& status) {
  return status.message().substr(0, status.message().find(':'));
}

inline void ReportStepFallback(const StepFallback& fallback, SequenceId sequence, const Status& why,
                               Metrics* metrics) {
  metrics->Add(fallback.counter, 1, fallback.reason);
  LogFallback(fallback.feature, fmt::format("{}; single-token step (sequence {}: {})",
                                            fallback.reason, sequence, why.message()));
}

}  // namespace talon

#endif  // TALON_ENGINE_STEP_FALLBACK_H_
