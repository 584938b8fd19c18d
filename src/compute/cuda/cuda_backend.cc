#include "compute/cuda/cuda_backend.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/contain.h"
#include "base/math.h"
#include "compute/cuda/cuda_layer_ops.h"
#include "compute/cuda/cuda_pass.h"
#include "compute/cuda/elementwise.h"
#include "compute/cuda/experts/cuda_expert_ops.h"
#include "compute/cuda/gemm/gemm.h"
#include "compute/cuda/gemm/matrix_peak.h"
#include "compute/cuda/gemm/weight.h"
#include "compute/cuda/kv/cuda_kv_ops.h"
#include "compute/cuda/kv/kv_ops.h"
#include "compute/cuda/runtime/context.h"
#include "compute/cuda/runtime/copy_rows.h"
#include "compute/cuda/runtime/few_rows.h"
#include "compute/cuda/runtime/open_device.h"
#include "compute/cuda/runtime/rank_exchange.h"
#include "compute/cuda/runtime/rank_link.h"
#include "compute/cuda/runtime/read_bandwidth.h"
#include "compute/cuda/tokens/cuda_token_ops.h"
#include "compute/fp8.h"
#include "compute/weight_parts.h"

namespace talon {
namespace {

using cuda::CudaClock;
using cuda::CudaPass;
using cuda::CudaWeight;
using cuda::FewIndices;
using cuda::PlanOf;

class CudaBackend : public Backend {
 public:
  CudaBackend(const cuda::Device& device, const CudaOptions& options)
      : device_(device), options_(options), context_(device.stream), gemm_(context_.stream()) {}
  ~CudaBackend() override {
    SetLink(nullptr);
    cuda::CloseDevice(device_);
  }

  // How ranks exchange rows from now on; null: through the host.
  void SetLink(std::unique_ptr<cuda::RankLink> link) {
    context_.SetLink(link.get());
    exchange_.SetLink(link.get());
    link_ = std::move(link);
  }

  BackendInfo info() const override {
    return {"cuda", fmt::format("cuda, {}{}", device_.name, link_ != nullptr ? ", NCCL" : ""),
            RankSplit::kOutputs, /*queues_exchanges=*/link_ != nullptr};
  }
  LayerOps* layer_ops() override { return &layer_ops_; }
  ExpertOps* expert_ops() override { return &expert_ops_; }
  KvOps* kv_ops() override { return &kv_ops_; }
  TokenOps* token_ops() override { return &token_ops_; }
  DeviceClock* clock() override { return context_.clock(); }
  const cuda::Stream& stream() const { return context_.stream(); }

  Result<Buffer> Allocate(size_t bytes, Placement placement) override {
    return placement == Placement::kOffloaded ? cuda::AllocatePinned(bytes)
                                              : cuda::AllocateDevice(stream(), bytes);
  }
  void CopyIn(void* device, const void* host, size_t bytes) override {
    context_.Copy(device, host, bytes);
  }
  void CopyOut(void* host, const void* device, size_t bytes) override {
    context_.Copy(host, device, bytes);
  }
  void Synchronize() override { context_.Synchronize(); }

  Result<std::unique_ptr<Weight>> PackWeight(std::span<const HostMatrix> parts, WeightFormat format,
                                             const WeightUse& use) override;

  std::unique_ptr<Pass> NewPass(int query_heads) override;
  void LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) override;
  void Record(Pass* pass, const Pass* second, uint64_t key,
              const std::function<void()>& ops) override;

