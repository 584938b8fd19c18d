// Partial verification (SpecPV) of the requests of an engine: when a step reads a partial view of
// the prefix, what is provisional in between, and how a full pass settles it.
//
// Between full passes a sequence's accepted tokens are provisional: they are in sequence.tokens and
// its tail, but not in blocks. In exact mode they have not left the engine: a full pass judges them
// again as the trunk of its tree, an ordinary step otherwise. In fast mode they have left, and the
// full pass only makes their K/V right. Either way the tail stays until that pass has succeeded
// (DropTail).
//
// Owned by the step, used by the engine's thread.
#ifndef TALON_ENGINE_STEP_PARTIAL_VERIFIER_H_
#define TALON_ENGINE_STEP_PARTIAL_VERIFIER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/active_request.h"
#include "engine/step/entry.h"
#include "engine/step/options.h"
#include "engine/step/shadow_verifier.h"
#include "model/decoder.h"
#include "spec/plan.h"
#include "spec/policy/policy.h"
#include "spec/specpv/config.h"
#include "spec/specpv/gate.h"
#include "spec/specpv/payoff.h"
#include "spec/specpv/selection.h"

namespace talon {

class PartialVerifier {
 public:
  // `max_depth`: of draft trees. A disabled config makes every decision "full".
  PartialVerifier(const StepParts& parts, const SpecPvConfig& config, int max_depth)
      : parts_(parts),
        config_(config),
        max_depth_(max_depth),
        shadow_(parts.backend, parts.target, parts.kv, parts.metrics) {}

  // ---- Propose ----

  // A request's first step: decides whether and with which settings it is verified partially.
  void Admit(ActiveRequest* run);
  // Nodes that the request's next tree may have.
  int TreeRoom(const ActiveRequest& run) const;
  // Decides whether the entry's pass reads a partial view of the prefix. If not, provisional tokens
  // become the trunk of its tree. The sequence gets a tail region, nothing more.
  void ChooseView(const StepShape& shape, StepEntry* entry) const;
  // The pass failed: gives the tail region back that ChooseView took.
  void Abandon(StepEntry* entry) const;

  // ---- Plan ----

  PartialView ViewOf(const ActiveRequest& run) const;
  // The same blocks in KvCache::views(). REQUIRES: HasCopy.
  PartialView CopyOf(const ActiveRequest& run) const;
  static bool HasCopy(const ActiveRequest& run);

  // A pass is planned: no scores are requested yet.
  void BeginPass() { rankings_.clear(); }
  // Requests the scores that a choice of blocks needs when the pass has committed 1 to
  // `max_committed` tokens. The request's sequence is the pass's last one so far; its drafts have
  // the rows [row_begin, row_end).
  void RequestScores(const ActiveRequest& run, int row_begin, int row_end, int max_committed,
                     PassBuilder* builder);

  // ---- Verify ----

  // Runs full passes over the trees of partial steps that were drawn for it, before the step's own
  // pass, and compares them after it.
  Status RunShadows(std::span<StepEntry> entries);
  void CompareShadows(std::span<StepEntry> entries, const ForwardOutput& output);
  // Ranks the blocks of all requests with scores in this pass; nothing is waited for.
  void RankBlocks(const MatrixView& scores);

  // ---- Commit ----

  // Empties the tail. In exact mode the provisional tokens leave the sequence as well.
  void DropTail(ActiveRequest* run) const;
  // After the entry's rows were committed: counts refreshes and what a trunk came to, notes what is
  // provisional and chooses the blocks of the partial steps to come.
  void Settle(StepEntry* entry);

  // ---- Observe ----

  // A step of `sequences` sequences, one of them the entry's. `draft_seconds`: time of drafting for
  // each of them, where it was the step's own, in the seconds of the verify curve.
  void ObserveStep(const StepEntry& entry, int sequences, std::optional<double> draft_seconds);
  // Records a pass whose sequences are all of `kind`. `ratio`: its time, in the seconds that the
  // curve gives it.
  void ObservePass(PassKind kind, double ratio) { ratios_.Record(kind, ratio); }
  // After a step of these requests: whether partial steps pay from here on, and for how long.
  void Reconsider(std::span<ActiveRequest* const> runs);
  // Whether length and settings of the request allow partial steps.
  bool CouldBePartial(const ActiveRequest& run) const;

 private:
  // Blocks ranked for a request, for each number of full blocks that its sequence may then have.
  struct Ranking {
    const ActiveRequest* run = nullptr;
    BlockBudget budget;
    int scored_blocks = 0;
    int first_column = 0;  // first column of its scores
    int min_full_blocks = 0;
    int max_full_blocks = 0;
    std::vector<size_t> first_chosen;  // first ranked block, by number of full blocks
  };
  // The blocks ranked for a request whose sequence now has this many full ones.
  std::vector<int32_t> RankedOf(const Ranking& ranking, int full_blocks) const;

  // How many lists a partial view has: for the kv heads of all ranks.
  ListShape NumLists() const;

  GateDecision Decide(const ActiveRequest& run, int nodes) const;
  void ReconsiderOne(int sequences, ActiveRequest* run);
  // Partial steps after which a round's full pass is expected.
  double RoundSteps(const ActiveRequest& run) const;
  // Lets rounds that begin together end one after the other, so that their full passes do not come
  // in one step. Later rounds then begin one by one.
  void SpreadRounds(std::span<ActiveRequest* const> runs) const;
  // The request's share of passes of so many sequences like it, by the verify curve; 0 without one.
  PassSeconds PassesOf(const ActiveRequest& run, int sequences) const;
  // Tells the payoff what a round or a full step took that has ended.
  static void EndRound(ActiveRequest* run);
  // Counts an exact full pass that confirmed the first `confirmed` of `provisional` tokens.
  void CountTrunk(ActiveRequest* run, int provisional, int confirmed);
  // Chooses the blocks of the partial steps to come. REQUIRES: the pass has their scores.
  void Select(ActiveRequest* run);
  // The request is verified in full from now on.
  void GiveUp(ActiveRequest* run, SpecPvFallbackReason reason, const std::string& detail);

  StepParts parts_;
  SpecPvConfig config_;
  int max_depth_;
  PassRatios ratios_;
  DisagreementOdds odds_;          // all requests'
  std::vector<Ranking> rankings_;  // the pass under way
  ShadowVerifier shadow_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_PARTIAL_VERIFIER_H_
