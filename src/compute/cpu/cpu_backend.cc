#include "compute/cpu/cpu_backend.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "compute/cpu/attention/attention.h"
#include "compute/cpu/attention/attention_mass.h"
#include "compute/cpu/cpu_features.h"
#include "compute/cpu/cpu_kv_ops.h"
#include "compute/cpu/cpu_pass.h"
#include "compute/cpu/cpu_token_ops.h"
#include "compute/cpu/elementwise.h"
#include "compute/cpu/matmul/matmul.h"
#include "compute/cpu/matmul/memory.h"
#include "compute/cpu/matmul/mxfp4/mxfp4.h"
#include "compute/cpu/matmul/quantize.h"
#include "compute/host/host_backend.h"
#include "compute/kv/kv_units.h"
#include "compute/weight_parts.h"

namespace talon {
namespace {

class CpuBackend : public HostBackend {
 public:
  CpuBackend(int num_threads, bool touch_memory)
      : pool_(num_threads), touch_memory_(touch_memory) {}

  BackendInfo info() const override {
    const int threads = pool_.num_threads();
    return {"cpu", fmt::format("cpu, {} thread{}, {}", threads, threads == 1 ? "" : "s",
                               MatMulKernelNames())};
  }
  KvLayout BlockLayout(const KvShape& shape) const override {
    if (!FitsUnits(shape)) return KvLayout::kVectors;
    return GetAttentionKernels(shape.value_type()).unit_layout;
  }
  KvOps* kv_ops() override { return &kv_ops_; }
  TokenOps* token_ops() override { return &token_ops_; }

  Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts, WeightFormat format,
                                             const WeightUse& use) override {
    if (!parts.empty() && parts[0].dtype == DType::kMxfp4) {
      TALON_RETURN_IF_ERROR(CheckWeightParts(parts));
      return NewMxfp4Weight(parts[0]);
    }
    TALON_ASSIGN_OR_RETURN(auto weight,
                           talon::PackWeight(pool_, parts, format, nullptr, use.bounds,
                                             HasFp8Activations(parts, format, use.activations)));
    return std::unique_ptr<Weight>(std::move(weight));
  }

  std::unique_ptr<Pass> NewPass(int /*query_heads*/) override {
    return std::make_unique<CpuPass>();
  }
  void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) override;

  void Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) override;
  void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) override;
  void RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) override;
  void MatMul(const MatMulArgs& args) override;
  void FeedForward(MatrixView x, const float* norm, float epsilon,
                   const FeedForwardWeights& weights) override;
  void RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                  MatrixView angles) override;
  void Rope(MatrixView x, int head_dim, MatrixView angles) override;
  void SwiGlu(MatrixView gate_up, MatrixView out) override;
  void ClampedGate(MatrixView gate_up, float limit, MatrixView out) override;
  void Attention(const Pass& pass, const AttentionInput& input, MatrixView out) override;
  void GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) override;

 private:
  Result<Buffer> AllocateMemory(size_t bytes) override {
    return AllocateStreamed(bytes, touch_memory_);
  }

  ThreadPool pool_;
  bool touch_memory_;
  CpuKvOps kv_ops_{&pool_};
  CpuTokenOps token_ops_{this, &pool_};
  MatMulScratch matmul_scratch_;
  AttentionScratch attention_scratch_;
  BlockMasses block_masses_;
};

void CpuBackend::LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) {
  auto* loaded = static_cast<CpuPass*>(pass);
  loaded->plan = plan;
  loaded->shape = shape;
  loaded->ClearStored();
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
  loaded->window = 0;
}

void CpuBackend::Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) {
  const PassPlan& plan = AsCpuPass(pass).plan;
  TALON_CHECK(out.rows == plan.num_rows());
  const size_t row_bytes = out.cols * DTypeSize(dtype);
  ForRows(pool_, out.rows, out.cols * 0.2, [&](int64_t r) {
    const auto* row = static_cast<const uint8_t*>(table) + plan.tokens[r] * row_bytes;
    ConvertToF32(row, dtype, out.cols, RowOf(out, r));
  });
}

void CpuBackend::RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) {
  TALON_CHECK(x.rows == out.rows && x.cols == out.cols);
  ForRows(pool_, x.rows, x.cols * 0.2,
          [&](int64_t r) { RmsNormRow(RowOf(x, r), x.cols, weight, epsilon, RowOf(out, r)); });
}

