#include "compute/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "compute/cpu/attention/attention.h"
#include "compute/cpu/attention/block_scores.h"
#include "compute/cpu/cpu_features.h"
#include "compute/cpu/elementwise.h"
#include "compute/cpu/matmul/matmul.h"
#include "compute/cpu/matmul/memory.h"
#include "compute/cpu/matmul/quantize.h"
#include "compute/host_backend.h"
#include "compute/host_memory.h"

namespace talon {
namespace {

// Estimated nanoseconds of work below which a loop stays on the calling thread.
constexpr int64_t kMinParallelNanoseconds = 10000;

struct CpuPass : HostPass {
  std::vector<int32_t> places;  // [rows] PassPlan::PlaceOfRow
  AttentionPlan attention;
};

const CpuPass& AsCpuPass(const Pass& pass) { return static_cast<const CpuPass&>(pass); }

float* RowOf(const MatrixView& x, int64_t row) { return x.data + row * x.stride; }

uint8_t* At(void* array, int64_t element, DType dtype) {
  return static_cast<uint8_t*>(array) + element * DTypeSize(dtype);
}

class CpuBackend : public HostBackend {
 public:
  CpuBackend(int num_threads, bool touch_memory)
      : pool_(num_threads), touch_memory_(touch_memory) {}

  std::string name() const override { return "cpu"; }
  std::string description() const override {
    const int threads = pool_.num_threads();
    return fmt::format("cpu, {} thread{}, {}", threads, threads == 1 ? "" : "s",
                       MatMulKernelNames());
  }

  Result<Buffer> Allocate(size_t bytes) override { return AllocateStreamed(bytes, touch_memory_); }
  void CopyIn(void* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void CopyOut(void* host, const void* device, size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void Synchronize() override {}

  Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts,
                                             WeightFormat format) override {
    TALON_ASSIGN_OR_RETURN(auto weight, talon::PackWeight(pool_, parts, format));
    return std::unique_ptr<Weight>(std::move(weight));
  }

  std::unique_ptr<Pass> NewPass(int /*query_heads*/) override {
    return std::make_unique<CpuPass>();
  }
  void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) override;

  void Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) override;
  void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) override;
  void RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) override;
  void MatMul(MatrixView x, const Weight& w, const float* bias, MatrixView out,
              bool accumulate) override;
  void NormMatMul(MatrixView x, const float* norm, float epsilon, const Weight& w,
                  const float* bias, MatrixView out) override;
  void FeedForward(MatrixView x, const float* norm, float epsilon,
                   const FeedForwardWeights& weights) override;
  void RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                  MatrixView angles) override;
  void Rope(MatrixView x, int head_dim, MatrixView angles) override;
  void SwiGlu(MatrixView gate_up, MatrixView out) override;
  void StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv, int layer) override;
  void Attention(const Pass& pass, MatrixView q, const KvView& kv, int layer, float scale,
                 MatrixView out) override;
  void CommitRows(const KvView& kv, std::span<const int32_t> rows, std::span<const int32_t> slots,
                  int num_layers) override;
  void CopySlots(const KvView& kv, std::span<const int32_t> from,
                 std::span<const int32_t> to) override;
  void CopyBlock(const KvView& kv, int from, int to, int tokens) override;
  void CopyStaged(const KvView& kv, std::span<const int32_t> from,
                  std::span<const int32_t> to) override;
  void SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) override;
  void ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                   MatrixView out) override;
  void GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) override;
  void Argmax(MatrixView x, std::span<int32_t> out) override;
  void TopK(MatrixView x, int k, std::span<TopKEntry> out) override;

 private:
  // Calls f(row) for every row, on several threads if the work is worth it.
  template <typename F>
  void ForRows(int64_t rows, double nanoseconds_per_row, F&& f) {
    if (nanoseconds_per_row * static_cast<double>(rows) < kMinParallelNanoseconds) {
      for (int64_t row = 0; row < rows; ++row) f(row);
      return;
    }
    const int64_t tasks = std::min<int64_t>(rows, 4 * pool_.num_threads());
    pool_.Run(tasks, [&](int64_t task, int /*thread*/) {
      for (int64_t row = task * rows / tasks; row < (task + 1) * rows / tasks; ++row) f(row);
    });
  }

  ThreadPool pool_;
  bool touch_memory_;
  MatMulScratch matmul_scratch_;
  AttentionScratch attention_scratch_;
  ScoreScratch score_scratch_;
};

