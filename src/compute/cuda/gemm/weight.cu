#include <algorithm>
#include <cstring>
#include <utility>

#include "base/math.h"
#include "base/threads.h"
#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/gemm/layout.h"
#include "compute/cuda/gemm/mxfp4_tiles.h"
#include "compute/cuda/gemm/quantised/pack.h"
#include "compute/cuda/gemm/weight.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/fp8.h"
#include "compute/int4.h"
#include "compute/mxfp4.h"
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
  const int groups = CeilDiv(cols, kScaleGroup);
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

// Rows of MXFP4: codes [rows, cols / 2], then exponents [rows, cols / 32].
struct Mxfp4Rows {
  const uint32_t* codes;
  const uint8_t* scales;
  int cols;

  Mxfp4Rows(const void* data, int64_t rows, int64_t cols_in)
      : codes(static_cast<const uint32_t*>(data)),
        scales(static_cast<const uint8_t*>(data) + rows * cols_in / 2),
        cols(static_cast<int>(cols_in)) {}
  __device__ uint32_t Word(int64_t row, int word) const { return codes[row * (cols / 8) + word]; }
  __device__ uint8_t Exponent(int64_t row, int group) const {
    return scales[row * (cols / kMxfp4Group) + group];
  }
};

// One block per row: into row `to_row` of the tiles.
__global__ void TileRows(const __grid_constant__ Mxfp4Rows from, int64_t to_row, uint32_t* codes,
                         uint8_t* scales) {
  PdlWait();
  const int64_t row = to_row + blockIdx.x;
  const int tiles = CeilDiv(from.cols, kMxfp4TileCols);
  const int within = static_cast<int>(row % kMxfp4TileRows);
  for (int i = static_cast<int>(threadIdx.x); i < from.cols / 8;
       i += static_cast<int>(blockDim.x)) {
    const int64_t tile = row / kMxfp4TileRows * tiles + i / 16;
    const int piece = i % 16 / 4, lane = within % 8 * 4 + i % 4;
    codes[tile * (kMxfp4TileBytes / 4) + within / 8 * 128 + lane * 4 + piece] =
        Mxfp4Word(from.Word(blockIdx.x, i));
    if (i % 4 == 0) {
      scales[tile * kMxfp4TileScales + within * 4 + piece] =
          Mxfp4Scale(from.Exponent(blockIdx.x, i / 4));
    }
  }
}

// One block per row: to[row][col] = the value of the code.
template <typename To>
__global__ void ExpandRows(const __grid_constant__ Mxfp4Rows from, To* to, int64_t to_stride) {
  PdlWait();
  const int64_t row = blockIdx.x;
  for (int col = static_cast<int>(threadIdx.x); col < from.cols;
       col += static_cast<int>(blockDim.x)) {
    const uint32_t code = from.Word(row, col / 8) >> (4 * (col % 8)) & 0xF;
    const int size = code & 7;  // 0, 1/2, 1, 3/2, 2, 3, 4, 6
    const float value = size < 2 ? 0.5f * size : ldexpf(2 + size % 2, size / 2 - 2);
    const int exponent = from.Exponent(row, col / kMxfp4Group);
    const float scaled = exponent == 255 ? NAN : ldexpf(value, exponent - 127);
    to[row * to_stride + col] = FromFloat<To>(code & 8 ? -scaled : scaled);
  }
}

int64_t HostRowBytes(const HostMatrix& part) {
  if (part.dtype == DType::kMxfp4) return part.cols / 2 + part.cols / kMxfp4Group;
  return part.cols * static_cast<int64_t>(DTypeSize(part.dtype));
}

int64_t RowsOfPiece(const HostMatrix& part) {
  return std::clamp<int64_t>(kPieceBytes / HostRowBytes(part), 1, part.rows);
}

// The grid of codes that all parts can be kept on: that of their files or of `format`. kF32: none.
struct CodeKind {
  DType dtype = DType::kF32;
  CodeTiles tiles;
};
CodeKind CodesOf(std::span<const HostMatrix> parts, WeightFormat format) {
  const int64_t cols = parts[0].cols;
  switch (format) {
    case WeightFormat::kFp8:
      return {DType::kF8E4M3, TilesOfGrid(DType::kF8E4M3, cols, cols, false)};
    case WeightFormat::kInt8:
      return {DType::kI8, TilesOfGrid(DType::kI8, cols, cols, false)};
    case WeightFormat::kInt4:
      return {DType::kI4, TilesOfGrid(DType::kI4, kInt4Group, cols, false)};
    case WeightFormat::kAsStored:
      break;
    default:
      return {};
  }
  bool zeros = false;
  for (const HostMatrix& part : parts) {
    const QuantGrid* grid = part.grid.get();
    if (grid == nullptr || grid->dtype != parts[0].grid->dtype ||
        grid->group != parts[0].grid->group || !CanTile(*grid, cols)) {
      return {};
    }
    zeros = zeros || !grid->zeros.empty();
  }
  const QuantGrid& grid = *parts[0].grid;
  return {grid.dtype, TilesOfGrid(grid.dtype, grid.group, cols, zeros)};
}

