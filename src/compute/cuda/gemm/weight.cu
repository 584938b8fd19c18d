#include <algorithm>
#include <cstring>
#include <utility>

#include "base/threads.h"
#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/gemm/layout.h"
#include "compute/cuda/gemm/weight.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/weight_parts.h"

namespace talon::cuda {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;

// One block per row: to[row][col] = from[row][col].
template <typename To, typename From>
__global__ void ConvertRows(const From* from, int cols, To* to, int64_t to_stride) {
  PdlWait();
  const int64_t row = blockIdx.x;
  for (int col = static_cast<int>(threadIdx.x); col < cols; col += static_cast<int>(blockDim.x)) {
    to[row * to_stride + col] = FromFloat<To>(ToFloat(from[row * cols + col]));
  }
}

struct QuantisedRows {
  int8_t* data;  // [rows, stride]
  int64_t stride;
  float* scales;  // [groups, scale_stride], from the first row's column on
  int64_t scale_stride;
};

// One block per row; each warp takes every n-th group.
template <typename From>
__global__ void QuantiseRows(const From* from, int cols, const QuantisedRows to) {
  constexpr int kPerLane = kScaleGroup / 32;
  PdlWait();
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int groups = (cols + kScaleGroup - 1) / kScaleGroup;
  for (int group = static_cast<int>(threadIdx.x) / 32; group < groups;
       group += static_cast<int>(blockDim.x) / 32) {
    float values[kPerLane];
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int col = group * kScaleGroup + i * 32 + lane;
      values[i] = col < cols ? ToFloat(from[row * cols + col]) : 0.0f;
      largest = fmaxf(largest, fabsf(values[i]));
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, offset));
    }
    const float inverse = largest > 0 ? 127 / largest : 0.0f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float level = fminf(fmaxf(rintf(values[i] * inverse), -127.0f), 127.0f);
      to.data[row * to.stride + group * kScaleGroup + i * 32 + lane] = static_cast<int8_t>(level);
    }
    if (lane == 0) to.scales[group * to.scale_stride + row] = largest / 127;
  }
}

QuantisedRows RowsOf(const CudaWeight& weight, int64_t first) {
  return {static_cast<int8_t*>(weight.data()) + first * weight.row_bytes(), weight.row_bytes(),
          weight.scales() + first, weight.scale_stride()};
}

// Uploads host rows piece by piece through two pinned buffers: one is filled while the other is in
// flight.
class WeightUpload {
 public:
  static Result<std::unique_ptr<WeightUpload>> Create(const Stream& stream, size_t piece_bytes) {
    std::unique_ptr<WeightUpload> upload(new WeightUpload(stream));
    for (Slot& slot : upload->slots_) {
      TALON_ASSIGN_OR_RETURN(slot.pinned, AllocatePinned(piece_bytes));
      TALON_ASSIGN_OR_RETURN(slot.device, AllocateDevice(stream, piece_bytes));
      TALON_CUDA_CHECK(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming));
    }
    return std::move(upload);
  }
  ~WeightUpload() {
    cudaStreamSynchronize(stream_.handle);
    for (const Slot& slot : slots_) {
      if (slot.done != nullptr) cudaEventDestroy(slot.done);
    }
  }
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // Uploads rows [first, first + count) of `part` to rows of `weight` from `to` on.
  void Send(const HostMatrix& part, int64_t first, int64_t count, int64_t to,
            const CudaWeight& weight) {
    current_ ^= 1;
    Slot& slot = slots_[current_];
    TALON_CUDA_CHECK(cudaEventSynchronize(slot.done));
    const int64_t row_bytes = part.cols * static_cast<int64_t>(DTypeSize(part.dtype));
    const auto* source = static_cast<const uint8_t*>(part.data) + first * row_bytes;
    CopyToPinned(source, count * row_bytes, static_cast<uint8_t*>(slot.pinned.data()));
    auto* target = static_cast<uint8_t*>(weight.data()) + to * weight.row_bytes();
    if (part.dtype == weight.dtype()) {
      TALON_CUDA_CHECK(cudaMemcpy2DAsync(target, weight.row_bytes(), slot.pinned.data(), row_bytes,
                                         row_bytes, count, cudaMemcpyHostToDevice, stream_.handle));
    } else {
      TALON_CUDA_CHECK(cudaMemcpyAsync(slot.device.data(), slot.pinned.data(), count * row_bytes,
                                       cudaMemcpyHostToDevice, stream_.handle));
      Convert(slot.device.data(), part, count, to, weight);
    }
    TALON_CUDA_CHECK(cudaEventRecord(slot.done, stream_.handle));
  }

 private:
  struct Slot {
    Buffer pinned;
    Buffer device;
    cudaEvent_t done = nullptr;
  };

  explicit WeightUpload(const Stream& stream)
      : stream_(stream), pool_(std::min(4, ThreadPool::DefaultThreads())) {}

  void CopyToPinned(const uint8_t* source, int64_t bytes, uint8_t* pinned) {
    constexpr int64_t kTaskBytes = 256 << 10;
    pool_.Run((bytes + kTaskBytes - 1) / kTaskBytes, [&](int64_t task, int) {
      const int64_t begin = task * kTaskBytes;
      std::memcpy(pinned + begin, source + begin, std::min(kTaskBytes, bytes - begin));
    });
  }

  void Convert(const void* device, const HostMatrix& part, int64_t count, int64_t to,
               const CudaWeight& weight) {
    constexpr int kThreads = 256;
    const auto blocks = static_cast<unsigned>(count);
    const int cols = static_cast<int>(part.cols);
    DispatchFloatType(part.dtype, [&](auto from_type) {
      using From = decltype(from_type);
      const auto* from = static_cast<const From*>(device);
      if (weight.dtype() == DType::kI8) {
        Launch(stream_, QuantiseRows<From>, blocks, kThreads, 0, from, cols, RowsOf(weight, to));
        return;
      }
      DispatchFloatType(weight.dtype(), [&](auto to_type) {
        using To = decltype(to_type);
        To* target = static_cast<To*>(weight.data()) + to * weight.padded_cols();
        Launch(stream_, ConvertRows<To, From>, blocks, kThreads, 0, from, cols, target,
               int64_t{weight.padded_cols()});
      });
    });
  }

  Stream stream_;
  ThreadPool pool_;
  Slot slots_[2];
  int current_ = 0;
};