void CpuBackend::LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) {
  auto* loaded = static_cast<CpuPass*>(pass);
  loaded->plan = plan;
  loaded->shape = shape;
  loaded->places.clear();
  for (int s = 0; s < plan.num_sequences(); ++s) {
    const int lists = plan.NumLists(s);
    TALON_CHECK(lists == 1 || lists == shape.num_layers * shape.kv_heads,
                "{} block lists for {} layers and {} kv heads", lists, shape.num_layers,
                shape.kv_heads);
    for (int r = plan.sequence_rows[s]; r < plan.sequence_rows[s + 1]; ++r) {
      loaded->places.push_back(plan.PlaceOfRow(s, r));
    }
  }
  loaded->attention.Build(plan, shape, pool_.num_threads());
}

void CpuBackend::Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) {
  const PassPlan& plan = AsCpuPass(pass).plan;
  TALON_CHECK(out.rows == plan.num_rows());
  const size_t row_bytes = out.cols * DTypeSize(dtype);
  ForRows(out.rows, out.cols * 0.2, [&](int64_t r) {
    const auto* row = static_cast<const uint8_t*>(table) + plan.tokens[r] * row_bytes;
    ConvertToF32(row, dtype, out.cols, RowOf(out, r));
  });
}

void CpuBackend::RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) {
  TALON_CHECK(x.rows == out.rows && x.cols == out.cols);
  ForRows(x.rows, x.cols * 0.2,
          [&](int64_t r) { RmsNormRow(RowOf(x, r), x.cols, weight, epsilon, RowOf(out, r)); });
}

void CpuBackend::RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) {
  TALON_CHECK(x.cols % head_dim == 0);
  ForRows(x.rows, x.cols * 0.4, [&](int64_t r) {
    for (float* head = RowOf(x, r); head < RowOf(x, r) + x.cols; head += head_dim) {
      RmsNormRow(head, head_dim, weight, epsilon, head);
    }
  });
}

void CpuBackend::MatMul(MatrixView x, const Weight& w, const float* bias, MatrixView out,
                        bool accumulate) {
  talon::MatMul(pool_, x, static_cast<const PackedWeight&>(w), bias, out, accumulate,
                &matmul_scratch_);
}

void CpuBackend::NormMatMul(MatrixView x, const float* norm, float epsilon, const Weight& w,
                            const float* bias, MatrixView out) {
  RunProduct(pool_,
             {.x = x,
              .norm = norm,
              .epsilon = epsilon,
              .w = static_cast<const PackedWeight*>(&w),
              .bias = bias,
              .out = out},
             &matmul_scratch_);
}

void CpuBackend::FeedForward(MatrixView x, const float* norm, float epsilon,
                             const FeedForwardWeights& weights) {
  const auto& gate_up = static_cast<const PackedWeight&>(*weights.gate_up);
  if (!CanGate(gate_up)) return HostBackend::FeedForward(x, norm, epsilon, weights);
  const MatrixView gated = TakeOperand(x.rows, gate_up.rows() / 2);
  RunProduct(pool_,
             {.x = x,
              .norm = norm,
              .epsilon = epsilon,
              .w = &gate_up,
              .bias = weights.gate_up_bias,
              .out = gated,
              .sums = Sums::kGate},
             &matmul_scratch_);
  MatMul(gated, *weights.down, weights.down_bias, x, /*accumulate=*/true);
}

void CpuBackend::RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                            MatrixView angles) {
  const PassPlan& plan = AsCpuPass(pass).plan;
  TALON_CHECK(angles.rows == plan.num_rows() && angles.cols == 2 * half);
  ForRows(angles.rows, half * 40.0, [&](int64_t r) {
    float* out = RowOf(angles, r);
    for (int i = 0; i < half; ++i) {
      const float angle = static_cast<float>(plan.positions[r]) * inv_freq[i];
      out[i] = static_cast<float>(std::cos(double{angle}) * scale);
      out[half + i] = static_cast<float>(std::sin(double{angle}) * scale);
    }
  });
}

void CpuBackend::Rope(MatrixView x, int head_dim, MatrixView angles) {
  const int half = angles.cols / 2;
  TALON_CHECK(x.rows == angles.rows && x.cols % head_dim == 0 && 2 * half <= head_dim);
  ForRows(x.rows, x.cols * 0.3, [&](int64_t r) {
    for (float* head = RowOf(x, r); head < RowOf(x, r) + x.cols; head += head_dim) {
      RopeHead(head, RowOf(angles, r), half);
    }
  });
}