  void Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) override;
  void MatMul(const MatMulArgs& args) override;
  void FeedForward(MatrixView x, const float* norm, float epsilon,
                   const FeedForwardWeights& weights) override;
  void RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                  MatrixView angles) override;
  void ProjectQkv(const Pass& pass, const MatMulArgs& product, const QkvRows& rows,
                  MatrixView angles, const KvView& kv, int layer) override;
  void AttentionMatMul(const Pass& pass, const AttentionInput& input, const Weight& w,
                       const float* bias, MatrixView out) override;
  void GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) override;
  void CopyRows(MatrixView x, std::span<const int32_t> from, MatrixView out,
                std::span<const int32_t> to) override;
  void GatherPassRows(const Pass& pass, PassRows rows, MatrixView x, MatrixView out) override;
  void GatherColumns(Ranks* ranks, MatrixView part, std::span<const int> bounds,
                     MatrixView whole) override {
    exchange_.GatherColumns(ranks, part, bounds, whole);
  }

 private:
  // Room for rows that become the left operand of a product with `w` (Rounded), padded as w needs
  // it.
  cuda::RowsOut Operand(const CudaWeight& w, int rows, cuda::Scratch* scratch);
  // The same in FP8. REQUIRES: w has FP8 activations.
  cuda::RowsOut Fp8Operand(const CudaWeight& w, int rows, cuda::Scratch* scratch);
  // The left operand of a product with `w`: x, or x rounded to FP8 if it is not yet.
  cuda::Operand Rounded(const cuda::RowsOut& x, int rows, const CudaWeight& w);
  // RmsNorm(x) as the left operand of a product with `w`; x itself if `norm` is null.
  cuda::Operand NormedOperand(MatrixView x, const float* norm, float epsilon, const CudaWeight& w);
  // out += x * w^T (+ bias). With several ranks, each has the columns of x that OwnInputs names,
  // and some outputs of w.
  void AddProduct(const cuda::RowsOut& x, const CudaWeight& w, const float* bias, Ranks* ranks,
                  MatrixView out);

  cuda::Device device_;
  CudaOptions options_;
  cuda::Context context_;
  cuda::CudaLayerOps layer_ops_{&context_};
  std::unique_ptr<cuda::RankLink> link_;  // null: ranks exchange through the host
  cuda::RankExchange exchange_{&context_};
  cuda::CudaExpertOps expert_ops_{&context_, &exchange_};
  cuda::CudaKvOps kv_ops_{&context_};
  cuda::CudaTokenOps token_ops_{&context_};
  cuda::WeightPacker packer_{&context_.stream()};
  cuda::Gemm gemm_;
  cuda::Scratch operand_{&context_.stream(), context_.generation()};
  cuda::Scratch fp8_operand_{&context_.stream(), context_.generation()};
  cuda::Scratch gated_{&context_.stream(), context_.generation()};
  cuda::Scratch gate_up_{&context_.stream(), context_.generation()};
};

Result<std::unique_ptr<Weight>> CudaBackend::PackWeight(std::span<const HostMatrix> parts,
                                                        WeightFormat format, const WeightUse& use) {
  cuda::UseDevice(stream());
  using Codes = cuda::WeightPacker::Codes;
  TALON_ASSIGN_OR_RETURN(const bool reads_codes, gemm_.ReadsCodes());
  Codes codes = reads_codes && !use.expert ? Codes::kTiles : Codes::kNone;
  if (HasFp8Activations(parts, format, use.activations)) {
    if (!reads_codes) {
      return Unimplemented("activations: fp8, but this GPU is not of compute capability 9.0");
    }
    codes = Codes::kFp8Slices;
  }
  TALON_ASSIGN_OR_RETURN(auto weight, packer_.Pack(parts, format, codes));
  weight->SetShare({.whole_rows = use.whole_rows,
                    .input_bounds = std::vector(use.bounds.begin(), use.bounds.end())});
  TALON_RETURN_IF_ERROR(gemm_.Reserve(*weight));
  ++*context_.generation();  // reserved memory may have moved
  return std::unique_ptr<Weight>(std::move(weight));
}

// ---- Passes and their CUDA graphs ----

std::unique_ptr<Pass> CudaBackend::NewPass(int query_heads) {
  return std::make_unique<CudaPass>(stream(), query_heads, options_);
}

void CudaBackend::LoadPass(const PassPlan& plan, const KvShape& shape, Pass* pass) {
  const CudaClock::Batch batch(context_.clock());
  auto* cuda_pass = static_cast<CudaPass*>(pass);
  cuda_pass->Load(plan, shape, context_.uploads());
  cuda_pass->ClearStored();
  layer_ops_.ReserveAttention(*cuda_pass, shape.head_dim);
}

