// What one forward pass computes and where each row's keys are: plain host integers, testable
// without a model, made once for all layers.
//
// A pass has `rows` tokens of one or more sequences, the rows of a sequence being consecutive. A
// row attends to the first `prefix_len` tokens of its sequence's block list, then to the rows of
// its own sequence that are set in its ancestor mask (itself included), in ascending order. For
// prompt rows, whose K/V goes straight to blocks, prefix_len = position + 1 and the mask is empty;
// for tree rows prefix_len = C and the mask holds the ancestors. So the i-th key a row sees has
// logical index i in both cases, and kernels give the same bits whether a key is committed or
// staged. Under partial verification the list holds chosen blocks only, prefix_len counts their
// tokens, and the first nodes of the mask are the sequence's tail.
#ifndef TALON_COMPUTE_PASS_PLAN_H_
#define TALON_COMPUTE_PASS_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace talon {

// How a block is scored under queries: the first by attention itself (AttentionInput::scores), the
// others by the block's key summary (KvOps::ScoreBlocks).
enum class BlockScorer {
  kAttention,   // its share of the softmax over all scored blocks
  kQuest,       // the larger of the query's products with the summary's max and min
  kQuestBound,  // per element the larger of the two, summed: a bound of every key's product
  kH2o          // mean norm of the block's keys, no query
};
enum class ScoreReduce { kMean, kMax };  // over query rows

// Scores to compute for a sequence that reads its whole prefix: blocks [0, num_blocks) of its list,
// all full, under the queries of rows [row_begin, row_end).
struct ScoreRequest {
  int32_t sequence = 0;
  int32_t row_begin = 0;
  int32_t row_end = 0;
  int32_t num_blocks = 0;
  int32_t first_column = 0;  // its scores begin here, after those of earlier requests
  BlockScorer scorer = BlockScorer::kQuest;
  ScoreReduce reduce = ScoreReduce::kMean;
};

struct PassPlan {
  std::vector<int32_t> tokens;     // [rows]
  std::vector<int32_t> positions;  // [rows], for RoPE
  // [rows] slot (block id * block_size + offset) that receives the row's K/V, or -1: the row is
  // staged, see PlaceOf.
  std::vector<int32_t> slots;
  std::vector<int32_t> prefix_len;  // [rows] keys of the block list the row sees

  std::vector<int32_t> sequence_rows;  // [sequences + 1] first row of each sequence
  // Block lists. [lists + 1] offsets into block_ids. Every block of a list is full but the last
  // one. A sequence has one list for all layers and kv heads or, where its rows see a partial view,
  // one for each, by layer, then kv head (ListOf).
  std::vector<int32_t> block_offsets;
  std::vector<int32_t> block_ids;
  // [sequences + 1] first list of each sequence, or empty: each has one.
  std::vector<int32_t> sequence_lists;

  // [rows][mask_words], bit j of a row: it sees node j of its own sequence. Nodes are the
  // sequence's rows of this pass, after those that earlier passes staged (nodes_before).
  std::vector<uint64_t> ancestors;
  int mask_words = 1;

  // For trees that grow over several passes: how many nodes of each sequence were staged before,
  // and the staging row of its node 0. Both [sequences], or empty: none, and the sequence's first
  // row.
  std::vector<int32_t> nodes_before;
  std::vector<int32_t> staging_first;

  // Keys at the end of each block list that are written just before this pass, by another one that
  // is captured in the same graph (Backend::Record). [sequences], or shorter: none for the others.
  std::vector<int32_t> fresh_keys;

  std::vector<int32_t> output_rows;   // rows to compute logits for, ascending
  std::vector<int32_t> feature_rows;  // rows to keep captured features of, ascending

  // Blocks to score for the choice of a partial view, by ascending first_column.
  std::vector<ScoreRequest> scores;

  int num_rows() const { return static_cast<int>(tokens.size()); }
  int num_sequences() const { return static_cast<int>(sequence_rows.size()) - 1; }
  int NumLists(int sequence) const {
    return sequence_lists.empty() ? 1 : sequence_lists[sequence + 1] - sequence_lists[sequence];
  }
  // Some sequence's rows see a partial view.
  bool HasPartialViews() const {
    return !sequence_lists.empty() && sequence_lists.back() > num_sequences();
  }
  int ListOf(int sequence, int layer, int kv_head, int kv_heads) const {
    if (sequence_lists.empty()) return sequence;
    const int first = sequence_lists[sequence];
    return NumLists(sequence) == 1 ? first : first + layer * kv_heads + kv_head;
  }
  // The blocks whose keys the sequence's rows see in a layer and kv head.
  std::span<const int32_t> BlocksOf(int sequence, int layer, int kv_head, int kv_heads) const {
    const int list = ListOf(sequence, layer, kv_head, kv_heads);
    return std::span(block_ids).subspan(block_offsets[list],
                                        block_offsets[list + 1] - block_offsets[list]);
  }
  // Whether some of the scores are attention's to write.
  bool AsksAttention() const {
    return std::ranges::any_of(scores, [](const ScoreRequest& request) {
      return request.scorer == BlockScorer::kAttention;
    });
  }
  // Number of columns that the scores of this pass take.
  int num_scored_blocks() const {
    return scores.empty() ? 0 : scores.back().first_column + scores.back().num_blocks;
  }
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
                        &block_ids, &sequence_lists, &nodes_before, &staging_first, &fresh_keys,
                        &output_rows, &feature_rows}) {
      array->clear();
    }
    ancestors.clear();
    scores.clear();
    mask_words = 1;
  }
};

}  // namespace talon

#endif  // TALON_COMPUTE_PASS_PLAN_H_
