// The part of a model that one rank has: some of the heads with their K/V, of the MLP's inner
// values or of the experts, and of the vocabulary's logits. Norms, the router and the embedding
// table are whole on every rank.
#ifndef TALON_MODEL_RANKS_SHARD_H_
#define TALON_MODEL_RANKS_SHARD_H_

#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/pass_plan.h"
#include "compute/ranks/segments.h"
#include "model/config.h"
#include "model/files/tensor_layout.h"

namespace talon {

struct ModelShard {
  int rank = 0;
  int size = 1;
  RankSplit split = RankSplit::kInputs;
  IndexRange heads;
  IndexRange kv_heads;
  IndexRange ffn;      // for dense layers
  IndexRange experts;  // for sparse layers
  IndexRange vocab;
  std::vector<int> vocab_bounds;  // [size + 1] of all ranks

  bool whole() const { return size == 1; }
};

// Fails if the model cannot be cut so: 1, 2, 4 or 8 ranks, each with as many kv heads as the
// others, and with something of every layer.
Result<ModelShard> ShardOf(const ModelConfig& config, int rank, int size,
                           RankSplit split = RankSplit::kInputs);

// Cuts a whole model's layout down to the shard.
void TakeShard(const ModelConfig& config, const ModelShard& shard, TensorLayout* layout);

// The plan as the shard runs it: of the lists of partial views, those of its kv heads.
void TakeLists(const ModelConfig& config, const ModelShard& shard, const PassPlan& whole,
               PassPlan* own);

}  // namespace talon

#endif  // TALON_MODEL_RANKS_SHARD_H_
