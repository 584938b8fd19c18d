#include "spec/specpv/fallback.h"

#include "base/log.h"

namespace talon {

const char* SpecPvFallbackName(SpecPvFallbackReason reason) {
  switch (reason) {
    case SpecPvFallbackReason::kBlockSize:
      return "block_size";
    case SpecPvFallbackReason::kBufferTooSmall:
      return "buffer_too_small";
    case SpecPvFallbackReason::kSelector:
      return "selector";
    case SpecPvFallbackReason::kNoMemory:
      return "no_memory";
    case SpecPvFallbackReason::kNanScores:
      return "nan_scores";
    case SpecPvFallbackReason::kNarrowView:
      return "narrow_view";
    case SpecPvFallbackReason::kInvariant:
      return "invariant";
  }
  return "unknown";
}

void ReportSpecPvFallback(const SpecPvFallback& fallback, Metrics* metrics) {
  const char* reason = SpecPvFallbackName(fallback.reason);
  LogFallback("specpv", fmt::format("{}: {}", reason, fallback.detail));
  metrics->Add(Counter::kSpecPvFallback, 1, reason);
}

}  // namespace talon
