#include "compute/cuda/gemm/gemm.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "compute/cuda/gemm/f32.h"
#include "compute/cuda/gemm/layout.h"
#include "compute/cuda/runtime/device_memory.h"

namespace talon::cuda {
namespace {

// Rows per launch with split-K: bounds the memory for the partial accumulators.
constexpr int kSplitRows = 256;
// Number of blocks that split-K aims at: the fastest of those tried on an H200.
constexpr int kSplitBlocks = 200;
static_assert(kSplitBlocks <= kMaxSplitBlocks);

}  // namespace

StreamArgs MakeStreamArgs(const StreamKernel& kernel, const Operand& x, const CudaWeight& w,
                          const float* bias, MatrixView out, int blocks) {
  StreamArgs args;
  args.x = x.data;
  args.x_row_bytes = x.stride * static_cast<int64_t>(DTypeSize(w.operand_dtype()));
  args.weights = w.data();
  args.weight_row_bytes = w.row_bytes();
  args.scales = w.scales();
  args.scale_stride = w.scale_stride();
  args.bias = bias;
  args.out = out.data;
  args.out_stride = out.stride;
  args.rows = x.rows;
  args.outputs = w.rows();
  args.stages = w.padded_cols() / kernel.stage_cols;
  args.splits = ChooseSplits(CeilDiv(w.whole_rows(), kernel.outputs), args.stages, blocks);
  args.aligned = out.stride % 4 == 0 && reinterpret_cast<uintptr_t>(out.data) % 16 == 0;
  return args;
}

Status Gemm::Probe() {
  if (wgmma_probed_) return OkStatus();
  TALON_ASSIGN_OR_RETURN(wgmma_, WgmmaGemm::Create(*stream_));
  if (wgmma_ != nullptr) codes_ = std::make_unique<CodeGemm>(*stream_, wgmma_.get());
  wgmma_probed_ = true;
  return OkStatus();
}

Result<bool> Gemm::ReadsCodes() {
  TALON_RETURN_IF_ERROR(Probe());
  return codes_ != nullptr;
}

Status Gemm::Reserve(const CudaWeight& w) {
  if (w.dtype() == DType::kF32 || w.dtype() == DType::kMxfp4) return OkStatus();
  TALON_RETURN_IF_ERROR(Probe());
  if (w.has_codes()) return codes_->Reserve(w);
  if (partials_.data() == nullptr && !IsForWgmma(w)) {
    PrepareStreamKernels(stream_->shared_memory);
    constexpr size_t kAccumulators = size_t{kMaxSplitBlocks} * kMaxTileOutputs * kSplitRows;
    TALON_ASSIGN_OR_RETURN(partials_, AllocateDevice(*stream_, kAccumulators * sizeof(float)));
    constexpr size_t kArrivals = size_t{kMaxSplitBlocks} * (kSplitRows / 8);
    TALON_ASSIGN_OR_RETURN(arrivals_, AllocateDevice(*stream_, kArrivals * sizeof(int32_t)));
  }
  return OkStatus();
}

bool Gemm::StoresHeads(const CudaWeight& w, int rows, int head_dim, int rotated) const {
  return rows <= kSplitRows && w.dtype() != DType::kF32 && !IsForWgmma(w) && !w.has_codes() &&
         HoldsHeads(kMaxTileOutputs, head_dim, rotated);
}

void Gemm::Run(const GemmCall& call) {
  const Operand& x = call.x;
  const CudaWeight& w = *call.w;
  const MatrixView& out = call.out;
  TALON_CHECK(x.rows == out.rows && out.cols == w.rows() && x.stride >= w.padded_cols(),
              "{} x {} by {} x {} into {} x {}", x.rows, x.stride, w.rows(), w.cols(), out.rows,
              out.cols);
  TALON_CHECK(w.fp8_activations() == (x.scales != nullptr), "rows of another type than the weight");
  TALON_CHECK(w.dtype() != DType::kMxfp4, "mxfp4 outside of experts");
  if (x.rows == 0) return;
  if (w.dtype() == DType::kF32) {
    return LaunchF32(*stream_, {.x = static_cast<const float*>(x.data),
                                .x_stride = x.stride,
                                .weights = static_cast<const float*>(w.data()),
                                .cols = w.padded_cols(),
                                .bias = call.bias,
                                .out = out,
                                .accumulate = call.accumulate});
  }
  if (!IsForWgmma(w) && !w.has_codes()) return RunStream(call);
  RunWgmma(w, {.x = x.data,
               .rows = x.rows,
               .x_stride = x.stride,
               .x_scales = x.scales,
               .x_scale_stride = x.scale_stride,
               .bias = call.bias,
               .out = out,
               .accumulate = call.accumulate,
               .gates = call.gates});
}

WgmmaWeight Gemm::WgmmaWeightOf(const CudaWeight& w) {
  const bool groups = w.scale_stride() > 0;
  return {.data = w.data(),
          .dtype = w.dtype(),
          .rows = w.rows(),
          .whole_rows = w.whole_rows(),
          .padded_cols = w.padded_cols(),
          .scales = groups ? nullptr : w.scales(),
          .group_scales = groups ? w.scales() : nullptr,
          .group_stride = w.scale_stride()};
}

void Gemm::RunWgmma(const CudaWeight& w, WgmmaGemm::Call call) {
  if (w.has_codes()) return codes_->Run(w, call);
  call.w = WgmmaWeightOf(w);
  call.w.up_offset = call.swiglu.cols;
  wgmma_->Run(call);
}

bool Gemm::RoundsSwiGlu(const CudaWeight& gate_up, int rows) const {
  // Fewer rows are faster in narrower tiles than those that can round.
  return rows > kMaxGroups * kGroupRows && gate_up.fp8_activations() &&
         wgmma_->CanRoundSwiGlu(WgmmaWeightOf(gate_up));
}

bool Gemm::RunSwiGlu(const Operand& x, const CudaWeight& gate_up, const float* bias,
                     const RowsOut& out) {
  TALON_CHECK(2 * out.cols == gate_up.rows() && x.stride >= gate_up.padded_cols());
  if (out.dtype != gate_up.rows_dtype() && out.dtype != DType::kF8E4M3) return false;
  TALON_CHECK(out.stride % 4 == 0 && out.padded_cols % 2 == 0);
  if (gate_up.has_codes() ? !codes_->CanGate(gate_up) : !IsForWgmma(gate_up)) return false;
  // Scales of groups are read 16 bytes at a time.
  if (gate_up.fp8_activations() && gate_up.scale_stride() > 0 && out.cols % 4 != 0) return false;
  if (x.rows == 0) return true;
  RunWgmma(gate_up, {.x = x.data,
                     .rows = x.rows,
                     .x_stride = x.stride,
                     .x_scales = x.scales,
                     .x_scale_stride = x.scale_stride,
                     .bias = bias,
                     .swiglu = out,
                     .gates = true});
  return true;
}

void Gemm::RunStream(const GemmCall& call) {
  const Operand& x = call.x;
  const CudaWeight& w = *call.w;
  const StreamKernel& kernel = ChooseStreamKernel(w.dtype(), x.rows);
  StreamArgs args = MakeStreamArgs(kernel, x, w, call.bias, call.out, kSplitBlocks);
  args.partials = static_cast<float*>(partials_.data());
  args.arrivals = static_cast<int32_t*>(arrivals_.data());
  args.accumulate = call.accumulate;
  args.heads = call.heads;
  const int step = args.splits > 1 ? kSplitRows : x.rows;
  for (int first = 0; first < x.rows; first += step) {
    args.rows = std::min(step, x.rows - first);
    args.x = static_cast<const uint8_t*>(x.data) + first * args.x_row_bytes;
    args.out = call.out.data + first * call.out.stride;
    LaunchStream(*stream_, kernel, args);
  }
}

}  // namespace talon::cuda
