// DFLASH, JETSPEC, DSPARK: a head drafts a block of tokens in one pass, and a tree is made of the
// best candidates of its rows by best-first search.
//
// The draft's cache has a row for every position that the target has committed, made of the
// target's features of that position alone; so its full blocks are known by the sequence's own
// tokens. Extend keeps the features. One product makes the rows of all sequences when drafts are
// asked for, or when there is no more room for features. Propose runs one pass over the blocks of
// its sequences; the candidates of a depth are the same for all paths, unless the head has a Markov
// bias: then each node that is taken is ranked anew.
#ifndef TALON_SPEC_DRAFTERS_HEADS_BLOCK_DRAFTER_H_
#define TALON_SPEC_DRAFTERS_HEADS_BLOCK_DRAFTER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compute/trees/best_first_search.h"
#include "kv/kv_cache.h"
#include "model/heads/block_head.h"
#include "observe/metrics.h"
#include "spec/draft_cache.h"
#include "spec/drafter.h"
#include "spec/drafters/heads/best_first_tree.h"
#include "spec/drafters/heads/draft_window.h"
#include "spec/plan.h"

namespace talon {

struct BlockOptions {
  std::string model_path;
  // A head of this kind with random weights instead, for measurements of speed.
  std::optional<DraftKind> random;
  DraftBudget budget;  // the largest it will be asked for
  float min_prob = 0;
  std::vector<int> capture_layers;  // empty: as the head says
  DraftWindow window;               // draft rows that a block sees
  DraftCacheShape cache;
  WeightFormat weights = WeightFormat::kAsStored;
};

class BlockDrafter : public Drafter {
 public:
  // `target` must outlive the drafter, and capture capture_layers() from then on.
  static Result<std::unique_ptr<BlockDrafter>> Load(const BlockOptions& options,
                                                    const Decoder& target, Backend* backend,
                                                    Metrics* metrics);

  std::string_view name() const override;
  std::vector<int> capture_layers() const override { return head_->config().capture_layers; }
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override;
  void Recall(SequenceId sequence, std::span<const int32_t> tokens, int computed) override;
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override;
  bool GrowsAhead() const override { return search_ != nullptr; }
  std::vector<bool> BeginTrees(std::span<const DraftRequest> requests, int most_nodes,
                               std::span<TokenTree> trees) override;
  void PlaceTrees(std::span<const OutlineRows> outlines, Pass* pass) override;
  void FinishTrees(std::span<TokenTree> trees) override;
  void Extend(std::span<const CommittedRows> batch, MatrixView features) override;
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId sequence, int length) override;
  void End(SequenceId sequence) override;

  // Rows of the sequence's draft state.
  int RowsOf(SequenceId sequence) const { return states_.at(sequence).rows(); }

 private:
  struct State {
    Sequence sequence;  // the draft's; the same tokens as the target's
    MissingBlocks missing;
    std::vector<int32_t> pending;  // rows of pending_ that follow sequence.committed_len

    int rows() const { return sequence.committed_len + static_cast<int>(pending.size()); }
  };
  // A tree that grows from rows of the pass's logits.
  struct Growing {
    BestFirstTree tree;
    size_t owner = 0;                 // the request
    int first_output = 0;             // row of the logits for depth 1
    int node = BestFirstTree::kRoot;  // the one taken last
    bool has_nan = false;
    bool done = false;
  };

  BlockDrafter(const BlockOptions& options, Backend* backend, Metrics* metrics)
      : options_(options), backend_(backend), metrics_(metrics) {}
  Status Allocate();

  void Cut(State* state, int rows);
  // Makes the rows of all pending features. False: they were dropped, and their sequences get no
  // drafts until they go on with a new block.
  bool MakeRows();
  Status AddContext(std::span<State* const> states);
  void GiveUp(const Status& why);

  // The pass over the blocks of the requests whose states are in step, with numbers from `first`
  // on.
  Result<std::vector<Growing>> RunBlocks(std::span<const DraftRequest> requests, size_t first,
                                         BlockOutput* output);
  std::vector<Growing> PlanBlocks(std::span<const DraftRequest> requests, size_t first);
  void BuildTrees(std::span<const Growing> growing, std::span<TokenTree> trees);
  // Depths have the same candidates on all paths: those of a tree are [depth][width].
  void GrowByDepth(std::span<const TopKEntry> best, Growing* one) const;
  // Candidates follow the token before them.
  void GrowByPath(std::span<Growing> growing);
  void RankNodes(std::span<Growing> growing);
  void TopK(const MatrixView& logits, std::vector<TopKEntry>* best);

  BlockOptions options_;
  Backend* backend_;
  Metrics* metrics_;
  Metrics own_metrics_;  // the draft cache's, kept apart from the target's
  std::unique_ptr<BlockHead> head_;
  std::unique_ptr<KvCache> kv_;
  std::map<SequenceId, State> states_;
  PassBuilder builder_;
  Scratch pending_;  // [max_context_rows, A * Ht] features of rows that are not in the cache yet
  Scratch ordered_;  // the same, sequence by sequence
  int pending_used_ = 0;
  int width_ = 1;  // candidates of a row
  int most_depth_ = 0;
  // Where the device grows trees ahead of the host.
  std::unique_ptr<BestFirstSearch> search_;
  std::vector<Growing> begun_;  // by BeginTrees
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_HEADS_BLOCK_DRAFTER_H_
