#include "compute/reference/reference_kv_ops.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "compute/host/host_memory.h"
#include "compute/host/host_pass.h"
#include "compute/reference/reference_kv.h"
#include "compute/reference/reference_scores.h"

namespace talon {
namespace {

float* RowOf(const MatrixView& x, int row) { return x.data + row * x.stride; }

// Places are slots or ~(staging row).
void CopyToken(const KvShape& shape, const KvLayer& arrays, int from, int to) {
  for (int head = 0; head < shape.kv_heads; ++head) {
    CopyVectors(shape, VectorAt(shape, arrays.k_blocks, arrays.k_staged, from, head),
                VectorAt(shape, arrays.k_blocks, arrays.k_staged, to, head));
    CopyVectors(shape, VectorAt(shape, arrays.v_blocks, arrays.v_staged, from, head),
                VectorAt(shape, arrays.v_blocks, arrays.v_staged, to, head));
  }
}

}  // namespace

void ReferenceKvOps::StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv,
                             int layer) {
  const PassPlan& plan = HostPlanOf(pass);
  const KvShape& shape = kv.shape;
  TALON_CHECK(k.rows == plan.num_rows() && v.rows == plan.num_rows());
  TALON_CHECK(k.cols == shape.kv_heads * shape.head_dim && v.cols == k.cols);
  const KvLayer& arrays = kv.layers[layer];
  for (int r = 0, s = 0; r < k.rows; ++r) {
    while (r >= plan.sequence_rows[s + 1]) ++s;
    const int place = plan.PlaceOfRow(s, r);
    for (int head = 0; head < shape.kv_heads; ++head) {
      const int start = head * shape.head_dim;
      ReferenceStore(shape, RowOf(k, r) + start,
                     VectorAt(shape, arrays.k_blocks, arrays.k_staged, place, head));
      ReferenceStore(shape, RowOf(v, r) + start,
                     VectorAt(shape, arrays.v_blocks, arrays.v_staged, place, head));
    }
  }
  pass.ReportStored(layer);
}

void ReferenceKvOps::CommitRows(const KvView& kv, std::span<const int32_t> rows,
                                std::span<const int32_t> slots, int num_layers) {
  TALON_CHECK(rows.size() == slots.size());
  for (int layer = 0; layer < num_layers; ++layer) {
    const KvLayer& arrays = kv.layers[layer];
    for (size_t i = 0; i < rows.size(); ++i) CopyToken(kv.shape, arrays, ~rows[i], slots[i]);
  }
}

void ReferenceKvOps::CopySlots(const KvView& kv, std::span<const int32_t> from,
                               std::span<const int32_t> to) {
  TALON_CHECK(from.size() == to.size());
  for (const KvLayer& arrays : kv.layers) {
    for (size_t i = 0; i < from.size(); ++i) CopyToken(kv.shape, arrays, from[i], to[i]);
  }
}

void ReferenceKvOps::CopyBlock(const KvView& kv, int from, int to, int tokens) {
  std::vector<int32_t> sources(tokens);
  std::vector<int32_t> targets(tokens);
  std::iota(sources.begin(), sources.end(), from * kv.shape.block_size);
  std::iota(targets.begin(), targets.end(), to * kv.shape.block_size);
  CopySlots(kv, sources, targets);
}

void ReferenceKvOps::CopyStaged(const KvView& kv, std::span<const int32_t> from,
                                std::span<const int32_t> to) {
  TALON_CHECK(from.size() == to.size());
  for (const KvLayer& arrays : kv.layers) {
    for (size_t i = 0; i < from.size(); ++i) CopyToken(kv.shape, arrays, ~from[i], ~to[i]);
  }
}

void ReferenceKvOps::SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) {
  TALON_CHECK(kv.shape.key_summaries);
  for (const KvLayer& arrays : kv.layers) {
    for (const int32_t block : blocks) {
      for (int head = 0; head < kv.shape.kv_heads; ++head) {
        ReferenceSummary(kv.shape, arrays, block, head);
      }
    }
  }
}

void ReferenceKvOps::ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                                 MatrixView out) {
  const PassPlan& plan = HostPlanOf(pass);
  TALON_CHECK(q.rows == plan.num_rows());
  TALON_CHECK(out.rows == kv.shape.kv_heads && out.cols >= plan.num_scored_blocks());
  for (const ScoreRequest& request : plan.scores) {
    if (request.scorer == BlockScorer::kAttention) continue;
    for (int head = 0; head < kv.shape.kv_heads; ++head) {
      const auto blocks = plan.BlocksOf(request.sequence, layer, head, kv.shape.kv_heads);
      const std::vector<double> scores =
          ReferenceScores(request, q, kv.shape, kv.layers[layer],
                          std::span(blocks).first(request.num_blocks), head);
      std::ranges::copy(scores, RowOf(out, head) + request.first_column);
    }
  }
}

}  // namespace talon