// Without codes. MXFP4 is kept unless a float type is asked for.
DType TypeOnDevice(std::span<const HostMatrix> parts, WeightFormat format) {
  const bool quantises = format == WeightFormat::kFp8 || format == WeightFormat::kInt8 ||
                         format == WeightFormat::kInt4;
  const bool packed = parts[0].dtype == DType::kMxfp4;
  if (packed && (quantises || format == WeightFormat::kAsStored)) return DType::kMxfp4;
  return quantises ? DType::kI8 : StoredWeightType(parts, format);
}

}  // namespace

// Uploads host rows piece by piece through two pinned buffers: one is filled while the other is in
// flight.
class WeightPacker::Upload {
 public:
  static Result<std::unique_ptr<Upload>> Create(const Stream& stream, size_t piece_bytes) {
    std::unique_ptr<Upload> upload(new Upload(stream, piece_bytes));
    for (Slot& slot : upload->slots_) {
      TALON_ASSIGN_OR_RETURN(slot.pinned, AllocatePinned(piece_bytes));
      TALON_ASSIGN_OR_RETURN(slot.device, AllocateDevice(stream, piece_bytes));
      TALON_CUDA_CHECK(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming));
    }
    return std::move(upload);
  }
  ~Upload() {  // Pack has waited for what was sent, and the stream may be gone
    for (const Slot& slot : slots_) {
      if (slot.done != nullptr) cudaEventDestroy(slot.done);
    }
  }
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  size_t piece_bytes() const { return piece_bytes_; }

  // Uploads rows [first, first + count) of `part` to rows of `weight` from `to` on.
  void Send(const HostMatrix& part, int64_t first, int64_t count, int64_t to,
            const CudaWeight& weight) {
    current_ ^= 1;
    Slot& slot = slots_[current_];
    TALON_CUDA_CHECK(cudaEventSynchronize(slot.done));
    auto* pinned = static_cast<uint8_t*>(slot.pinned.data());
    const int64_t row_bytes = HostRowBytes(part);
    CopyRows(part, first, count, pinned);
    auto* target = static_cast<uint8_t*>(weight.data()) + to * weight.row_bytes();
    if (weight.has_codes() || weight.fp8_activations()) {
      TALON_CUDA_CHECK(cudaMemcpyAsync(slot.device.data(), pinned, count * row_bytes,
                                       cudaMemcpyHostToDevice, stream_.handle));
      PackCodes(stream_, {slot.device.data(), part.dtype, first, count, part.grid.get()}, to,
                weight, &grid_);
    } else if (part.dtype == weight.dtype() && part.dtype != DType::kMxfp4) {
      TALON_CUDA_CHECK(cudaMemcpy2DAsync(target, weight.row_bytes(), pinned, row_bytes, row_bytes,
                                         count, cudaMemcpyHostToDevice, stream_.handle));
    } else {
      TALON_CUDA_CHECK(cudaMemcpyAsync(slot.device.data(), pinned, count * row_bytes,
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

  Upload(const Stream& stream, size_t piece_bytes)
      : stream_(stream),
        pool_(std::min(8, ThreadPool::DefaultThreads())),
        piece_bytes_(piece_bytes) {}

  // Rows of MXFP4 as Mxfp4Rows has them.
  void CopyRows(const HostMatrix& part, int64_t first, int64_t count, uint8_t* pinned) {
    const auto* data = static_cast<const uint8_t*>(part.data);
    if (part.dtype != DType::kMxfp4) {
      const int64_t row_bytes = HostRowBytes(part);
      return CopyToPinned(data + first * row_bytes, count * row_bytes, pinned);
    }
    const int64_t code_bytes = part.cols / 2, scale_bytes = part.cols / kMxfp4Group;
    CopyToPinned(data + first * code_bytes, count * code_bytes, pinned);
    CopyToPinned(part.scales + first * scale_bytes, count * scale_bytes,
                 pinned + count * code_bytes);
  }

  void CopyToPinned(const uint8_t* source, int64_t bytes, uint8_t* pinned) {
    constexpr int64_t kTaskBytes = 256 << 10;
    pool_.Run(CeilDiv(bytes, kTaskBytes), [&](int64_t task, int) {
      const int64_t begin = task * kTaskBytes;
      std::memcpy(pinned + begin, source + begin, std::min(kTaskBytes, bytes - begin));
    });
  }

  void Convert(const void* device, const HostMatrix& part, int64_t count, int64_t to,
               const CudaWeight& weight) {
    constexpr int kThreads = 256;
    const auto blocks = static_cast<unsigned>(count);
    const int cols = static_cast<int>(part.cols);
    if (part.dtype == DType::kMxfp4)
      return ConvertMxfp4({device, count, part.cols}, count, to, weight);
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

  void ConvertMxfp4(const Mxfp4Rows& from, int64_t count, int64_t to, const CudaWeight& weight) {
    constexpr int kThreads = 256;
    const auto blocks = static_cast<unsigned>(count);
    if (weight.dtype() == DType::kMxfp4) {
      Launch(stream_, TileRows, blocks, kThreads, 0, from, to,
             static_cast<uint32_t*>(weight.data()), reinterpret_cast<uint8_t*>(weight.scales()));
      return;
    }
    DispatchFloatType(weight.dtype(), [&](auto to_type) {
      using To = decltype(to_type);
      To* target = static_cast<To*>(weight.data()) + to * weight.padded_cols();
      Launch(stream_, ExpandRows<To>, blocks, kThreads, 0, from, target,
             int64_t{weight.padded_cols()});
    });
  }

  Stream stream_;
  ThreadPool pool_;
  size_t piece_bytes_;
  GridMemory grid_;
  Slot slots_[2];
  int current_ = 0;
};

Result<std::unique_ptr<CudaWeight>> CudaWeight::Allocate(const Stream& stream, int rows, int cols,
                                                         DType dtype) {
  std::unique_ptr<CudaWeight> weight(new CudaWeight);
  weight->rows_ = rows;
  weight->cols_ = cols;
  weight->dtype_ = dtype;
  const auto add_context = [&](const Status& status) {
    return status.WithContext(fmt::format("weight of {} x {} {}", rows, cols, DTypeName(dtype)));
  };
  if (dtype == DType::kMxfp4) {
    const Status status = weight->AllocateTiles(stream);
    if (!status.ok()) return add_context(status);
    return std::move(weight);
  }
  weight->padded_cols_ = PaddedCols(cols, static_cast<int>(DTypeSize(dtype)));
  weight->row_bytes_ = weight->padded_cols_ * static_cast<int64_t>(DTypeSize(dtype));
  auto data = AllocateDevice(stream, static_cast<size_t>(rows) * weight->row_bytes());
  if (!data.ok()) return add_context(data.status());
  weight->data_ = std::move(data).value();
  if (dtype == DType::kI8) {
    weight->scale_stride_ = RoundUp(rows, kMaxTileOutputs);
    const size_t groups = weight->padded_cols_ / kScaleGroup;
    auto scales = AllocateDevice(stream, groups * weight->scale_stride_ * sizeof(float));
    if (!scales.ok()) return add_context(scales.status());
    weight->scales_ = std::move(scales).value();
  }
  return std::move(weight);
}

Result<std::unique_ptr<CudaWeight>> CudaWeight::AllocateCodes(const Stream& stream, int rows,
                                                              int cols, DType dtype,
                                                              const CodeTiles& tiles) {
  std::unique_ptr<CudaWeight> weight(new CudaWeight);
  weight->rows_ = rows;
  weight->cols_ = cols;
  weight->dtype_ = dtype;
  weight->has_codes_ = true;
  weight->code_tiles_ = tiles;
  weight->padded_cols_ = RoundUp(cols, kCodeTileCols);
  // Whole blocks of the GEMM.
  const size_t row_tiles = RoundUp(CeilDiv(rows, kCodeTileRows), kCodeGroups);
  const size_t bytes = row_tiles * weight->code_cols() * tiles.bytes();
  const auto add_context = [&](const Status& status) {
    return status.WithContext(fmt::format("weight of {} x {} {}", rows, cols, DTypeName(dtype)));
  };
  auto data = AllocateDevice(stream, bytes);
  if (!data.ok()) return add_context(data.status());
  weight->data_ = std::move(data).value();
  if (tiles.sets > 0) return std::move(weight);
  auto scales = AllocateDevice(stream, rows * sizeof(float));
  if (!scales.ok()) return add_context(scales.status());
  weight->scales_ = std::move(scales).value();
  return std::move(weight);
}

Result<std::unique_ptr<CudaWeight>> CudaWeight::AllocateFp8Slices(const Stream& stream, int rows,
                                                                  int cols, bool groups) {
  std::unique_ptr<CudaWeight> weight(new CudaWeight);
  weight->rows_ = rows;
  weight->cols_ = cols;
  weight->dtype_ = DType::kF8E4M3;
  weight->fp8_activations_ = true;
  weight->padded_cols_ = PaddedCols(cols, 1);
  // A GEMM reads the scales of all outputs of its tiles, which cover the padding of SwiGLU's rows.
  weight->scale_stride_ = groups ? RoundUp(rows, 4) + kFp8GroupOutputs.back() + 256 : 0;
  const int slices = weight->padded_cols_ / kFp8Group;
  const size_t scales = groups ? slices * weight->scale_stride_ : rows;
  const auto add_context = [&](const Status& status) {
    return status.WithContext(fmt::format("weight of {} x {} fp8", rows, cols));
  };
  auto data = AllocateDevice(stream, static_cast<size_t>(rows) * weight->padded_cols());
  if (!data.ok()) return add_context(data.status());
  weight->data_ = std::move(data).value();
  auto scale_data = AllocateDevice(stream, scales * sizeof(float));
  if (!scale_data.ok()) return add_context(scale_data.status());
  weight->scales_ = std::move(scale_data).value();
  return std::move(weight);
}

Status CudaWeight::AllocateTiles(const Stream& stream) {
  const int tile_cols = CeilDiv(cols_, kMxfp4TileCols);
  padded_cols_ = tile_cols * kMxfp4TileCols;
  const size_t tiles = size_t{1} * CeilDiv(rows_, kMxfp4TileRows) * tile_cols;
  TALON_ASSIGN_OR_RETURN(data_, AllocateDevice(stream, tiles * kMxfp4TileBytes));
  TALON_ASSIGN_OR_RETURN(scales_, AllocateDevice(stream, tiles * kMxfp4TileScales));
  return OkStatus();
}

WeightPacker::WeightPacker(const Stream* stream) : stream_(stream) {}
WeightPacker::~WeightPacker() = default;

Result<std::unique_ptr<CudaWeight>> WeightPacker::Allocate(std::span<const HostMatrix> parts,
                                                           WeightFormat format, Codes codes,
                                                           int outputs) {
  const int inputs = static_cast<int>(parts[0].cols);
  if (codes == Codes::kFp8Slices) {
    const bool groups = format == WeightFormat::kAsStored && parts[0].grid->group < inputs;
    return CudaWeight::AllocateFp8Slices(*stream_, outputs, inputs, groups);
  }
  const bool tiles = codes == Codes::kTiles && parts[0].dtype != DType::kMxfp4;
  const CodeKind kind = tiles ? CodesOf(parts, format) : CodeKind();
  if (kind.dtype == DType::kF32) {
    return CudaWeight::Allocate(*stream_, outputs, inputs, TypeOnDevice(parts, format));
  }
  return CudaWeight::AllocateCodes(*stream_, outputs, inputs, kind.dtype, kind.tiles);
}

Result<std::unique_ptr<CudaWeight>> WeightPacker::Pack(std::span<const HostMatrix> parts,
                                                       WeightFormat format, Codes codes) {
  TALON_RETURN_IF_ERROR(CheckWeightParts(parts));
  int64_t rows = 0;
  int64_t piece_bytes = kPieceBytes;
  for (const HostMatrix& part : parts) {
    rows += part.rows;
    piece_bytes = std::max(piece_bytes, RowsOfPiece(part) * HostRowBytes(part));
  }
  const int outputs = static_cast<int>(rows);
  TALON_ASSIGN_OR_RETURN(auto weight, Allocate(parts, format, codes, outputs));
  if (upload_ == nullptr || upload_->piece_bytes() < static_cast<size_t>(piece_bytes)) {
    TALON_ASSIGN_OR_RETURN(upload_, Upload::Create(*stream_, piece_bytes));
  }
  int64_t to = 0;
  for (const HostMatrix& part : parts) {
    const int64_t step = RowsOfPiece(part);
    for (int64_t first = 0; first < part.rows; first += step) {
      const int64_t count = std::min(step, part.rows - first);
      upload_->Send(part, first, count, to + first, *weight);
    }
    to += part.rows;
  }
  TALON_CUDA_CHECK(cudaStreamSynchronize(stream_->handle));
  return std::move(weight);
}

}  // namespace talon::cuda
