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

// Largest number of rows for which the weight-streaming kernel (mma.sync) beats cuBLASLt. It reads
// int8 weights in place, where cuBLASLt needs them dequantised first.
constexpr int kStreamRows = 16;
constexpr int kStreamRowsInt8 = 256;
constexpr int kSmallF32Rows = 8;
// Largest number of rows for which the wgmma kernel without split-K beats cuBLASLt: one tile.
constexpr int kWgmmaRows = 128;
// Rows per launch with split-K: bounds the memory for the partial accumulators.
constexpr int kSplitRows = 256;
// Number of blocks that split-K aims at: the fastest of those tried on an H200.
constexpr int kTallBlocks = 200;
constexpr int kHeadBlocks = 264;  // QKV GEMMs of few rows
constexpr int kDeepBlocks = 132;
static_assert(kHeadBlocks <= kMaxSplitBlocks);
constexpr size_t kDequantisedBytes = 64 << 20;

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
  args.splits = ChooseSplits(CeilDiv(w.rows(), kernel.outputs), args.stages, blocks);
  args.aligned = out.stride % 4 == 0 && reinterpret_cast<uintptr_t>(out.data) % 16 == 0;
  return args;
}

Status Gemm::Reserve(const CudaWeight& w) {
  if (lt_ == nullptr && !deterministic_) {
    TALON_ASSIGN_OR_RETURN(lt_, LtGemm::Create(*stream_));
  }
  if (w.dtype() == DType::kF32) return OkStatus();
  if (!wgmma_probed_) {
    TALON_ASSIGN_OR_RETURN(wgmma_, WgmmaGemm::Create(*stream_));
    wgmma_probed_ = true;
  }
  const bool streams = wgmma_ == nullptr || !deterministic_ || w.dtype() == DType::kI8;
  if (partials_.data() == nullptr && streams) {
    PrepareStreamKernels(stream_->shared_memory);
    constexpr size_t kAccumulators = size_t{kMaxSplitBlocks} * kMaxTileOutputs * kSplitRows;
    TALON_ASSIGN_OR_RETURN(partials_, AllocateDevice(*stream_, kAccumulators * sizeof(float)));
    constexpr size_t kArrivals = size_t{kMaxSplitBlocks} * (kSplitRows / 8);
    TALON_ASSIGN_OR_RETURN(arrivals_, AllocateDevice(*stream_, kArrivals * sizeof(int32_t)));
  }
  if (w.dtype() == DType::kI8 && !deterministic_) {
    const size_t row_bytes = 2 * static_cast<size_t>(w.padded_cols());
    const size_t bytes = std::max(kDequantisedBytes, row_bytes);
    if (dequantised_.bytes() < bytes) {
      TALON_ASSIGN_OR_RETURN(dequantised_, AllocateDevice(*stream_, bytes));
    }
  }
  return OkStatus();
}

Gemm::Route Gemm::RouteOf(const CudaWeight& w, int rows, bool swiglu) const {
  switch (w.dtype()) {
    case DType::kF32:
      return Route::kF32;
    case DType::kI8:
      return !deterministic_ && rows > kStreamRowsInt8 ? Route::kCublasLt : Route::kStream;
    default:
      if (wgmma_ != nullptr && (deterministic_ || IsForWgmma(w, rows, swiglu))) {
        return Route::kWgmma;
      }
      return !deterministic_ && rows > kStreamRows ? Route::kCublasLt : Route::kStream;
  }
}

// The persistent kernel needs several tiles per block, and no padding in the weight or the next
// operand.
bool Gemm::IsForPersistent(const CudaWeight& gate_up, int rows) const {
  const bool half = gate_up.dtype() == DType::kBF16 || gate_up.dtype() == DType::kF16;
  const int gates = gate_up.rows() / 2;
  return half && !deterministic_ && rows <= kStreamRows &&
         stream_->shared_memory >= kWholeMultiprocessor && gates == PaddedCols(gates, 2) &&
         gate_up.rows() >= 3 * kDeepBlocks * kWideOutputs &&
         gate_up.padded_cols() % kWideStageCols == 0;
}

// With split-K the reduction over blocks costs more than the wgmma kernel gains.
bool Gemm::IsForWgmma(const CudaWeight& w, int rows, bool swiglu) const {
  return rows <= kWgmmaRows && wgmma_->Plan(w, swiglu).splits == 1;
}

bool Gemm::StoresHeads(const CudaWeight& w, int rows, int head_dim, int rotated) const {
  return rows <= kSplitRows && RouteOf(w, rows, /*swiglu=*/false) == Route::kStream &&
         HoldsHeads(kMaxTileOutputs, head_dim, rotated);
}

void Gemm::Run(const GemmCall& call) {
  const Operand& x = call.x;
  const CudaWeight& w = *call.w;
  const MatrixView& out = call.out;
  TALON_CHECK(x.rows == out.rows && out.cols == w.rows() && x.stride >= w.padded_cols(),
              "{} x {} by {} x {} into {} x {}", x.rows, x.stride, w.rows(), w.cols(), out.rows,
              out.cols);
  if (x.rows == 0) return;
  switch (RouteOf(w, x.rows, /*swiglu=*/false)) {
    case Route::kF32:
      return RunF32(call);
    case Route::kWgmma:
      return wgmma_->Run({.x = x.data,
                          .rows = x.rows,
                          .x_stride = x.stride,
                          .w = &w,
                          .bias = call.bias,
                          .out = out,
                          .accumulate = call.accumulate});
    case Route::kCublasLt:
      TALON_CHECK(call.heads.places == nullptr);
      if (w.dtype() == DType::kI8 ? RunDequantised(call) : RunLt(call)) return;
      break;
    case Route::kStream:
      break;
  }
  RunStream(call);
}