void CpuBackend::RmsNormHeads(MatrixView x, int head_dim, const float* weight, float epsilon) {
  TALON_CHECK(x.cols % head_dim == 0);
  ForRows(pool_, x.rows, x.cols * 0.4, [&](int64_t r) {
    for (float* head = RowOf(x, r); head < RowOf(x, r) + x.cols; head += head_dim) {
      RmsNormRow(head, head_dim, weight, epsilon, head);
    }
  });
}

void CpuBackend::MatMul(const MatMulArgs& args) {
  if (const auto* packed = dynamic_cast<const Mxfp4Weight*>(args.w)) {
    return RunMxfp4Product(pool_, args, *packed, &matmul_scratch_);
  }
  RunProduct(pool_,
             {.x = args.x,
              .norm = args.norm,
              .epsilon = args.epsilon,
              .w = static_cast<const PackedWeight*>(args.w),
              .bias = args.bias,
              .out = args.out,
              .epilogue = args.accumulate ? Epilogue::kAdd : Epilogue::kStore},
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
              .epilogue = Epilogue::kSwiGlu},
             &matmul_scratch_);
  AddProduct(gated, *weights.down, weights.down_bias, weights.ranks, x);
}

void CpuBackend::RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                            MatrixView angles) {
  const PassPlan& plan = AsCpuPass(pass).plan;
  TALON_CHECK(angles.rows == plan.num_rows() && angles.cols == 2 * half);
  ForRows(pool_, angles.rows, half * 40.0, [&](int64_t r) {
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
  ForRows(pool_, x.rows, x.cols * 0.3, [&](int64_t r) {
    for (float* head = RowOf(x, r); head < RowOf(x, r) + x.cols; head += head_dim) {
      RopeHead(head, RowOf(angles, r), half);
    }
  });
}

void CpuBackend::SwiGlu(MatrixView gate_up, MatrixView out) {
  TALON_CHECK(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols);
  ForRows(pool_, out.rows, out.cols * 1.0, [&](int64_t r) {
    SwiGluRow(RowOf(gate_up, r), RowOf(gate_up, r) + out.cols, out.cols, RowOf(out, r));
  });
}

void CpuBackend::ClampedGate(MatrixView gate_up, float limit, MatrixView out) {
  TALON_CHECK(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols);
  ForRows(pool_, out.rows, out.cols * 1.0,
          [&](int64_t r) { ClampedGateRow(RowOf(gate_up, r), out.cols, limit, RowOf(out, r)); });
}

void CpuBackend::Attention(const Pass& pass, const AttentionInput& input, MatrixView out) {
  const CpuPass& cpu_pass = AsCpuPass(pass);
  const MatrixView q = input.q;
  const KvShape& shape = input.kv.shape;
  TALON_CHECK(q.rows == cpu_pass.plan.num_rows() && out.rows == q.rows && out.cols == q.cols);
  TALON_CHECK(q.cols % (shape.head_dim * shape.kv_heads) == 0);
  const AttentionCall call{.pass = &cpu_pass.plan,
                           .plan = &cpu_pass.PlanFor(input.window, pool_.num_threads()),
                           .kernels = &GetAttentionKernels(shape.value_type()),
                           .q = q,
                           .out = out,
                           .shape = shape,
                           .layer_index = input.layer,
                           .layer = input.kv.layers[input.layer],
                           .scale = input.scale,
                           .sinks = input.sinks,
                           .scores = input.scores,
                           .masses = cpu_pass.plan.AsksAttention() ? &block_masses_ : nullptr};
  TALON_CHECK(call.masses == nullptr || (input.scores.rows == shape.kv_heads &&
                                         input.scores.cols >= cpu_pass.plan.num_scored_blocks()));
  RunAttention(pool_, call, &attention_scratch_);
}

void CpuBackend::GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) {
  TALON_CHECK(out.rows == static_cast<int>(rows.size()) && out.cols == x.cols);
  ForRows(pool_, out.rows, x.cols * 0.1, [&](int64_t i) {
    std::memcpy(RowOf(out, i), RowOf(x, rows[i]), x.cols * sizeof(float));
  });
}

}  // namespace

std::unique_ptr<Backend> NewCpuBackend(int num_threads, bool touch_memory, bool amx) {
  if (!amx) DisableAmx();
  return std::make_unique<CpuBackend>(num_threads, touch_memory);
}

}  // namespace talon
