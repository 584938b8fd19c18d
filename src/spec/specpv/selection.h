// Which blocks of a long prefix a partial pass reads: host integers only.
//
// A full pass leaves one score per (layer, kv head, full block). SelectBlocks ranks them once,
// after that pass's Commit; MakePartialLists turns the choice into the block lists of the passes
// that follow. Both are pure functions. The committed length C does not move between full passes,
// so neither do the lists.
#ifndef TALON_SPEC_SPECPV_SELECTION_H_
#define TALON_SPEC_SPECPV_SELECTION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "spec/specpv/config.h"

namespace talon {

// Scores of blocks [first_block, end_block) of one sequence, not owned. Higher is better.
struct BlockScores {
  std::span<const float>
      values;  // [layers][kv_heads][end_block - first_block], rows `stride` apart
  int layers = 0;
  int kv_heads = 0;
  int stride = 0;       // at least end_block - first_block
  int first_block = 0;  // at most the number of sink blocks
  int end_block = 0;    // full blocks when the scores were taken
};

// The retrieved blocks of every (layer, kv head), as indices into the sequence's block list.
struct BlockSelection {
  int layers = 0;
  int kv_heads = 0;
  int full_blocks = 0;           // F when the choice was made
  BlockBudget budget;            // it was made under
  int retrieved = 0;             // per list: min(R, candidates)
  std::vector<int32_t> indices;  // [layers][kv_heads][retrieved], each list ascending

  std::span<const int32_t> List(int layer, int head) const {
    return std::span(indices).subspan((static_cast<size_t>(layer) * kv_heads + head) * retrieved,
                                      retrieved);
  }
};

// What a choice under this budget ranks, given F full blocks of which those before `scored_end`
// have scores: `ranked` blocks of [first, end). The `unscored` newest candidates come on top.
struct RankedBlocks {
  int first = 0;
  int end = 0;
  int ranked = 0;
  int unscored = 0;
  int candidates_end = 0;
};
RankedBlocks RankedBlocksOf(const BlockBudget& budget, int full_blocks, int scored_end);

// Layers and kv heads of one sequence's lists.
struct ListShape {
  int layers = 0;
  int kv_heads = 0;
};
// The choice that SelectBlocks makes, where another has ranked: `ranked` holds what RankedBlocksOf
// asks for, ascending block indices for each list; -1 first where none of a list's is above -inf.
Result<BlockSelection> MakeSelection(std::span<const int32_t> ranked, const ListShape& lists,
                                     const BlockBudget& budget, int full_blocks, int scored_end);

// Chooses, for each (layer, kv head), R blocks of the candidates [S, F - W). Ties go to the lower
// block, NaN ranks as -inf. Candidates at or past scores.end_block became full after the scores
// were taken; they are chosen first (the newest, should there be more than R) and count towards R.
//
// Fails only if no score of some list's candidates is above -inf (fallback `nan_scores`).
// REQUIRES: scores.end_block <= full_blocks, values as long as the dimensions say. Scores may be
// empty (end_block == first_block), as they are where the budget retrieves nothing.
Result<BlockSelection> SelectBlocks(const BlockScores& scores, const BlockBudget& budget,
                                    int full_blocks);

// Block ids per (layer, kv head), each list in position order: sink, retrieved, window, and the
// partial block if C is not a multiple of the block size. All lists are equally long.
struct PartialLists {
  int layers = 0;
  int kv_heads = 0;
  int list_blocks = 0;             // blocks of a list
  int visible_tokens = 0;          // tokens of a list: what a partial row sees of the prefix
  std::vector<int32_t> block_ids;  // [layers][kv_heads][list_blocks]

  std::span<const int32_t> List(int layer, int head) const {
    return std::span(block_ids).subspan(
        (static_cast<size_t>(layer) * kv_heads + head) * list_blocks, list_blocks);
  }
};

// REQUIRES: `sequence_blocks` cover exactly `committed_len` tokens, of which as many blocks are
// full as when the selection was made. Layers that see a window (`windows`: by layer, 0: none; may
// be empty) get the newest blocks, as many as the others.
PartialLists MakePartialLists(const BlockSelection& selection,
                              std::span<const int32_t> sequence_blocks, int committed_len,
                              int block_size, std::span<const int> windows = {});

// Blocks that lists under this budget leave out, given F full blocks.
int OmittedBlocks(const BlockBudget& budget, int full_blocks);

}  // namespace talon

#endif  // TALON_SPEC_SPECPV_SELECTION_H_