void CudaBackend::Record(Pass* pass, const Pass* second, uint64_t key,
                         const std::function<void()>& ops) {
  const CudaClock::Batch batch(context_.clock());
  cuda::UseDevice(stream());
  try {
    static_cast<CudaPass*>(pass)->RunAsGraph(static_cast<const CudaPass*>(second), key,
                                             *context_.generation(), ops);
  } catch (...) {
    // Destructors wait for what is queued. After a failure of this rank alone, in a drafter's head,
    // that ends, and the ranks go on.
    if (link_ != nullptr && !Contain([&] { context_.Synchronize(); }).ok()) link_->Abort();
    throw;
  }
}

// ---- Inputs ----

void CudaBackend::Embed(const Pass& pass, const void* table, DType dtype, MatrixView out) {
  TALON_CHECK(out.rows == PlanOf(pass).rows);
  cuda::Embed(stream(), PlanOf(pass), table, dtype, out);
}

void CudaBackend::RopeAngles(const Pass& pass, const float* inv_freq, int half, float scale,
                             MatrixView angles) {
  TALON_CHECK(angles.rows == PlanOf(pass).rows && angles.cols == 2 * half);
  cuda::RopeAngles(stream(), PlanOf(pass), inv_freq, half, scale, angles);
}

// ---- Products ----

cuda::RowsOut CudaBackend::Operand(const CudaWeight& w, int rows, cuda::Scratch* scratch) {
  const DType dtype = w.rows_dtype();
  const int padded = w.padded_cols();
  void* data = scratch->Get(static_cast<size_t>(rows) * padded * DTypeSize(dtype));
  return {data, dtype, padded, w.cols(), padded};
}

cuda::RowsOut CudaBackend::Fp8Operand(const CudaWeight& w, int rows, cuda::Scratch* scratch) {
  const int padded = w.padded_cols();
  const size_t codes = static_cast<size_t>(rows) * padded;
  const int64_t scale_stride = cuda::Fp8ScaleStride(rows);
  const size_t scales = padded / kFp8Group * scale_stride;
  auto* data = scratch->GetAs<uint8_t>(codes + scales * sizeof(float));
  return {data,
          DType::kF8E4M3,
          padded,
          w.cols(),
          padded,
          /*scales=*/reinterpret_cast<float*>(data + codes),
          scale_stride};
}

cuda::Operand CudaBackend::Rounded(const cuda::RowsOut& x, int rows, const CudaWeight& w) {
  if (x.dtype == w.operand_dtype()) return {x.data, rows, x.stride, x.scales, x.scale_stride};
  const cuda::RowsOut rounded = Fp8Operand(w, rows, &fp8_operand_);
  cuda::RoundToFp8(stream(), rows, x, rounded);
  return Rounded(rounded, rows, w);
}

cuda::Operand CudaBackend::NormedOperand(MatrixView x, const float* norm, float epsilon,
                                         const CudaWeight& w) {
  TALON_CHECK(x.cols == w.cols());
  if (w.fp8_activations() && norm != nullptr && cuda::CanRmsNormToFp8(x, norm)) {
    const cuda::RowsOut operand = Fp8Operand(w, x.rows, &fp8_operand_);
    cuda::RmsNorm(stream(), x, norm, epsilon, operand);
    return Rounded(operand, x.rows, w);
  }
  const cuda::RowsOut operand = Operand(w, x.rows, &operand_);
  if (norm != nullptr) {
    cuda::RmsNorm(stream(), x, norm, epsilon, operand);
  } else {
    cuda::Convert(stream(), x, operand);
  }
  return Rounded(operand, x.rows, w);
}

namespace {

// The columns of the operand of a product with `w` that this rank computes.
cuda::RowsOut OwnInputs(const cuda::RowsOut& operand, const CudaWeight& w, const Ranks* ranks) {
  if (ranks == nullptr) return operand;
  const std::span<const int> bounds = w.input_bounds();
  TALON_CHECK(static_cast<int>(bounds.size()) == ranks->size() + 1 && bounds.back() == w.cols());
  const int first = bounds[ranks->rank()], count = bounds[ranks->rank() + 1] - first;
  auto* data = static_cast<uint8_t*>(operand.data) + first * DTypeSize(operand.dtype);
  // Columns come in pairs; only the last can be alone, with padding behind it.
  return {data, operand.dtype, operand.stride, count, RoundUp(count, 2)};
}

}  // namespace

