#include "observe/metrics.h"

namespace talon {

const char* CounterName(Counter counter) {
  switch (counter) {
    case Counter::kKvBytesWritten:
      return "kv_bytes_written_total";
    case Counter::kKvRewoundTokens:
      return "kv_rewound_tokens_total";
    case Counter::kNworBytesSaved:
      return "nwor_bytes_saved_total";
    case Counter::kNworFallback:
      return "nwor_fallback_total";
    case Counter::kNworStageOperations:
      return "nwor_stage_operations_total";
    case Counter::kNworStagedTokens:
      return "nwor_staged_tokens_total";
    case Counter::kNworTokensCommitted:
      return "nwor_tokens_committed_total";
    case Counter::kNworTokensRejected:
      return "nwor_tokens_rejected_total";
    case Counter::kScvChunks:
      return "scv_chunks_total";
    case Counter::kSpecAcceptedAtDepth:
      return "spec_accepted_at_depth_total";
    case Counter::kSpecAcceptedTokens:
      return "spec_accepted_tokens_total";
    case Counter::kSpecDraftTokens:
      return "spec_draft_tokens_total";
    case Counter::kSpecFallback:
      return "spec_fallback_total";
    case Counter::kSpecVerifyPasses:
      return "spec_verify_passes_total";
  }
  return "unknown";
}

void Metrics::Add(Counter counter, int64_t amount, std::string_view label) {
  const std::lock_guard<std::mutex> lock(mutex_);
  values_[{counter, std::string(label)}] += amount;
}

int64_t Metrics::Get(Counter counter, std::string_view label) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = values_.find({counter, std::string(label)});
  return at == values_.end() ? 0 : at->second;
}

int64_t Metrics::Total(Counter counter) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t total = 0;
  for (auto at = values_.lower_bound({counter, ""});
       at != values_.end() && at->first.first == counter; ++at) {
    total += at->second;
  }
  return total;
}

std::map<std::pair<std::string, std::string>, int64_t> Metrics::Snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<std::pair<std::string, std::string>, int64_t> out;
  for (const auto& [key, value] : values_) out[{CounterName(key.first), key.second}] = value;
  return out;
}

void Metrics::Reset() {
  const std::lock_guard<std::mutex> lock(mutex_);
  values_.clear();
}

}  // namespace talon
