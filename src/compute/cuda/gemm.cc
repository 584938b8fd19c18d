#include "compute/cuda/gemm.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "compute/cuda/device_memory.h"
#include "compute/cuda/gemm_f32.h"
#include "compute/cuda/gemm_layout.h"

namespace talon::cuda {
namespace {

// Rows up to which the streaming kernel of mma.sync beats cuBLASLt. It reads int8 weights in place,
// where cuBLASLt needs them widened first.
constexpr int kStreamRows = 16;
constexpr int kStreamRowsInt8 = 256;
constexpr int kSmallF32Rows = 8;
// Rows up to which the kernel for Hopper's tensor cores beats cuBLASLt, where the inputs need not
// be split: one tile.
constexpr int kWgmmaRows = 128;
// Rows of one launch where the inputs are split: bounds the memory for their sums.
constexpr int kSplitRows = 256;
// Blocks that a split product comes close to: the fastest of those tried on an H200.
constexpr int kTallBlocks = 200;
constexpr int kDeepBlocks = 132;
static_assert(kTallBlocks <= kMaxSplitBlocks);
constexpr size_t kDequantisedBytes = 64 << 20;

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

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
    TALON_ASSIGN_OR_RETURN(lt_, LtProduct::Create(*stream_));
  }
  if (w.dtype() == DType::kF32) return OkStatus();
  if (!asked_for_wgmma_) {
    wgmma_ = WgmmaProduct::Create(*stream_);
    asked_for_wgmma_ = true;
  }
  const bool streams = wgmma_ == nullptr || !deterministic_ || w.dtype() == DType::kI8;
  if (partials_.data() == nullptr && streams) {
    PrepareStreamKernels(stream_->shared_memory);
    constexpr size_t kSums = size_t{kMaxSplitBlocks} * kMaxTileOutputs * kSplitRows;
    TALON_ASSIGN_OR_RETURN(partials_, AllocateDevice(*stream_, kSums * sizeof(float)));
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

void Gemm::Run(const Operand& x, const CudaWeight& w, const float* bias, MatrixView out,
               bool accumulate) {
  TALON_CHECK(x.rows == out.rows && out.cols == w.rows() && x.stride >= w.padded_cols(),
              "{} x {} by {} x {} into {} x {}", x.rows, x.stride, w.rows(), w.cols(), out.rows,
              out.cols);
  if (x.rows == 0) return;
  if (w.dtype() == DType::kF32) {
    RunF32(x, w, bias, out, accumulate);
  } else if (w.dtype() == DType::kI8) {
    if (!deterministic_ && x.rows > kStreamRowsInt8 &&
        RunDequantised(x, w, bias, out, accumulate)) {
      return;
    }
    RunStream(x, w, bias, out, accumulate);
  } else {
    RunHalf(x, w, bias, out, accumulate);
  }
}

void Gemm::RunHalf(const Operand& x, const CudaWeight& w, const float* bias, MatrixView out,
                   bool accumulate) {
  const WgmmaProduct::Call call{.x = x.data,
                                .rows = x.rows,
                                .x_stride = x.stride,
                                .w = &w,
                                .bias = bias,
                                .out = out,
                                .accumulate = accumulate};
  if (wgmma_ != nullptr && (deterministic_ || IsForWgmma(call))) {
    wgmma_->Run(call);
    return;
  }
  if (!deterministic_ && x.rows > kStreamRows && RunLt(x, w, bias, out, accumulate)) return;
  RunStream(x, w, bias, out, accumulate);
}

// Sums over several blocks cost more than the kernel wins.
bool Gemm::IsForWgmma(const WgmmaProduct::Call& call) const {
  return call.rows <= kWgmmaRows && wgmma_->Plan(call).splits == 1;
}

bool Gemm::RunSwiGlu(const Operand& x, const CudaWeight& gate_up, const float* bias,
                     const RowsOut& out) {
  TALON_CHECK(2 * out.cols == gate_up.rows() && x.stride >= gate_up.padded_cols());
  const bool half = gate_up.dtype() == DType::kBF16 || gate_up.dtype() == DType::kF16;
  if (wgmma_ == nullptr || !half || out.dtype != gate_up.dtype()) return false;
  TALON_CHECK(out.stride % 2 == 0 && out.padded_cols % 2 == 0);
  if (x.rows == 0) return true;
  const WgmmaProduct::Call call{.x = x.data,
                                .rows = x.rows,
                                .x_stride = x.stride,
                                .w = &gate_up,
                                .bias = bias,
                                .swiglu = out};
  if (!deterministic_ && !IsForWgmma(call)) return false;
  wgmma_->Run(call);
  return true;
}

void Gemm::RunF32(const Operand& x, const CudaWeight& w, const float* bias, MatrixView out,
                  bool accumulate) {
  if (!deterministic_ && x.rows > kSmallF32Rows && RunLt(x, w, bias, out, accumulate)) return;
  LaunchF32(*stream_, {.x = static_cast<const float*>(x.data),
                       .x_stride = x.stride,
                       .weights = static_cast<const float*>(w.data()),
                       .cols = w.padded_cols(),
                       .bias = bias,
                       .out = out,
                       .accumulate = accumulate});
}

void Gemm::RunStream(const Operand& x, const CudaWeight& w, const float* bias, MatrixView out,
                     bool accumulate) {
  // The deterministic mode has one tile for all; int8 weights are faster with it, too.
  const bool deep = !deterministic_ && w.dtype() != DType::kI8 && x.rows <= kStreamRows &&
                    stream_->shared_memory >= kWholeMultiprocessor;
  const StreamTileKind tile = deep ? StreamTileKind::kDeep : StreamTileKind::kTall;
  const StreamKernel& kernel = ChooseStreamKernel(w.dtype(), tile, x.rows);
  StreamArgs args = MakeStreamArgs(kernel, x, w, bias, out, deep ? kDeepBlocks : kTallBlocks);
  args.partials = static_cast<float*>(partials_.data());
  args.arrivals = static_cast<int32_t*>(arrivals_.data());
  args.accumulate = accumulate;
  const int step = args.splits > 1 ? kSplitRows : x.rows;
  for (int first = 0; first < x.rows; first += step) {
    args.rows = std::min(step, x.rows - first);
    args.x = static_cast<const uint8_t*>(x.data) + first * args.x_row_bytes;
    args.out = out.data + first * out.stride;
    LaunchStream(*stream_, kernel, args);
  }
}

bool Gemm::RunLt(const Operand& x, const CudaWeight& w, const float* bias, MatrixView out,
                 bool accumulate) {
  return lt_->Run({.x = x.data,
                   .x_stride = x.stride,
                   .weights = w.data(),
                   .cols = w.padded_cols(),
                   .dtype = w.dtype(),
                   .bias = bias,
                   .out = out,
                   .accumulate = accumulate});
}

// In slices of outputs that fit the memory for widened weights.
bool Gemm::RunDequantised(const Operand& x, const CudaWeight& w, const float* bias, MatrixView out,
                          bool accumulate) {
  const size_t row_bytes = 2 * static_cast<size_t>(w.padded_cols());
  const int step = static_cast<int>(dequantised_.bytes() / row_bytes);
  for (int first = 0; first < w.rows(); first += step) {
    const int count = std::min(step, w.rows() - first);
    LaunchDequantise(*stream_, w, first, count, dequantised_.data());
    const bool ran = lt_->Run({.x = x.data,
                               .x_stride = x.stride,
                               .weights = dequantised_.data(),
                               .cols = w.padded_cols(),
                               .dtype = DType::kBF16,
                               .bias = bias == nullptr ? nullptr : bias + first,
                               .out = out.Cols(first, count),
                               .accumulate = accumulate});
    if (!ran) {
      TALON_CHECK(first == 0, "cublasLt does the first {} outputs but not the next", first);
      return false;
    }
  }
  return true;
}

}  // namespace talon::cuda
