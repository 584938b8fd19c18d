// Turns sequences, prompt chunks and trees into one PassPlan: host integers only.
#ifndef TALON_SPEC_PLAN_H_
#define TALON_SPEC_PLAN_H_

#include <cstdint>
#include <span>

#include "compute/pass_plan.h"
#include "kv/kv_cache.h"
#include "spec/token_tree.h"

namespace talon {

// Builds a pass part by part. Tree parts come first, because a staged row's index is its row in the
// pass and staging is small. Reusable: Reset starts the next pass.
class PassBuilder {
 public:
  PassBuilder() { Reset(); }

  void Reset();

  // All nodes of a valid tree: position C + depth, logits for every node. `slots` is empty for
  // staged rows, else one reserved slot per node. Returns the first row.
  int AddTree(const Sequence& sequence, const TokenTree& tree, std::span<const int32_t> slots = {});

  // A forest of staged nodes that grows over several passes: rows for the nodes from `first_node`
  // on; the earlier ones were staged by passes before. Roots have parent -1 and position C. Node i
  // is staged at staging_base + i. Logits for every row. Returns the first row.
  int AddForest(const Sequence& sequence, std::span<const int32_t> tokens,
                std::span<const int32_t> parents, int first_node, int staging_base);

  // Prompt tokens [C, C + count) of the sequence, written to the reserved slots.
  enum class Logits { kNone, kLast, kAll };
  int AddPrompt(const Sequence& sequence, const Reservation& reservation,
                Logits logits = Logits::kNone);

  const PassPlan& plan() const { return plan_; }
  int num_rows() const { return plan_.num_rows(); }
  int num_tree_rows() const { return tree_rows_; }

 private:
  void AddRow(int32_t token, int position, int32_t slot, int prefix_len);
  void EndSequence(std::span<const int32_t> blocks, int nodes_before, int staging_first);
  void WidenMasks(int words);

  PassPlan plan_;
  int tree_rows_ = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_PLAN_H_
