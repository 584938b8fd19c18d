// What partial verification (SpecPV) keeps of a request between steps.
#ifndef TALON_ENGINE_STEP_PARTIAL_STATE_H_
#define TALON_ENGINE_STEP_PARTIAL_STATE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/output_text.h"
#include "spec/specpv/config.h"
#include "spec/specpv/gate.h"
#include "spec/specpv/governor.h"
#include "spec/specpv/payoff.h"
#include "spec/specpv/selection.h"

namespace talon {

// What a request's tokens took since it last had nothing provisional.
struct RoundSum {
  double seconds = 0;    // by the verify curve
  int tokens = 0;        // emitted
  bool partial = false;  // by partial passes
};

struct PartialState {
  bool admitted = false;                   // the fields below are filled
  SpecPvConfig config;                     // the engine's, with the request's overrides
  std::optional<DriftGovernor> governor;   // none: the request is verified in full
  std::optional<PartialLists> lists;       // chosen by the last full pass
  std::vector<int32_t> copied_blocks;      // the lists' blocks in KvCache::views(); empty: no copy
  int partial_steps = 0;                   // since the last full pass
  int max_steps = GateState::kNoInterval;  // the most partial steps of this round
  // Exact mode, decided when nothing is provisional.
  bool pays = true;  // partial steps are worth their cost at this length
  int max_trunk = GateState::kNoInterval;
  PartialPayoff payoff;
  RoundSum round;
  bool finish_pending = false;     // exact mode: a provisional token would end the request
  std::optional<OutputText> text;  // exact mode: the request's text with provisional tokens

  bool exact() const { return config.mode == SpecPvMode::kExact; }
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_PARTIAL_STATE_H_
