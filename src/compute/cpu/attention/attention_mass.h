// Attention mass of blocks (BlockScorer::kAttention): the share of a query's softmax over the keys
// of all scored blocks that falls on a block.
//
// Collected while attention runs, from the scores of a tile before its softmax replaces them, so
// that no key is read again.
#ifndef TALON_COMPUTE_CPU_ATTENTION_ATTENTION_MASS_H_
#define TALON_COMPUTE_CPU_ATTENTION_ATTENTION_MASS_H_

#include <cstdint>
#include <vector>

#include "base/threads.h"
#include "compute/matrix.h"
#include "compute/pass_plan.h"

namespace talon {

struct AttentionCall;
struct AttentionRow;

// One call of attention at a time; keeps its memory.
class BlockMasses {
 public:
  // Before a call, for all requests by attention of its pass.
  void Begin(const AttentionCall& call);

  // Whether the pass's row is one of a request.
  bool Wants(int row) const { return request_of_row_[row] >= 0; }
  // scores: [128] of a query of this row with the keys of a tile, base 2, those that it does not
  // see included; overwritten. Calls for different tiles or queries may run side by side.
  void AddTile(const AttentionRow& row, int head, int tile, float* scores);

  // After the call: writes the scores, [kv_heads, scored blocks].
  void Write(ThreadPool& pool, const AttentionCall& call);

 private:
  // What the tiles of one request leave. Tiles of 128 keys are independent of each other, so a
  // weight is relative to its tile's largest score. Queries are by head, then row.
  struct Request {
    const ScoreRequest* asked = nullptr;
    int rows = 0;
    int tiles = 0;
    std::vector<float> weights;  // [heads, rows, blocks]
    std::vector<float> largest;  // [heads, rows, tiles]; -inf: no key of the tile is seen
    std::vector<float> totals;   // [heads, rows, tiles] of the weights

    int64_t QueryOf(int head, int row) const {
      return int64_t{head} * rows + row - asked->row_begin;
    }
  };
  // Adds up a head's masses, reduced over rows, to out [blocks].
  void ReduceHead(Request* request, int head, float factor, float* out) const;

  int block_size_ = 0;
  std::vector<int> request_of_row_;  // by row of the pass; -1: none
  std::vector<Request> requests_;
};

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_ATTENTION_MASS_H_