void CudaBackend::AddProduct(const cuda::RowsOut& x, const CudaWeight& w, const float* bias,
                             Ranks* ranks, MatrixView out) {
  if (ranks == nullptr) {
    return gemm_.Run(
        {.x = Rounded(x, out.rows, w), .w = &w, .bias = bias, .out = out, .accumulate = true});
  }
  const auto value_bytes = static_cast<int>(DTypeSize(x.dtype));
  const cuda::DeviceRows inputs{x.data, out.rows, x.stride * value_bytes};
  exchange_.ShareColumns(ranks, inputs, w.input_bounds(), value_bytes);
  if (x.cols < x.padded_cols) {
    TALON_CUDA_CHECK(cudaMemset2DAsync(static_cast<uint8_t*>(x.data) + x.cols * value_bytes,
                                       inputs.stride, 0, (x.padded_cols - x.cols) * value_bytes,
                                       out.rows, stream().handle));
  }
  const std::vector<int> outputs = EvenBounds(w.whole_rows(), ranks->size());
  const int first = outputs[ranks->rank()];
  gemm_.Run({.x = Rounded(x, out.rows, w),
             .w = &w,
             .bias = bias == nullptr ? nullptr : bias + first,
             .out = out.Cols(first, w.rows()),
             .accumulate = true});
  exchange_.ShareColumns(ranks, {out.data, out.rows, out.stride * int64_t{sizeof(float)}}, outputs,
                         sizeof(float));
}

void CudaBackend::MatMul(const MatMulArgs& args) {
  const CudaClock::Batch batch(context_.clock());
  const auto& weight = static_cast<const CudaWeight&>(*args.w);
  gemm_.Run({.x = NormedOperand(args.x, args.norm, args.epsilon, weight),
             .w = &weight,
             .bias = args.bias,
             .out = args.out,
             .accumulate = args.accumulate});
}

// ---- Q, K and V ----

void CudaBackend::ProjectQkv(const Pass& pass, const MatMulArgs& product, const QkvRows& rows,
                             MatrixView angles, const KvView& kv, int layer) {
  const auto& weight = static_cast<const CudaWeight&>(*product.w);
  TALON_CHECK(rows.k.rows == PlanOf(pass).rows && angles.rows == rows.k.rows);
  const bool aligned = product.out.stride % 4 == 0 && angles.stride % 4 == 0;
  // A scale needs all of a head.
  if (rows.q_norm != nullptr || rows.k_norm != nullptr || kv.shape.quantised() || !aligned ||
      product.accumulate ||
      !gemm_.StoresHeads(weight, product.x.rows, kv.shape.head_dim, angles.cols)) {
    MatMul(product);
    cuda::RotateAndStore(stream(), PlanOf(pass), rows, angles, kv.shape, kv.layers[layer]);
    return pass.ReportStored(layer);
  }
  gemm_.Run({.x = NormedOperand(product.x, product.norm, product.epsilon, weight),
             .w = &weight,
             .bias = product.bias,
             .out = product.out,
             .heads = {.places = PlanOf(pass).places,
                       .angles = angles.data,
                       .angle_stride = angles.stride,
                       .query_heads = rows.q.cols / kv.shape.head_dim,
                       .shape = kv.shape,
                       .layer = kv.layers[layer]}});
  pass.ReportStored(layer);
}

// ---- Attention ----

void CudaBackend::AttentionMatMul(const Pass& pass, const AttentionInput& input, const Weight& w,
                                  const float* bias, MatrixView out) {
  const auto& weight = static_cast<const CudaWeight&>(w);
  const cuda::RowsOut operand = Operand(weight, input.q.rows, &operand_);
  layer_ops_.AttentionTo(pass, input, OwnInputs(operand, weight, input.ranks));
  AddProduct(operand, weight, bias, input.ranks, out);
}

// ---- Feed-forward ----