int64_t RowsOfPiece(const HostMatrix& part) {
  const int64_t row_bytes = part.cols * static_cast<int64_t>(DTypeSize(part.dtype));
  return std::clamp<int64_t>(kPieceBytes / row_bytes, 1, part.rows);
}

}  // namespace

Result<std::unique_ptr<CudaWeight>> CudaWeight::Allocate(const Stream& stream, int rows, int cols,
                                                         DType dtype) {
  std::unique_ptr<CudaWeight> weight(new CudaWeight);
  weight->rows_ = rows;
  weight->cols_ = cols;
  weight->dtype_ = dtype;
  weight->padded_cols_ = PaddedCols(cols, static_cast<int>(DTypeSize(dtype)));
  const auto add_context = [&](const Status& status) {
    return status.WithContext(fmt::format("weight of {} x {} {}", rows, cols, DTypeName(dtype)));
  };
  auto data = AllocateDevice(stream, static_cast<size_t>(rows) * weight->row_bytes());
  if (!data.ok()) return add_context(data.status());
  weight->data_ = std::move(data).value();
  if (dtype == DType::kI8) {
    weight->scale_stride_ = (rows + kMaxTileOutputs - 1) / kMaxTileOutputs * kMaxTileOutputs;
    const size_t groups = weight->padded_cols_ / kScaleGroup;
    auto scales = AllocateDevice(stream, groups * weight->scale_stride_ * sizeof(float));
    if (!scales.ok()) return add_context(scales.status());
    weight->scales_ = std::move(scales).value();
  }
  return std::move(weight);
}

Result<std::unique_ptr<CudaWeight>> PackWeight(const Stream& stream,
                                               std::span<const HostMatrix> parts,
                                               WeightFormat format) {
  TALON_RETURN_IF_ERROR(CheckWeightParts(parts));
  if (format == WeightFormat::kInt4) {
    return InvalidArgument("weights: int4 is for the CPU, cuda has auto, f32, f16, bf16 and int8");
  }
  int64_t rows = 0;
  int64_t piece_bytes = 0;
  for (const HostMatrix& part : parts) {
    rows += part.rows;
    piece_bytes = std::max(
        piece_bytes, RowsOfPiece(part) * part.cols * static_cast<int64_t>(DTypeSize(part.dtype)));
  }
  TALON_ASSIGN_OR_RETURN(auto weight, CudaWeight::Allocate(stream, static_cast<int>(rows),
                                                           static_cast<int>(parts[0].cols),
                                                           StoredWeightType(parts, format)));
  TALON_ASSIGN_OR_RETURN(auto upload, WeightUpload::Create(stream, piece_bytes));
  int64_t to = 0;
  for (const HostMatrix& part : parts) {
    const int64_t step = RowsOfPiece(part);
    for (int64_t first = 0; first < part.rows; first += step) {
      const int64_t count = std::min(step, part.rows - first);
      upload->Send(part, first, count, to + first, *weight);
    }
    to += part.rows;
  }
  TALON_CUDA_CHECK(cudaStreamSynchronize(stream.handle));
  return std::move(weight);
}

}  // namespace talon::cuda
