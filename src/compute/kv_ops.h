// Ops on a KV cache outside of attention: writing, committing and copying rows, and scoring blocks
// for the choice of a partial view. Queued in order with the backend's other ops.
#ifndef TALON_COMPUTE_KV_OPS_H_
#define TALON_COMPUTE_KV_OPS_H_

#include <cstdint>
#include <span>

#include "compute/kv_view.h"
#include "compute/matrix.h"

namespace talon {

class Pass;

// The `count` largest of the columns [begin, end).
struct ColumnChoice {
  int begin = 0;
  int end = 0;
  int count = 0;
};

// Spans are host memory.
class KvOps {
 public:
  virtual ~KvOps() = default;

  // Writes each row's K and V, [rows, kv_heads * head_dim], rounded to the cache's type, to its
  // slot or its staging row (PassPlan::slots).
  virtual void StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv,
                       int layer) = 0;
  // Copies staging row rows[i] to slot slots[i] in layers [0, num_layers), K and V.
  virtual void CommitRows(const KvView& kv, std::span<const int32_t> rows,
                          std::span<const int32_t> slots, int num_layers) = 0;
  // Copies slot to slot in all layers, in order of i. Sources may be overwritten only by later i.
  virtual void CopySlots(const KvView& kv, std::span<const int32_t> from,
                         std::span<const int32_t> to) = 0;
  // Copies the first `tokens` slots of a block in all layers (copy-on-write).
  virtual void CopyBlock(const KvView& kv, int from, int to, int tokens) = 0;
  // Copies staging row to staging row in all layers, in order of i, like CopySlots.
  virtual void CopyStaged(const KvView& kv, std::span<const int32_t> from,
                          std::span<const int32_t> to) = 0;

  // Copies blocks, others for each layer and kv head, from one cache to blocks [first, first + n)
  // of another: for kv head h of layer l those of blocks[(l * kv_heads + h) * n ..]. May run beside
  // ops queued later, until JoinCopies: no op before it may write what is read, or read what is
  // written.
  virtual void CopyTiles(const KvView& from, std::span<const int32_t> blocks, const KvView& to,
                         int first) = 0;
  virtual void JoinCopies() {}

  // The cache's memory is about to be freed.
  virtual void ForgetCache(const KvView& /*kv*/) {}

  // Writes the summaries of full blocks in all layers. NaN in a key makes NaN of the summary's
  // element and norm. REQUIRES: KvShape::key_summaries.
  virtual void SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) = 0;
  // Scores one layer's blocks as the pass requests (PassPlan::scores), but for requests by
  // attention: out [kv_heads, scored blocks], float32 throughout. With q [rows, heads * head_dim]
  // after RoPE, a block's score for a query head and row follows the request's scorer; they are
  // reduced over the request's rows, then averaged over the query heads of the kv head. NaN counts
  // as -inf.
  virtual void ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                           MatrixView out) = 0;
  // Whether attention scores blocks, too (BlockScorer::kAttention).
  virtual bool ScoresByAttention() const { return true; }

  // Chooses columns of every row of x, for each of `choices` those with the largest values: ties to
  // the lower column, NaN as -inf. ChosenColumns returns them, ascending: [choices][x.rows][count];
  // a row of nothing but NaN and -inf begins with -1. It waits, unless something was waited for
  // since. The span holds until the next choice.
  virtual void ChooseColumns(MatrixView x, std::span<const ColumnChoice> choices) = 0;
  virtual std::span<const int32_t> ChosenColumns() = 0;
};

}  // namespace talon

#endif  // TALON_COMPUTE_KV_OPS_H_
