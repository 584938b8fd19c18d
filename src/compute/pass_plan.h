// What one forward pass computes and where each row's keys are: plain host integers, made by
// spec/plan, testable without a model, the same for all layers.
//
// A pass has `rows` tokens of one or more sequences, the rows of a sequence being consecutive. A
// row attends to the first `prefix_len` tokens of its sequence's block list, then to the rows of
// its own sequence that are set in its ancestor mask (itself included), in ascending order. For
// prompt rows, whose K/V goes straight to blocks, prefix_len = position + 1 and the mask is empty;
// for tree rows prefix_len = C and the mask holds the ancestors. So the i-th key a row sees has
// logical index i in both cases, and kernels give the same bits whether a key is committed or
// staged.
#ifndef TALON_COMPUTE_PASS_PLAN_H_
#define TALON_COMPUTE_PASS_PLAN_H_

#include <cstdint>
#include <vector>

namespace talon {

struct PassPlan {
  std::vector<int32_t> tokens;     // [rows]
  std::vector<int32_t> positions;  // [rows], for RoPE
  // [rows] slot (block id * block_size + offset) that receives the row's K/V, or -1: the row is
  // staged, see PlaceOf.
  std::vector<int32_t> slots;
  std::vector<int32_t> prefix_len;  // [rows] keys of the block list the row sees

  std::vector<int32_t> sequence_rows;  // [sequences + 1] first row of each sequence
  // Block lists. [sequences * lists_per_sequence + 1] offsets into block_ids; list s * lists + h.
  // One list per sequence in full passes; one per kv head where a partial view differs by head.
  // Every block of a list is full but the last one.
  std::vector<int32_t> block_offsets;
  std::vector<int32_t> block_ids;
  int lists_per_sequence = 1;

  // [rows][mask_words], bit j of a row: it sees node j of its own sequence. Nodes are the
  // sequence's rows of this pass, after those that earlier passes staged (nodes_before).
  std::vector<uint64_t> ancestors;
  int mask_words = 1;

  // For trees that grow over several passes: how many nodes of each sequence were staged before,
  // and the staging row of its node 0. Both [sequences], or empty: none, and the sequence's first
  // row.
  std::vector<int32_t> nodes_before;
  std::vector<int32_t> staging_first;

  std::vector<int32_t> output_rows;  // rows whose logits are wanted, ascending

  int num_rows() const { return static_cast<int>(tokens.size()); }
  int num_sequences() const { return static_cast<int>(sequence_rows.size()) - 1; }
  // Where the K/V of a sequence's node is or goes: a slot, or ~(staging row).
  int32_t PlaceOf(int sequence, int node) const {
    const int before = nodes_before.empty() ? 0 : nodes_before[sequence];
    if (node >= before) {
      const int32_t slot = slots[sequence_rows[sequence] + node - before];
      if (slot >= 0) return slot;
    }
    return ~((staging_first.empty() ? sequence_rows[sequence] : staging_first[sequence]) + node);
  }
  int32_t PlaceOfRow(int sequence, int row) const {
    const int before = nodes_before.empty() ? 0 : nodes_before[sequence];
    return PlaceOf(sequence, row - sequence_rows[sequence] + before);
  }

  // Empties everything but keeps the memory for the next pass.
  void Clear() {
    for (auto* array : {&tokens, &positions, &slots, &prefix_len, &sequence_rows, &block_offsets,
                        &block_ids, &nodes_before, &staging_first, &output_rows}) {
      array->clear();
    }
    ancestors.clear();
    lists_per_sequence = 1;
    mask_words = 1;
  }
};

}  // namespace talon

#endif  // TALON_COMPUTE_PASS_PLAN_H_
