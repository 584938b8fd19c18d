// What a step is made of and how it is set.
#ifndef TALON_ENGINE_STEP_OPTIONS_H_
#define TALON_ENGINE_STEP_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <span>

#include "compute/backend.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "spec/drafter.h"
#include "spec/policy/policy.h"
#include "spec/specpv/config.h"
#include "spec/token_tree.h"
#include "spec/verify/accept.h"

namespace talon {

// Replaces the target's choices for the nodes of a tree, whose first `trunk` nodes below its root
// are provisional tokens that the pass judges again (SpecPV).
using EditChoices =
    std::function<void(const TokenTree& tree, int trunk, std::span<int32_t> choices)>;

struct StepOptions {
  DraftBudget budget;  // the largest tree of a sequence
  int max_length = 0;  // tokens of a sequence, prompt included
  bool nwor = true;    // no-write-on-reject; false: tree rows go to reserved slots and are moved
  int scv_chunk_size = 0;
  AcceptMode accept = AcceptMode::kMatch;
  AcceptThresholds thresholds;
  SpecPvConfig specpv;
  EditChoices edit_choices;  // for measurements of speed, greedy requests only; empty: none
};

struct StepParts {  // not owned
  Backend* backend = nullptr;
  Decoder* target = nullptr;
  KvCache* kv = nullptr;
  Drafter* drafter = nullptr;  // null: plain decoding only
  Policy* policy = nullptr;
  Metrics* metrics = nullptr;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_OPTIONS_H_
