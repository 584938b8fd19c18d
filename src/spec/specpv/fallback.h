// Why partial verification is not used where it was asked for.
#ifndef TALON_SPEC_SPECPV_FALLBACK_H_
#define TALON_SPEC_SPECPV_FALLBACK_H_

#include <string>

#include "observe/metrics.h"

namespace talon {

enum class SpecPvFallbackReason {
  // The engine, at start.
  kBlockSize,
  kBufferTooSmall,
  kSelector,  // the device cannot score blocks so
  kNoMemory,  // for tails, key summaries or scores
  // One sequence, which is verified in full until it ends.
  kNanScores,
  kNarrowView,  // than the window of the model's sliding layers
  kInvariant,   // something is not as it must be: a tail, or what was ranked
};

const char* SpecPvFallbackName(SpecPvFallbackReason reason);  // "buffer_too_small"

struct SpecPvFallback {
  SpecPvFallbackReason reason;
  std::string detail;  // "buffer 64 < tree 60 + depth 8 + 1"
};

// One line "[talon][specpv][fallback] reason: detail", and the counter.
void ReportSpecPvFallback(const SpecPvFallback& fallback, Metrics* metrics);

}  // namespace talon

#endif  // TALON_SPEC_SPECPV_FALLBACK_H_
