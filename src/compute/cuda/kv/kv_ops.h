// Kernels that norm and rotate heads, and that write and move keys and values. Everything is in
// device memory, index arrays and `layers` too.
#ifndef TALON_COMPUTE_CUDA_KV_KV_OPS_H_
#define TALON_COMPUTE_CUDA_KV_KV_OPS_H_

#include <cstdint>

#include "compute/backend.h"
#include "compute/cuda/runtime/device_plan.h"
#include "compute/cuda/runtime/few_rows.h"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// LayerOps::RmsNormHeads, LayerOps::Rope, KvOps::StoreKv; RotateAndStore does all three in one
// kernel with the same bits.
void RmsNormHeads(const Stream& stream, MatrixView x, int head_dim, const float* weight,
                  float epsilon);
void Rope(const Stream& stream, MatrixView x, int head_dim, MatrixView angles);
void StoreKv(const Stream& stream, const DevicePlan& plan, MatrixView k, MatrixView v,
             const KvShape& shape, const KvLayer& layer);
void RotateAndStore(const Stream& stream, const DevicePlan& plan, const QkvRows& rows,
                    MatrixView angles, const KvShape& shape, const KvLayer& layer);

// Staging row rows[i] to slot slots[i] in layers [0, num_layers).
void CommitRows(const Stream& stream, const KvShape& shape, const KvLayer* layers, int num_layers,
                const int32_t* rows, const int32_t* slots, int count);
void CommitFewRows(const Stream& stream, const KvShape& shape, const KvLayer* layers,
                   int num_layers, const FewIndices& rows, const FewIndices& slots, int count);
// In all layers and in order of i: slot to slot, staging row to staging row.
void CopySlots(const Stream& stream, const KvShape& shape, const KvLayer* layers,
               const int32_t* from, const int32_t* to, int count);
void CopyStaged(const Stream& stream, const KvShape& shape, const KvLayer* layers,
                const int32_t* from, const int32_t* to, int count);
// The first `tokens` slots of a block, in all layers.
void CopyBlock(const Stream& stream, const KvShape& shape, const KvLayer* layers, int from, int to,
               int tokens);

// Summaries of full blocks in all layers (KvOps::SummariseBlocks).
void SummariseBlocks(const Stream& stream, const KvShape& shape, const KvLayer* layers,
                     const int32_t* blocks, int count);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_KV_KV_OPS_H_
