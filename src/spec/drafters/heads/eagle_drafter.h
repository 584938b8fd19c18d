// EAGLE and EAGLE3: a head on the target's hidden states drafts a dynamic tree.
//
// Draft row t pairs the target's feature of position t with the token of position t + 1, so the
// draft's KV has exactly C rows when the target has committed C. Extend only collects features;
// Propose runs the missing rows of all its sequences in one pass, whose last row of each gives
// level 1, then one pass for each further level but the last, which needs none. A sequence that is
// not drafted for costs a copy of its features, and loses nothing. Rows that Extend is not told of
// are left out: drafts see the rows before and after.
//
// With a prefix index the draft's full blocks are known by the tokens that their rows pair with, so
// the last row of a block depends on the token after the target's block. Where that one differs,
// the block is copied and its last row computed again, from the feature that was kept for it.
#ifndef TALON_SPEC_DRAFTERS_HEADS_EAGLE_DRAFTER_H_
#define TALON_SPEC_DRAFTERS_HEADS_EAGLE_DRAFTER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "model/heads/eagle_head.h"
#include "observe/metrics.h"
#include "spec/draft_cache.h"
#include "spec/drafter.h"
#include "spec/drafters/heads/draft_window.h"
#include "spec/drafters/heads/eagle_growth.h"
#include "spec/drafters/tree_growth.h"
#include "spec/plan.h"

namespace talon {

struct EagleOptions {
  std::string model_path;
  bool random = false;  // random weights instead of a model's, for measurements of speed
  DraftBudget budget;   // the largest it will be asked for
  float min_prob = 0;
  std::vector<int> capture_layers;  // empty: as the head says
  std::string token_map;            // EAGLE: see EagleHead::Options
  std::string target_path;
  DraftWindow window;  // draft rows that a row sees besides its ancestors
  DraftCacheShape cache;
  WeightFormat weights = WeightFormat::kAsStored;
};

class EagleDrafter : public Drafter {
 public:
  // `target` must outlive the drafter, and capture capture_layers() from then on.
  static Result<std::unique_ptr<EagleDrafter>> Load(const EagleOptions& options,
                                                    const Decoder& target, Backend* backend,
                                                    Metrics* metrics);

  std::string_view name() const override { return head_->config().eagle3 ? "EAGLE3" : "EAGLE"; }
  std::vector<int> capture_layers() const override { return head_->config().capture_layers; }
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override;
  void Recall(SequenceId sequence, std::span<const int32_t> tokens, int computed) override;
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override;
  bool GrowsAhead() const override { return growth_->grows_ahead(); }
  std::vector<bool> BeginTrees(std::span<const DraftRequest> requests, int most_nodes,
                               std::span<TokenTree> trees) override;
  void PlaceTrees(std::span<const OutlineRows> outlines, Pass* pass) override;
  void FinishTrees(std::span<TokenTree> trees) override;
  void Extend(std::span<const CommittedRows> batch, MatrixView features) override;
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId sequence, int length) override;
  void End(SequenceId sequence) override;

  const EagleHead& head() const { return *head_; }
  // Rows of the sequence's draft state, those not yet computed included.
  int RowsOf(SequenceId sequence) const { return states_.at(sequence).rows(); }

 private:
  struct State {
    Sequence sequence;             // the draft's; tokens[t] is the target's token t + 1
    std::vector<int32_t> pending;  // rows of pending_ that follow sequence.committed_len
    int slot = 0;                  // slot of growth_ that its trees grow from
    bool ranked = false;           // what the slot holds belongs to the last draft row
    MissingBlocks missing;
    int rows() const { return sequence.committed_len + static_cast<int>(pending.size()); }
  };

  EagleDrafter(const EagleOptions& options, Backend* backend, Metrics* metrics)
      : options_(options), backend_(backend), metrics_(metrics) {}
  Status Allocate(const KvShape& shape);

  bool RecallLastRow(State* state);
  // Rows of features that are the last of full blocks.
  struct Edges {
    std::vector<int32_t> rows;
    std::vector<int32_t> blocks;
  };
  void AddEdges(const State& state, int count, int first_ordered, Edges* edges) const;
  void Cut(State* state, int rows);
  void AddPending(State* state, std::span<const int32_t> rows, MatrixView features);
  // False: all pending rows were dropped.
  bool MakeRoom();
  // Runs pending rows: all of the sequences in `ranked`, whose last rows are ranked too.
  Status Rank(std::span<State* const> ranked);
  // The same for all sequences but their last rows, of which nothing is ranked.
  Status Shorten();
  Status RunPending(std::span<State* const> states, int held_back, EagleOutput* output);
  void CompactPending();

  // Trees of the requests whose states are ranked, without candidates. `chosen` [requests] holds
  // the blocks of their views.
  std::vector<GrowingTree> NewTrees(std::span<const DraftRequest> requests,
                                    std::span<State* const> states,
                                    std::vector<std::vector<int32_t>>* chosen) const;
  // trees[i] has its root only.
  void BuildTrees(std::span<const GrowingTree> growing, std::span<TokenTree> trees);
  PrefixView Window(const State& state, std::span<const int32_t> blocks, int rows,
                    std::vector<int32_t>* chosen) const;
  void GiveUp(const Status& why);

  EagleOptions options_;
  Backend* backend_;
  Metrics* metrics_;
  Metrics own_metrics_;  // the draft cache's, kept apart from the target's
  std::unique_ptr<EagleHead> head_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<EagleGrowth> growth_;
  std::map<SequenceId, State> states_;
  std::vector<int> free_slots_;
  PassBuilder builder_;
  PassBuilder readers_;
  std::vector<GrowingTree> begun_;  // by BeginTrees

  Scratch pending_;  // [rows, A*Ht] features of rows that are not in the draft's KV yet
  Scratch ordered_;  // the same, the rows of a pass
  Scratch inputs_;   // [rows, H], used by growth_ too
  Scratch edges_;    // [draft blocks, A*Ht] features of each full block's last row
  int pending_used_ = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_HEADS_EAGLE_DRAFTER_H_