void CudaBackend::FeedForward(MatrixView x, const float* norm, float epsilon,
                              const FeedForwardWeights& weights) {
  const auto& gate_up = static_cast<const CudaWeight&>(*weights.gate_up);
  const auto& down = static_cast<const CudaWeight&>(*weights.down);
  const cuda::Operand normed = NormedOperand(x, norm, epsilon, gate_up);
  const bool rounds =
      weights.ranks == nullptr && down.fp8_activations() && gemm_.RoundsSwiGlu(gate_up, x.rows);
  const cuda::RowsOut operand =
      rounds ? Fp8Operand(down, x.rows, &gated_) : Operand(down, x.rows, &gated_);
  const cuda::RowsOut gated = OwnInputs(operand, down, weights.ranks);
  if (!gemm_.RunSwiGlu(normed, gate_up, weights.gate_up_bias, gated)) {
    const int wide = gate_up.rows();
    const MatrixView both{gate_up_.GetAs<float>(static_cast<size_t>(x.rows) * wide), x.rows, wide,
                          wide};
    gemm_.Run(
        {.x = normed, .w = &gate_up, .bias = weights.gate_up_bias, .out = both, .gates = true});
    cuda::SwiGlu(stream(), both, gated);
  }
  AddProduct(operand, down, weights.down_bias, weights.ranks, x);
}

// ---- Rows that leave the pass ----

void CudaBackend::GatherPassRows(const Pass& pass, PassRows rows, MatrixView x, MatrixView out) {
  const cuda::DevicePlan& plan = PlanOf(pass);
  const bool outputs = rows == PassRows::kOutputs;
  TALON_CHECK(out.rows == (outputs ? plan.outputs : plan.features) && out.cols == x.cols);
  cuda::GatherRows(stream(), x, outputs ? plan.output_rows : plan.feature_rows, out);
}

void CudaBackend::GatherRows(MatrixView x, std::span<const int32_t> rows, MatrixView out) {
  const CudaClock::Batch batch(context_.clock());
  TALON_CHECK(out.rows == static_cast<int>(rows.size()) && out.cols == x.cols);
  if (rows.empty()) return;
  if (rows.size() <= cuda::kFewRows) {
    cuda::GatherFewRows(stream(), x, FewIndices::Of(rows), out);
  } else {
    cuda::GatherRows(stream(), x, context_.UploadIndices(rows), out);
  }
}

void CudaBackend::CopyRows(MatrixView x, std::span<const int32_t> from, MatrixView out,
                           std::span<const int32_t> to) {
  const CudaClock::Batch batch(context_.clock());
  TALON_CHECK(from.size() == to.size() && out.cols == x.cols);
  if (from.empty()) return;
  const int32_t* rows = context_.UploadIndices(from, to);
  const auto count = static_cast<int>(from.size());
  cuda::CopyRows(stream(), x, rows, out, rows + count, count);
}

}  // namespace

Result<std::unique_ptr<Backend>> NewCudaBackend(const CudaOptions& options) {
  TALON_ASSIGN_OR_RETURN(cuda::Device device, cuda::OpenDevice(options.device));
  device.stream.multiprocessors = std::max(1, device.stream.multiprocessors / options.sharers);
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(device, options));
}

int NumCudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) cudaGetLastError();  // clears the error
  return count;
}

namespace {

Result<CudaBackend*> CudaBackendOf(Backend* backend) {
  if (auto* device = dynamic_cast<CudaBackend*>(backend)) return device;
  return InvalidArgument("the {} backend is not a CUDA device", backend->info().name);
}

}  // namespace

Result<std::string> LinkGpus(Backend* backend, Ranks* ranks, bool wanted) {
  TALON_ASSIGN_OR_RETURN(CudaBackend * device, CudaBackendOf(backend));
  std::string why_not;
  TALON_RETURN_IF_ERROR(Contain([&] {
    why_not = cuda::WhyNoLink(device->stream(), ranks, wanted);
    if (why_not.empty()) device->SetLink(cuda::ConnectNccl(device->stream(), ranks));
  }));
  return why_not;
}

Result<double> MeasureCudaReadBandwidth(Backend* backend) {
  TALON_ASSIGN_OR_RETURN(CudaBackend * device, CudaBackendOf(backend));
  return cuda::ReadBandwidth(device->stream());
}

Result<double> MeasureCudaMatrixPeak(Backend* backend) {
  TALON_ASSIGN_OR_RETURN(CudaBackend * device, CudaBackendOf(backend));
  return cuda::MatrixPeak(device->stream());
}

}  // namespace talon