void CpuBackend::SwiGlu(MatrixView gate_up, MatrixView out) {
  TALON_CHECK(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols);
  ForRows(out.rows, out.cols * 1.0, [&](int64_t r) {
    SwiGluRow(RowOf(gate_up, r), RowOf(gate_up, r) + out.cols, out.cols, RowOf(out, r));
  });
}

void CpuBackend::StoreKv(const Pass& pass, MatrixView k, MatrixView v, const KvView& kv,
                         int layer) {
  const PassPlan& plan = AsCpuPass(pass).plan;
  const std::vector<int32_t>& places = AsCpuPass(pass).places;
  const KvShape& shape = kv.shape;
  TALON_CHECK(k.rows == plan.num_rows() && v.rows == plan.num_rows());
  TALON_CHECK(k.cols == shape.kv_heads * shape.head_dim && v.cols == k.cols);
  const KvLayer& arrays = kv.layers[layer];
  ForRows(k.rows, k.cols * 0.4, [&](int64_t r) {
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
}

void CpuBackend::Attention(const Pass& pass, MatrixView q, const KvView& kv, int layer, float scale,
                           MatrixView out) {
  const CpuPass& cpu_pass = AsCpuPass(pass);
  const KvShape& shape = kv.shape;
  TALON_CHECK(q.rows == cpu_pass.plan.num_rows() && out.rows == q.rows && out.cols == q.cols);
  TALON_CHECK(q.cols % (shape.head_dim * shape.kv_heads) == 0);
  const AttentionCall call{.pass = &cpu_pass.plan,
                           .plan = &cpu_pass.attention,
                           .kernels = &GetAttentionKernels(shape.dtype),
                           .q = q,
                           .out = out,
                           .shape = shape,
                           .layer_index = layer,
                           .layer = kv.layers[layer],
                           .scale = scale};
  RunAttention(pool_, call, &attention_scratch_);
}

void CpuBackend::CommitRows(const KvView& kv, std::span<const int32_t> rows,
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

void CpuBackend::CopySlots(const KvView& kv, std::span<const int32_t> from,
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

void CpuBackend::CopyBlock(const KvView& kv, int from, int to, int tokens) {
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

void CpuBackend::CopyStaged(const KvView& kv, std::span<const int32_t> from,
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

void CpuBackend::SummariseBlocks(const KvView& kv, std::span<const int32_t> blocks) {
  TALON_CHECK(kv.shape.key_summaries);
  talon::SummariseBlocks(pool_, kv, blocks);
}

void CpuBackend::ScoreBlocks(const Pass& pass, MatrixView q, const KvView& kv, int layer,
                             MatrixView out) {
  const PassPlan& plan = AsCpuPass(pass).plan;
  const KvShape& shape = kv.shape;
  TALON_CHECK(shape.key_summaries && q.rows == plan.num_rows());
  TALON_CHECK(q.cols % (shape.head_dim * shape.kv_heads) == 0);
  TALON_CHECK(out.rows == shape.kv_heads && out.cols >= plan.num_scored_blocks());
  const ScoreCall call{.pass = &plan,
                       .q = q,
                       .shape = shape,
                       .layer_index = layer,
                       .layer = kv.layers[layer],
                       .out = out};
  talon::ScoreBlocks(pool_, call, &score_scratch_);
}

void CpuBackend::GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) {
  TALON_CHECK(out.rows == static_cast<int>(rows.size()) && out.cols == x.cols);
  ForRows(out.rows, x.cols * 0.1, [&](int64_t i) {
    std::memcpy(RowOf(out, i), RowOf(x, rows[i]), x.cols * sizeof(float));
  });
}

void CpuBackend::Argmax(MatrixView x, std::span<int32_t> out) {
  TALON_CHECK(static_cast<int>(out.size()) == x.rows);
  ForRows(x.rows, x.cols * 0.2, [&](int64_t r) { out[r] = ArgmaxRow(RowOf(x, r), x.cols); });
}

void CpuBackend::TopK(MatrixView x, int k, std::span<TopKEntry> out) {
  TALON_CHECK(k <= x.cols && static_cast<int64_t>(out.size()) == int64_t{x.rows} * k);
  ForRows(x.rows, x.cols * 1.0,
          [&](int64_t r) { TopKRow(RowOf(x, r), x.cols, out.subspan(r * k, k)); });
}

}  // namespace

std::unique_ptr<Backend> NewCpuBackend(int num_threads, bool touch_memory) {
  return std::make_unique<CpuBackend>(num_threads, touch_memory);
}

}  // namespace talon
