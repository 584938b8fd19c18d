#include "compute/cpu/cpu_kv_ops.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "compute/cpu/cpu_pass.h"
#include "compute/cpu/matmul/quantize.h"
#include "compute/host/host_memory.h"

namespace talon {
namespace {

uint8_t* At(void* array, int64_t element, DType dtype) {
  return static_cast<uint8_t*>(array) + element * DTypeSize(dtype);
}

}  // namespace

void CpuKvOps::StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv, int layer) {
  const PassPlan& plan = AsCpuPass(pass).plan;
  const std::vector<int32_t>& places = AsCpuPass(pass).places;
  const KvShape& shape = kv.shape;
  TALON_CHECK(k.rows == plan.num_rows() && v.rows == plan.num_rows());
  TALON_CHECK(k.cols == shape.kv_heads * shape.head_dim && v.cols == k.cols);
  const KvLayer& arrays = kv.layers[layer];
  ForRows(*pool_, k.rows, k.cols * 0.4, [&](int64_t r) {
    const int place = places[r];
    for (int head = 0; head < shape.kv_heads; ++head) {
      const int64_t offset =
          place < 0 ? StagedOffset(shape, ~place, head) : SlotOffset(shape, place, head);
      const int start = head * shape.head_dim;
      ConvertFromF32(RowOf(k, r) + start, shape.head_dim, shape.dtype,
                     At(place < 0 ? arrays.k_staged : arrays.k_blocks, offset, shape.dtype));
      ConvertFromF32(RowOf(v, r) + start, shape.head_dim, shape.dtype,
                     At(place < 0 ? arrays.v_staged : arrays.v_blocks, offset, shape.dtype));
    }
  });
  pass.ReportStored(layer);
}

void CpuKvOps::CommitRows(const KvView& kv, std::span<const int32_t> rows,
                          std::span<const int32_t> slots, int num_layers) {
  TALON_CHECK(rows.size() == slots.size() && num_layers <= kv.shape.num_layers);
  const KvShape& shape = kv.shape;
  const size_t bytes = shape.head_dim * DTypeSize(shape.dtype);
  for (int layer = 0; layer < num_layers; ++layer) {
    const KvLayer& arrays = kv.layers[layer];
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        const int64_t from = StagedOffset(shape, rows[i], head);
        const int64_t to = SlotOffset(shape, slots[i], head);
        std::memcpy(At(arrays.k_blocks, to, shape.dtype), At(arrays.k_staged, from, shape.dtype),
                    bytes);
        std::memcpy(At(arrays.v_blocks, to, shape.dtype), At(arrays.v_staged, from, shape.dtype),
                    bytes);
      }
    }
  }
}

void CpuKvOps::CopySlots(const KvView& kv, std::span<const int32_t> from,
                         std::span<const int32_t> to) {
  TALON_CHECK(from.size() == to.size());
  const KvShape& shape = kv.shape;
  const size_t bytes = shape.head_dim * DTypeSize(shape.dtype);
  for (const KvLayer& arrays : kv.layers) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] == to[i]) continue;
      for (int head = 0; head < shape.kv_heads; ++head) {
        const int64_t source = SlotOffset(shape, from[i], head);
        const int64_t target = SlotOffset(shape, to[i], head);
        for (void* array : {arrays.k_blocks, arrays.v_blocks}) {
          std::memcpy(At(array, target, shape.dtype), At(array, source, shape.dtype), bytes);
        }
      }
    }
  }
}

void CpuKvOps::CopyBlock(const KvView& kv, int from, int to, int tokens) {
  const KvShape& shape = kv.shape;
  TALON_CHECK(tokens <= shape.block_size && from != to);
  const size_t bytes = static_cast<size_t>(tokens) * shape.head_dim * DTypeSize(shape.dtype);
  for (const KvLayer& arrays : kv.layers) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      const int64_t source = SlotOffset(shape, int64_t{from} * shape.block_size, head);
      const int64_t target = SlotOffset(shape, int64_t{to} * shape.block_size, head);
      for (void* array : {arrays.k_blocks, arrays.v_blocks}) {
        std::memcpy(At(array, target, shape.dtype), At(array, source, shape.dtype), bytes);
      }
    }
  }
}

void CpuKvOps::CopyStaged(const KvView& kv, std::span<const int32_t> from,
                          std::span<const int32_t> to) {
  TALON_CHECK(from.size() == to.size());
  const size_t bytes = kv.shape.RowBytes();
  for (const KvLayer& arrays : kv.layers) {
    for (void* array : {arrays.k_staged, arrays.v_staged}) {
      auto* rows = static_cast<uint8_t*>(array);
      for (size_t i = 0; i < from.size(); ++i) {
        if (from[i] != to[i]) std::memcpy(rows + to[i] * bytes, rows + from[i] * bytes, bytes);
      }
    }
  }
}

void CpuKvOps::SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) {
  TALON_CHECK(kv.shape.key_summaries);
  talon::SummariseBlocks(*pool_, kv, blocks);
}

void CpuKvOps::ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                           MatrixView out) {
  const PassPlan& plan = AsCpuPass(pass).plan;
  const KvShape& shape = kv.shape;
  TALON_CHECK(q.rows == plan.num_rows());
  TALON_CHECK(q.cols % (shape.head_dim * shape.kv_heads) == 0);
  TALON_CHECK(out.rows == shape.kv_heads && out.cols >= plan.num_scored_blocks());
  const ScoreCall call{.pass = &plan,
                       .q = q,
                       .shape = shape,
                       .layer_index = layer,
                       .layer = kv.layers[layer],
                       .out = out};
  talon::ScoreBlocks(*pool_, call, &score_scratch_);
}

}  // namespace talon
