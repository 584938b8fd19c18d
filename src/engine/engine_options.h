// How an engine is set.
#ifndef TALON_ENGINE_ENGINE_OPTIONS_H_
#define TALON_ENGINE_ENGINE_OPTIONS_H_

#include <algorithm>

#include "base/math.h"
#include "compute/dtype.h"
#include "engine/step/options.h"
#include "spec/draft_cache.h"

namespace talon {

struct EngineOptions {
  DType kv_dtype = DType::kBF16;
  int block_size = 16;
  int kv_tokens = 0;        // size of the block pool in tokens; 0 = as much as can be used
  int max_length = 0;       // tokens of a sequence; 0 = the model's
  int max_sequences = 8;    // sequences that run at once
  int prefill_chunk = 512;  // prompt tokens of one step
  bool kv_offload = false;  // K and V in host memory, partial views also on the device (CUDA)
  bool kv_audit = false;
  bool prefix_cache = false;  // keep full blocks for prompts to come, as long as there is room
  StepOptions step;           // max_length is filled in

  // A drafter's cache for the same sequences; `model_context` limits their length.
  DraftCacheShape DraftCache(int model_context) const {
    return {.max_length = max_length > 0 ? std::min(max_length, model_context) : model_context,
            .max_sequences = max_sequences,
            .kv_tokens = kv_tokens,
            .block_size = block_size,
            .kv_dtype = KvValueType(kv_dtype),  // a small part of the memory, so not quantised
            .prefix_index = prefix_cache};
  }
  // Rows of a sequence's tree. A full pass after partial ones also has the provisional tokens.
  int TreeRowsPerSequence() const {
    const SpecPvConfig& specpv = step.specpv;
    const int settling = specpv.enabled ? specpv.buffer_tokens + step.budget.max_depth + 1 : 0;
    return std::max(step.budget.max_nodes, settling);
  }
  // Tokens of blocks that a sequence of `length` tokens needs: without no-write-on-reject its tree
  // lies in blocks, too.
  int PoolTokens(int length) const { return length + (step.nwor ? 0 : TreeRowsPerSequence()); }
  int BlocksOf(int tokens) const { return CeilDiv(tokens, block_size); }
  // What the target must be loaded with (LoadOptions).
  int MaxTreeRows() const { return max_sequences * TreeRowsPerSequence(); }
  int MaxRows() const { return prefill_chunk + MaxTreeRows(); }
  // Prompt rows whose outputs are read come in chunks of this many at least.
  static constexpr int kMinOutputRows = 64;
  int MaxOutputRows() const {
    return std::max(MaxTreeRows(), std::min(prefill_chunk, kMinOutputRows));
  }
};

}  // namespace talon

#endif  // TALON_ENGINE_ENGINE_OPTIONS_H_
