// Attention over paged and staged keys (LayerOps::Attention): one or two kernels on tensor cores
// (attention_work.h), the window kernel (window.cuh), or a generic kernel for float32 caches and
// other head sizes.
//
// A row's bits depend on its queries and keys alone: neither on where its keys are stored nor on
// the other rows of the pass.
//
// The kernels read the pass's attention_rows, items, block lists, masks and places before PdlWait:
// these arrays must be written by copies, or by kernels without PDL overlap in front of a Fence
// (upload.h) or of a CUDA graph.
#ifndef TALON_COMPUTE_CUDA_ATTENTION_ATTENTION_H_
#define TALON_COMPUTE_CUDA_ATTENTION_ATTENTION_H_

#include "compute/cuda/attention/plan.h"
#include "compute/cuda/runtime/device_plan.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/cuda/runtime/rows_out.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"

namespace talon::cuda {

struct AttentionCall {
  DevicePlan plan;
  MatrixView q;  // [rows, heads * head_dim], 16-byte aligned rows
  RowsOut out;   // the same shape, 16-byte aligned data, a multiple of 4 as stride
  KvShape shape;
  KvLayer layer;
  int layer_index = 0;
  float scale = 1;
  int window = 0;                // AttentionInput
  const float* sinks = nullptr;  // AttentionInput
  void* scratch = nullptr;       // AttentionScratchBytes(), zero before its first use

  int group() const { return q.cols / shape.head_dim / shape.kv_heads; }
};

// Whether the device and the build support WarpgroupKernel (AttentionShape::has_warpgroups).
bool HasWarpgroupAttention();

void RunAttention(const Stream& stream, const AttentionCall& call);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_ATTENTION_ATTENTION_H_
