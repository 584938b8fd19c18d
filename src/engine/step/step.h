// The step: Propose -> Plan -> Stage -> Verify -> Accept -> Commit -> Observe.
//
// Plain decoding is the same step with trees of one node, so there is one code path. Prompt chunks
// ride along in the same pass. Nothing of a step is visible to a request unless its commit
// succeeded.
#ifndef TALON_ENGINE_STEP_STEP_H_
#define TALON_ENGINE_STEP_STEP_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/backend.h"
#include "engine/active_request.h"
#include "engine/step/partial_verifier.h"
#include "engine/step/shadow_verifier.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "spec/drafter.h"
#include "spec/plan.h"
#include "spec/policy/policy.h"
#include "spec/verify/accept.h"

namespace talon {

struct StepOptions {
  DraftBudget budget;  // the largest tree of a sequence
  int max_length = 0;  // tokens of a sequence, prompt included
  bool nwor = true;    // no-write-on-reject; false: tree rows go to reserved slots and are moved
  int scv_chunk_size = 0;
  AcceptMode accept = AcceptMode::kMatch;
  AcceptThresholds thresholds;
  SpecPvConfig specpv;
};

// A chunk of a prompt to compute in this step.
struct PromptChunk {
  ActiveRequest* run = nullptr;
  int tokens = 0;
};

class Step {
 public:
  struct Parts {  // not owned
    Backend* backend = nullptr;
    Decoder* target = nullptr;
    KvCache* kv = nullptr;
    Drafter* drafter = nullptr;  // null: plain decoding only
    Policy* policy = nullptr;
    Metrics* metrics = nullptr;
  };
  Step(const Parts& parts, const StepOptions& options);

  // One step for all of `decoding` (each with only its root left to compute) plus prompt chunks.
  // A failure concerns the whole pass and changes no sequence; failures of single sequences end in
  // fallbacks. New tokens are appended to each request's result; `finish` is set where it ends.
  Status Run(std::span<ActiveRequest* const> decoding, std::span<const PromptChunk> prompts);

  // The request gives up its K/V for now: forgets all that belongs to it but its tokens.
  void Suspend(ActiveRequest* run);

 private:
  // One decoding sequence's way through the step.
  struct Entry {
    ActiveRequest* run = nullptr;
    TokenTree tree;
    TokenTree whole;           // the whole proposal where chunked verification cut it, else empty
    bool drafted_now = false;  // the drafter was asked in this step
    // The tree is an outline until the pass has run (Drafter::BeginTrees).
    bool is_outline = false;
    size_t draft_request = 0;  // which of the drafter's requests it is
    // Partial verification. A full pass after partial ones has the provisional tokens as a trunk of
    // `trunk` nodes before the drafts' root; fast mode accepts them unseen.
    bool partial = false;
    int trunk = 0;
    int unseen = 0;
    bool select = false;  // choose blocks after the commit
    ShadowRows shadow;    // what a full pass says of the same rows, where one was drawn
    int prefix_read = 0;  // tokens before the tree whose K/V the pass reads
    int first_row = 0;
    int num_rows = 0;
    int first_output = 0;     // of its logits
    int first_feature = -1;   // of its rows in the pass's features; -1: not captured
    Reservation reservation;  // tree rows, when no-write-on-reject is off
    Acceptance acceptance;
    std::vector<EmittedToken> emitted;
    std::optional<OutputText> text_after;  // the request's text with `emitted`
    FinishReason finish = FinishReason::kNone;
    bool broken = false;  // the walk ended at a row without any finite logit
    bool committed = false;
    bool provisional = false;  // exact mode, partial: `emitted` stays inside
    int confirmed = 0;         // exact mode: provisional tokens that the walk confirmed
  };

  void Begin(std::span<ActiveRequest* const> decoding);
  void Propose();
  Status Plan(std::span<const PromptChunk> prompts);
  Status Verify();
  void Accept();
  void Commit(std::span<const PromptChunk> prompts);
  void Observe();
  void Account(double seconds, std::span<const PromptChunk> prompts);
  bool IsOrdinary();
  std::optional<PassKind> KindOfPass(bool ordinary) const;
  void TimePass(double seconds, bool ordinary);
  void Abandon();

  // Whether the target's choices for such a request are made on the device, for all rows at once.
  bool DeviceChooses(const Sampler& sampler) const;
  void ChooseTokens();
  // Whether drafts of these requests can be verified before the host knows them: then the step
  // waits once, for the target's choices.
  bool RunsAhead(std::span<Entry* const> asked) const;
  void PlaceDrafts(Pass* pass);
  void LearnDrafts();
  bool WantsDrafts(const ActiveRequest& run) const;
  DraftBudget BudgetFor(const ActiveRequest& run) const;
  void Introduce(ActiveRequest* run);
  int CaptureFor(const ActiveRequest& run, int first_row, int rows);
  void Follow(const ActiveRequest& run, int first, std::vector<int32_t> rows);
  void CheckProposal(Entry* entry);
  void ChooseView(Entry* entry);
  void PlanEntry(Entry* entry);
  static int MostCommitted(const Entry& entry);
  KvView PassKv() const { return reads_views_ ? parts_.kv->views() : parts_.kv->view(); }
  Status RunShadows();
  void SettlePartial(Entry* entry, int old_length);
  Status CommitRows(Entry* entry, size_t count);
  void CutToChunk(Entry* entry);
  void ReserveTree(Entry* entry);
  void Emit(Entry* entry);
  void CommitEntry(Entry* entry);
  void CountNwor(const Entry& entry, int committed);
  void KeepRemainder(Entry* entry);
  void ObserveTree(const Entry& entry);
  void CountEntry(const Entry& entry);
  void CountStep(bool drafted);
  std::string_view SourceOf(const Entry& entry) const;
  static const char* ModeOf(const Entry& entry);
  const char* PassMode() const;
  void FallBack(Counter counter, const char* feature, const std::string& reason,
                SequenceId sequence, const Status& why);

  Parts parts_;
  StepOptions options_;
  std::vector<int> capture_layers_;  // of the target, for the drafter
  PartialVerifier partial_;
  ShadowVerifier shadow_;
  PassBuilder builder_;
  StepShape shape_;
  std::vector<Entry> entries_;
  std::vector<Reservation> prompt_reservations_;
  std::vector<int> prompt_features_;     // of each prompt chunk, as Entry::first_feature
  std::vector<CommittedRows> followed_;  // what the drafter is told
  ForwardOutput output_;
  std::vector<int32_t> choices_;  // [output rows] where the device chooses
  bool runs_ahead_ = false;       // of the drafts of this step
  bool reads_views_ = false;      // the pass reads copies of partial views, and no other blocks
  double draft_seconds_ = 0;
  double verify_seconds_ = 0;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_STEP_H_
