// What a rank of several keeps in memory: by the sizes of the model's tensors, without loading it.
#ifndef TALON_MODEL_RANKS_MEMORY_H_
#define TALON_MODEL_RANKS_MEMORY_H_

#include <cstdint>

#include "base/status.h"
#include "compute/dtype.h"
#include "compute/matrix.h"
#include "model/config.h"

namespace talon {

struct RankMemory {
  int64_t weight_bytes = 0;
  int64_t kv_bytes_per_token = 0;
};

// The memory of the rank of `size` that has most, without drafters and workspace.
// REQUIRES: weights as stored, or int8 (the embedding table then stays as stored).
Result<RankMemory> ReckonRankMemory(const ModelConfig& config, int size, WeightFormat weights,
                                    DType kv_dtype);

}  // namespace talon

#endif  // TALON_MODEL_RANKS_MEMORY_H_
