#include <bit>
#include <cstdint>

#include "base/check.h"
#include "compute/cuda/attention/attention.h"
#include "compute/cuda/attention/generic.cuh"
#include "compute/cuda/attention/launch.cuh"

namespace talon::cuda {
namespace {

bool IsAligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}

AttentionArgs ArgsOf(const AttentionCall& call) {
  auto* scratch = static_cast<uint8_t*>(call.scratch);
  return {.plan = call.plan,
          .q = call.q.data,
          .q_stride = call.q.stride,
          .out = call.out,
          .k_blocks = call.layer.k_blocks,
          .v_blocks = call.layer.v_blocks,
          .k_staged = call.layer.k_staged,
          .v_staged = call.layer.v_staged,
          .block_vectors = call.shape.BlockVectors(),
          .staged_vectors = call.shape.StagedVectors(),
          .layer = call.layer_index,
          .kv_heads = call.shape.kv_heads,
          .group = call.group(),
          .head_dim = call.shape.head_dim,
          .block_shift = std::countr_zero(static_cast<unsigned>(call.shape.block_size)),
          .tail_heads = 1,
          .scale_log2 = call.scale * kLog2E,
          .window = call.window,
          .sinks = call.sinks,
          .states = reinterpret_cast<float*>(scratch + kScratchHeaderBytes),
          .counter = reinterpret_cast<uint32_t*>(scratch)};
}

}  // namespace

void RunAttention(const Stream& stream, const AttentionCall& call) {
  TALON_CHECK(call.q.rows == call.plan.rows && call.out.cols == call.q.cols);
  TALON_CHECK(call.q.cols % (call.shape.head_dim * call.shape.kv_heads) == 0);
  if (call.plan.rows == 0) return;
  const AttentionArgs args = ArgsOf(call);
  if (call.plan.tile_queries == 0) return LaunchGenericAttention(stream, call.shape.dtype, args);
  TALON_CHECK(call.scratch != nullptr && IsAligned(call.q.data, call.q.stride));
  TALON_CHECK(IsAligned(call.out.data, call.out.stride));
  switch (call.shape.dtype) {
    case DType::kBF16:
      return LaunchAttentionBF16(stream, args);
    case DType::kF8E4M3:
      return LaunchAttentionFp8(stream, args);
    case DType::kI8:
      return LaunchAttentionInt8(stream, args);
    default:
      TALON_CHECK(call.shape.dtype == DType::kF16);
      return LaunchAttentionF16(stream, args);
  }
}

}  // namespace talon::cuda