bool Gemm::RunSwiGlu(const Operand& x, const CudaWeight& gate_up, const float* bias,
                     const RowsOut& out) {
  TALON_CHECK(2 * out.cols == gate_up.rows() && x.stride >= gate_up.padded_cols());
  if (out.dtype != gate_up.dtype()) return false;
  TALON_CHECK(out.stride % 4 == 0 && out.padded_cols % 2 == 0);
  const bool persistent = IsForPersistent(gate_up, x.rows);
  if (!persistent && RouteOf(gate_up, x.rows, /*swiglu=*/true) != Route::kWgmma) return false;
  if (x.rows == 0) return true;
  if (persistent) {
    RunPersistent(x, gate_up, bias, out);
    return true;
  }
  wgmma_->Run({.x = x.data,
               .rows = x.rows,
               .x_stride = x.stride,
               .w = &gate_up,
               .bias = bias,
               .swiglu = out});
  return true;
}

void Gemm::RunF32(const GemmCall& call) {
  if (!deterministic_ && call.x.rows > kSmallF32Rows && RunLt(call)) return;
  LaunchF32(*stream_, {.x = static_cast<const float*>(call.x.data),
                       .x_stride = call.x.stride,
                       .weights = static_cast<const float*>(call.w->data()),
                       .cols = call.w->padded_cols(),
                       .bias = call.bias,
                       .out = call.out,
                       .accumulate = call.accumulate});
}

// Deterministic: the same tile and split-K factor for any number of rows. int8 weights are faster
// with that tile, too, and so are QKV GEMMs, with more blocks.
Gemm::StreamChoice Gemm::ChooseStream(const GemmCall& call) const {
  const CudaWeight& w = *call.w;
  if (deterministic_ || w.dtype() == DType::kI8 || call.x.rows > kStreamRows) {
    return {StreamTileKind::kTall, kTallBlocks};
  }
  if (call.heads.places != nullptr) return {StreamTileKind::kTall, kHeadBlocks};
  if (stream_->shared_memory < kWholeMultiprocessor) return {StreamTileKind::kTall, kTallBlocks};
  const bool wide = w.rows() <= kDeepBlocks * kWideOutputs && w.padded_cols() % kWideStageCols == 0;
  return {wide ? StreamTileKind::kWide : StreamTileKind::kDeep, kDeepBlocks};
}

void Gemm::RunStream(const GemmCall& call) {
  const Operand& x = call.x;
  const CudaWeight& w = *call.w;
  const auto [tile, blocks] = ChooseStream(call);
  const StreamKernel& kernel = ChooseStreamKernel(w.dtype(), tile, x.rows);
  StreamArgs args = MakeStreamArgs(kernel, x, w, call.bias, call.out, blocks);
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

void Gemm::RunPersistent(const Operand& x, const CudaWeight& gate_up, const float* bias,
                         const RowsOut& out) {
  const StreamKernel& kernel =
      ChooseStreamKernel(gate_up.dtype(), StreamTileKind::kPersistent, x.rows);
  StreamArgs args = MakeStreamArgs(kernel, x, gate_up, bias, /*out=*/{}, kDeepBlocks);
  args.gates = gate_up.rows() / 2;
  args.tiles = args.gates / kRunRows;
  args.operand = out.data;
  args.operand_stride = out.stride;
  LaunchStream(*stream_, kernel, args);
}

bool Gemm::RunLt(const GemmCall& call) {
  return lt_->Run({.x = call.x.data,
                   .x_stride = call.x.stride,
                   .weights = call.w->data(),
                   .cols = call.w->padded_cols(),
                   .dtype = call.w->dtype(),
                   .bias = call.bias,
                   .out = call.out,
                   .accumulate = call.accumulate});
}

// Runs in slices of outputs that fit the buffer of dequantised weights.
bool Gemm::RunDequantised(const GemmCall& call) {
  const CudaWeight& w = *call.w;
  const size_t row_bytes = 2 * static_cast<size_t>(w.padded_cols());
  const int step = static_cast<int>(dequantised_.bytes() / row_bytes);
  for (int first = 0; first < w.rows(); first += step) {
    const int count = std::min(step, w.rows() - first);
    LaunchDequantise(*stream_, w, first, count, dequantised_.data());
    const bool ran = lt_->Run({.x = call.x.data,
                               .x_stride = call.x.stride,
                               .weights = dequantised_.data(),
                               .cols = w.padded_cols(),
                               .dtype = DType::kBF16,
                               .bias = call.bias == nullptr ? nullptr : call.bias + first,
                               .out = call.out.Cols(first, count),
                               .accumulate = call.accumulate});
    if (!ran) {
      TALON_CHECK(first == 0, "cublasLt does the first {} outputs but not the next", first);
      return false;
    }
  }
  return true;
}

}  // namespace talon::cuda
