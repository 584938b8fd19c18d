// Turns sequences, prompt chunks and trees into one PassPlan: host integers only.
#ifndef TALON_SPEC_PLAN_H_
#define TALON_SPEC_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "compute/pass_plan.h"
#include "kv/kv_cache.h"
#include "spec/token_tree.h"

namespace talon {

// What rows see of a sequence's committed tokens: all of them, or chosen blocks. Every block is
// full but the last.
struct PrefixView {
  PrefixView(const Sequence& sequence)  // NOLINT: the whole prefix is a view of it
      : blocks(sequence.blocks), tokens(sequence.committed_len) {}
  PrefixView(std::span<const int32_t> chosen, int visible) : blocks(chosen), tokens(visible) {}
  std::span<const int32_t> blocks;
  int tokens = 0;
};

// Chosen blocks for each (layer, kv head), layer by layer. All lists are equally long.
struct PartialView {
  std::span<const int32_t> block_ids;  // [lists][blocks of a list]
  int num_lists = 0;                   // layers * kv heads
  int tokens = 0;                      // tokens of a list; every block is full but the last
};

// Builds a pass part by part. Tree parts come first, because a tree's staging rows are its rows of
// the pass (but for forests and partial trees) and staging is small. Reusable: Reset starts the
// next pass.
class PassBuilder {
 public:
  PassBuilder() { Reset(); }

  void Reset();

  // All nodes of a valid tree: position C + depth, logits from node `first_output` on. `slots` is
  // empty for staged rows, else one reserved slot per node. Returns the first row.
  int AddTree(const Sequence& sequence, const TokenTree& tree, std::span<const int32_t> slots = {},
              int first_output = 0);

  // A tree over a partial view of the prefix and the sequence's tail of P provisional tokens:
  // position C + P + depth, logits for every node. Staged in the tail's region, behind the tail.
  // Returns the first row. REQUIRES: the sequence has a tail region.
  int AddPartialTree(const Sequence& sequence, const TokenTree& tree, const PartialView& view);

  // The sequence added last, which sees its whole prefix, wants scores of its first `num_blocks`
  // blocks, all full, under the queries of its rows [row_begin, row_end). Returns the first column
  // of its scores.
  struct Scoring {
    BlockScorer scorer = BlockScorer::kQuest;
    ScoreReduce reduce = ScoreReduce::kMean;
  };
  int RequestScores(int row_begin, int row_end, int num_blocks, const Scoring& scoring);

  // A forest of staged nodes that grows over several passes: rows for the nodes from `first_node`
  // on; the earlier ones were staged by passes before. Roots have parent -1 and `position`. Node i
  // is staged at staging_base + i. Logits for every row. Returns the first row.
  int AddForest(const PrefixView& prefix, int position, std::span<const int32_t> tokens,
                std::span<const int32_t> parents, int first_node, int staging_base);

  // Staged rows at consecutive positions that see the prefix and each other: all of them, or
  // `causal` those before them. Logits for rows [first_output, first_output + outputs). Returns the
  // first row.
  struct Block {
    int position = 0;                 // position of the first row
    std::span<const int32_t> tokens;  // tokens of all rows
    bool causal = false;
    int first_output = 0;
    int outputs = 0;
    int staging_base = 0;
  };
  int AddBlock(const PrefixView& prefix, const Block& block);

  // Prompt tokens [C, C + count) of the sequence, written to the reserved slots. Logits for the
  // last `outputs` of them.
  int AddPrompt(const Sequence& sequence, const Reservation& reservation, int outputs = 0);

  // One row whose K/V is already in `slot`, the last token of `prefix`: it only reads. `fresh`: the
  // last keys of the prefix that the pass captured with this one writes.
  int AddReader(const PrefixView& prefix, int32_t token, int position, int32_t slot, int fresh);

  // Captures the features of rows [first, first + count). Returns their first row in the features.
  // REQUIRES: called in ascending order.
  int CaptureFeatures(int first, int count);

  const PassPlan& plan() const { return plan_; }
  int num_rows() const { return plan_.num_rows(); }
  int num_tree_rows() const { return tree_rows_; }
  // The staging rows this pass writes (StagingArea::Begin).
  std::span<const StagedRows> staged() const { return staged_; }

 private:
  void AddRow(int32_t token, int position, int32_t slot, int prefix_len);
  void AddList(std::span<const int32_t> blocks);
  void EndSequence(int nodes_before, int staging_first);
  void WidenMasks(int words);

  PassPlan plan_;
  int tree_rows_ = 0;
  std::vector<StagedRows> staged_;
};

}  // namespace talon

#endif  // TALON_SPEC_PLAN_H_
