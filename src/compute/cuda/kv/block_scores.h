// Scores of blocks by their key summaries (KvOps::ScoreBlocks).
#ifndef TALON_COMPUTE_CUDA_KV_BLOCK_SCORES_H_
#define TALON_COMPUTE_CUDA_KV_BLOCK_SCORES_H_

#include "compute/cuda/runtime/device_plan.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"

namespace talon::cuda {

struct ScoreCall {
  DevicePlan plan;
  MatrixView q;  // [rows, heads * head_dim] after RoPE
  KvShape shape;
  KvLayer layer;
  int layer_index = 0;
  MatrixView out;  // [kv_heads, scored blocks]

  int group() const { return q.cols / shape.head_dim / shape.kv_heads; }
};

// Float32 throughout; a block's score has the same bits whatever the other requests. How many
// blocks there are is read on the device.
void ScoreBlocks(const Stream& stream, const ScoreCall& call);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_KV_BLOCK_SCORES_H_
