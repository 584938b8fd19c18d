#include "compute/cpu/cpu_kv_ops.h"

#include <vector>

#include "base/check.h"
#include "compute/cpu/cpu_pass.h"
#include "compute/cpu/matmul/quantize.h"
#include "compute/host/host_memory.h"
#include "compute/kv/kv_codes.h"

namespace talon {
namespace {

void StoreVector(const float* from, const KvShape& shape, const HostVector& to) {
  if (shape.quantised()) {
    QuantiseKv(from, shape.head_dim, shape.dtype, to.elements, to.scale);
  } else {
    ConvertFromF32(from, shape.head_dim, shape.dtype, to.elements);
  }
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
    for (int head = 0; head < shape.kv_heads; ++head) {
      const int start = head * shape.head_dim;
      StoreVector(RowOf(k, r) + start, shape,
                  VectorAt(shape, arrays.k_blocks, arrays.k_staged, places[r], head));
      StoreVector(RowOf(v, r) + start, shape,
                  VectorAt(shape, arrays.v_blocks, arrays.v_staged, places[r], head));
    }
  });
  pass.ReportStored(layer);
}

void CpuKvOps::CommitRows(const KvView& kv, std::span<const int32_t> rows,
                          std::span<const int32_t> slots, int num_layers) {
  TALON_CHECK(rows.size() == slots.size() && num_layers <= kv.shape.num_layers);
  const KvShape& shape = kv.shape;
  for (int layer = 0; layer < num_layers; ++layer) {
    const KvLayer& arrays = kv.layers[layer];
    const auto commit = [&](const void* blocks, const void* staged, size_t i) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        CopyVectors(shape, VectorAt(shape, blocks, staged, ~rows[i], head),
                    VectorAt(shape, blocks, staged, slots[i], head));
      }
    };
    for (size_t i = 0; i < rows.size(); ++i) {
      commit(arrays.k_blocks, arrays.k_staged, i);
      commit(arrays.v_blocks, arrays.v_staged, i);
    }
  }
}

void CpuKvOps::CopySlots(const KvView& kv, std::span<const int32_t> from,
                         std::span<const int32_t> to) {
  TALON_CHECK(from.size() == to.size());
  const KvShape& shape = kv.shape;
  for (const KvLayer& arrays : kv.layers) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] == to[i]) continue;
      for (int head = 0; head < shape.kv_heads; ++head) {
        for (const void* array : {arrays.k_blocks, arrays.v_blocks}) {
          CopyVectors(shape, VectorAt(shape, array, nullptr, from[i], head),
                      VectorAt(shape, array, nullptr, to[i], head));
        }
      }
    }
  }
}

void CpuKvOps::CopyBlock(const KvView& kv, int from, int to, int tokens) {
  const KvShape& shape = kv.shape;
  TALON_CHECK(tokens <= shape.block_size && from != to);
  for (const KvLayer& arrays : kv.layers) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (const void* array : {arrays.k_blocks, arrays.v_blocks}) {
        CopyVectors(shape, VectorAt(shape, array, nullptr, int64_t{from} * shape.block_size, head),
                    VectorAt(shape, array, nullptr, int64_t{to} * shape.block_size, head), tokens);
      }
    }
  }
}

void CpuKvOps::CopyStaged(const KvView& kv, std::span<const int32_t> from,
                          std::span<const int32_t> to) {
  TALON_CHECK(from.size() == to.size());
  const KvShape& shape = kv.shape;
  for (const KvLayer& arrays : kv.layers) {
    for (const void* array : {arrays.k_staged, arrays.v_staged}) {
      for (size_t i = 0; i < from.size(); ++i) {
        if (from[i] == to[i]) continue;
        CopyVectors(shape, VectorAt(shape, nullptr, array, ~int64_t{from[i]}, 0),
                    VectorAt(shape, nullptr, array, ~int64_t{to[i]}, 0), shape.kv_heads);
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
