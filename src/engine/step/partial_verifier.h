// Partial verification (SpecPV) of the requests of an engine: when a step reads a partial view of
// the prefix, what is provisional in between, and how a full pass settles it.
//
// Between full passes a sequence's accepted tokens are provisional: they are in sequence.tokens,
// its tail and the sampler, but not in blocks. In exact mode they have not left the engine: a full
// pass takes them back (Unwind) and judges them again as the trunk of its tree, an ordinary step
// otherwise. In fast mode they have left, and the full pass only makes their K/V right.
//
// Owned by the step, used by the engine's thread.
#ifndef TALON_ENGINE_STEP_PARTIAL_VERIFIER_H_
#define TALON_ENGINE_STEP_PARTIAL_VERIFIER_H_

#include <optional>
#include <string>
#include <vector>

#include "compute/backend.h"
#include "engine/output_text.h"
#include "kv/kv_cache.h"
#include "model/sampling/sampler.h"
#include "observe/metrics.h"
#include "spec/plan.h"
#include "spec/policy/policy.h"
#include "spec/specpv/config.h"
#include "spec/specpv/gate.h"
#include "spec/specpv/governor.h"
#include "spec/specpv/payoff.h"
#include "spec/specpv/selection.h"
#include "spec/token_tree.h"

namespace talon {

// Of one request, between steps.
struct PartialState {
  bool admitted = false;                  // the fields below are filled
  SpecPvConfig config;                    // the engine's, as the request wants it
  std::optional<DriftGovernor> governor;  // none: the request is verified in full
  std::optional<PartialLists> lists;      // chosen by the last full pass
  std::vector<int32_t> copied_blocks;     // of the lists, in KvCache::views(); empty: no copy
  int partial_steps = 0;                  // since then
  // Exact mode, decided when nothing is provisional.
  bool pays = true;     // partial steps do, at this length
  bool trying = false;  // they did not so far, and are tried again
  int max_trunk = GateState::kNoInterval;
  bool finish_pending = false;     // exact mode: a provisional token would end the request
  std::optional<OutputText> text;  // exact mode: the request's text with provisional tokens

  bool exact() const { return config.mode == SpecPvMode::kExact; }
};

struct ActiveRequest;

class PartialVerifier {
 public:
  struct Parts {  // not owned
    Backend* backend = nullptr;
    KvCache* kv = nullptr;
    Metrics* metrics = nullptr;
    const Policy* policy = nullptr;  // knows what passes cost
  };
  // `max_depth`: of draft trees. A disabled config makes every decision "full".
  PartialVerifier(const Parts& parts, const SpecPvConfig& config, int max_depth)
      : parts_(parts), config_(config), max_depth_(max_depth) {}

  const SpecPvConfig& config() const { return config_; }

  // Nodes that the request's next tree may have.
  int TreeRoom(const ActiveRequest& run) const;
  // How the coming step verifies the request, whose tree has `nodes` nodes. Counts refreshes.
  GateDecision Decide(ActiveRequest* run, int nodes);
  PartialView ViewOf(const ActiveRequest& run) const;
  // The same in KvCache::views(). REQUIRES: HasCopy.
  PartialView CopyOf(const ActiveRequest& run) const;
  static bool HasCopy(const ActiveRequest& run);

  // Exact mode, before a full pass: takes everything back to the last full pass.
  void Unwind(ActiveRequest* run) const;

  // A pass is planned: nobody has asked for scores.
  void BeginPass() { rankings_.clear(); }
  // Asks the pass, whose sequence added last this is, for the scores that a choice of blocks needs
  // when the pass has committed 1 to `max_committed` tokens, its root among the rows
  // [row_begin, row_end).
  void RequestScores(const ActiveRequest& run, int row_begin, int row_end, int max_committed,
                     PassBuilder* builder);
  // Ranks the blocks of all who asked in this pass; nothing is waited for.
  void RankBlocks(const MatrixView& scores);
  // After the commit of a full pass that was asked for scores and has been waited for: chooses the
  // blocks of the partial steps to come.
  void Select(ActiveRequest* run);

  // An ordinary step, which replays and selects nothing, verified `rows` rows of a sequence.
  void ObserveStep(int rows, int emitted);
  // A pass over sequences of which all are of this kind took so long, `rows` of each.
  void ObservePass(PassKind kind, const StepShape& shape, double rows, double seconds);
  // The request's next steps may be partial, as far as its length and its wishes go.
  bool CouldBePartial(const ActiveRequest& run) const;
  // An exact full pass confirmed the first `confirmed` of `provisional` tokens.
  void CountTrunk(ActiveRequest* run, int provisional, int confirmed);
  // The request is verified in full from now on.
  void GiveUp(ActiveRequest* run, SpecPvFallbackReason reason, const std::string& detail);

 private:
  // Blocks ranked for a request, for each number of full blocks that its sequence may then have.
  struct Ranking {
    const ActiveRequest* run = nullptr;
    BlockBudget budget;
    int scored_blocks = 0;
    int first_column = 0;  // of its scores
    int min_full_blocks = 0;
    int max_full_blocks = 0;
    std::vector<size_t> first_chosen;  // of the ranked blocks, by number of full ones
  };
  // The blocks ranked for a request whose sequence now has this many full ones.
  std::vector<int32_t> RankedOf(const Ranking& ranking, int full_blocks) const;

  void Admit(ActiveRequest* run) const;
  // By the verify curve; all unknown without one.
  StepCosts CostsOf(const ActiveRequest& run) const;

  Parts parts_;
  SpecPvConfig config_;
  int max_depth_;
  PartialPayoff payoff_;
  int ordinary_steps_ = 0;
  double mean_rows_ = 4;  // of ordinary steps, running means
  double mean_emitted_ = 2;
  std::vector<Ranking> rankings_;  // of the pass under way
};

// A chain of `trunk` tokens with `tree` at its end: the tree's root is node trunk.size().
TokenTree WithTrunk(std::span<const int32_t> trunk, const TokenTree& tree);

}  // namespace talon

#endif  // TALON_ENGINE_STEP_PARTIAL_VERIFIER_H_
