#include "compute/cpu/cpu_kv_ops.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "compute/cpu/cpu_pass.h"
#include "compute/cpu/matmul/quantize.h"
#include "compute/host/host_memory.h"
#include "compute/kv/kv_codes.h"
#include "compute/kv/kv_units.h"

namespace talon {
namespace {

// K or V of one token and kv head: a vector, or strewn over a unit.
class TokenVector {
 public:
  // `place`: a slot, or ~(staging row).
  TokenVector(const KvShape& shape, KvSide side, const KvLayer& arrays, int64_t place, int head)
      : shape_(shape), side_(side), vector_(Find(arrays, place, head)) {
    if (!shape.in_units() || place < 0) return;
    token_ = static_cast<int>(place % kUnitTokens);
    vector_.elements -= token_ * shape.VectorBytes();  // the unit
  }

  void Store(const float* from) const {
    KvElements strewn;
    uint8_t* elements = token_ < 0 ? vector_.elements : strewn.bytes;
    if (shape_.quantised()) {
      QuantiseKv(from, shape_.head_dim, shape_.dtype, elements, vector_.scale);
    } else {
      ConvertFromF32(from, shape_.head_dim, shape_.dtype, elements);
    }
    if (token_ >= 0) WriteToUnit(shape_, side_, elements, token_, vector_.elements);
  }
  void CopyTo(const TokenVector& to) const {
    if (token_ < 0 && to.token_ < 0) return CopyVectors(shape_, vector_, to.vector_);
    KvElements gathered;
    const uint8_t* elements = vector_.elements;
    if (token_ >= 0) {
      ReadFromUnit(shape_, side_, vector_.elements, token_, gathered.bytes);
      elements = gathered.bytes;
    }
    WriteToUnit(shape_, side_, elements, to.token_, to.vector_.elements);
    if (shape_.quantised()) *to.vector_.scale = *vector_.scale;
  }

 private:
  HostVector Find(const KvLayer& arrays, int64_t place, int head) const {
    const bool keys = side_ == KvSide::kKeys;
    return VectorAt(shape_, keys ? arrays.k_blocks : arrays.v_blocks,
                    keys ? arrays.k_staged : arrays.v_staged, place, head);
  }

  const KvShape& shape_;
  KvSide side_;
  HostVector vector_;  // or the unit, with the token's scale
  int token_ = -1;     // in the unit
};

// Copies K and V of one token at every head.
void CopyToken(const KvShape& shape, const KvLayer& arrays, int64_t from, int64_t to) {
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      TokenVector(shape, side, arrays, from, head)
          .CopyTo(TokenVector(shape, side, arrays, to, head));
    }
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
      TokenVector(shape, KvSide::kKeys, arrays, places[r], head).Store(RowOf(k, r) + start);
      TokenVector(shape, KvSide::kValues, arrays, places[r], head).Store(RowOf(v, r) + start);
    }
  });
  pass.ReportStored(layer);
}

void CpuKvOps::CommitRows(const KvView& kv, std::span<const int32_t> rows,
                          std::span<const int32_t> slots, int num_layers) {
  TALON_CHECK(rows.size() == slots.size() && num_layers <= kv.shape.num_layers);
  for (int layer = 0; layer < num_layers; ++layer) {
    for (size_t i = 0; i < rows.size(); ++i) {
      CopyToken(kv.shape, kv.layers[layer], ~int64_t{rows[i]}, slots[i]);
    }
  }
}

void CpuKvOps::CopySlots(const KvView& kv, std::span<const int32_t> from,
                         std::span<const int32_t> to) {
  TALON_CHECK(from.size() == to.size());
  for (const KvLayer& arrays : kv.layers) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] != to[i]) CopyToken(kv.shape, arrays, from[i], to[i]);
    }
  }
}

void CpuKvOps::CopyBlock(const KvView& kv, int from, int to, int tokens) {
  const KvShape& shape = kv.shape;
  TALON_CHECK(tokens <= shape.block_size && from != to);
  const int64_t from_slot = int64_t{from} * shape.block_size;
  const int64_t to_slot = int64_t{to} * shape.block_size;
  const int whole = shape.in_units() ? tokens / kUnitTokens * kUnitTokens : tokens;
  for (const KvLayer& arrays : kv.layers) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (const void* array : {arrays.k_blocks, arrays.v_blocks}) {
        CopyVectors(shape, VectorAt(shape, array, nullptr, from_slot, head),
                    VectorAt(shape, array, nullptr, to_slot, head), whole);
      }
    }
    for (int t = whole; t < tokens; ++t) CopyToken(shape, arrays, from_slot + t, to_slot + t);
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
