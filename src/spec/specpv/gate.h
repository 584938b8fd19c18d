// Whether a sequence's next step is verified over a partial view or in full, and why: a pure
// function of its state, evaluated at Plan.
#ifndef TALON_SPEC_SPECPV_GATE_H_
#define TALON_SPEC_SPECPV_GATE_H_

#include <limits>
#include <optional>

#include "spec/specpv/config.h"

namespace talon {

// Why a sequence that could be verified partially has a full pass (specpv_refresh_total).
enum class RefreshReason {
  kInit,      // it became long enough and no blocks are chosen yet
  kCapacity,  // tail and tree do not fit in the buffer
  kInterval,  // enough partial steps since the last full pass
  kFinish,    // exact mode: a provisional token ends the request, or the client wants it all now
  kDrift,     // the governor wants full passes more often
  kRequest,   // staging fell back, or partial steps ended with provisional tokens
};

const char* RefreshReasonName(RefreshReason reason);  // "capacity"

// A sequence before a step.
struct GateState {
  static constexpr int kNoInterval = std::numeric_limits<int>::max();

  bool supported = true;  // SpecPV works for the engine, the request has a budget, no fallback
  bool pays = true;       // partial steps and their replay are faster than full steps
  bool selected = false;  // blocks were chosen by the last full pass
  BlockBudget budget;
  int committed_len = 0;        // C
  int provisional_tokens = 0;   // P
  int partial_steps = 0;        // since the last full pass
  int interval = kNoInterval;   // the governor's, if there is one
  int max_trunk = kNoInterval;  // provisional tokens after which a full pass is due (exact mode)
  int tree_nodes = 1;           // T, root included
  bool finish_pending = false;
  bool settle_requested = false;  // the step must not be staged, so it cannot be partial
};

struct GateDecision {
  bool partial = false;
  // Set for a full pass that SpecPV asked for; it counts as a refresh.
  std::optional<RefreshReason> reason;
  // The full pass must score blocks, and choose some after its Commit.
  bool select = false;
};

// True if the prefix is past the threshold and a partial view would leave out at least one block.
bool LongEnoughForPartial(const SpecPvConfig& config, const BlockBudget& budget, int committed_len);

// Nodes that a tree may have so that tail and tree fit in a full pass's staging, which has
// buffer_tokens + max_depth + 1 rows. Trees of equal size always fit; where sizes vary, a tail that
// small trees filled can leave less room than the largest tree wants. At least max_depth + 1.
int TreeRoom(const SpecPvConfig& config, int provisional_tokens, int max_depth);

// Where several triggers hold, the reason is the first of them in the order of RefreshReason.
GateDecision DecideVerification(const SpecPvConfig& config, const GateState& state);

}  // namespace talon

#endif  // TALON_SPEC_SPECPV_GATE_H_
