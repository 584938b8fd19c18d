#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/contain.h"
#include "base/math.h"
#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/gemm/quantised/codes.cuh"
#include "compute/cuda/gemm/quantised/pack.h"
#include "compute/cuda/runtime/device_memory.h"
#include "compute/fp8.h"
#include "compute/int4.h"

namespace talon::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kFp8Factor = 0x1p120f;  // Fp8Codes
constexpr float kLargestFp8Scale = 64;  // times the factor still a bf16

// The grid of a piece, in device memory.
struct PieceGrid {
  float* scales = nullptr;  // [rows][groups]
  float* zeros = nullptr;   // the same, or null
  int group = 0;
  int groups = 0;
};

// One block per row: the scale that just fits the largest value.
template <typename From>
__global__ void FitRows(const From* from, int cols, float largest_code, float* scales) {
  PdlWait();
  __shared__ float warps[kThreads / 32];
  const int64_t row = blockIdx.x;
  float largest = 0;
  for (int col = static_cast<int>(threadIdx.x); col < cols; col += kThreads) {
    largest = fmaxf(largest, fabsf(ToFloat(from[row * cols + col])));
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, offset));
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const float other : warps) largest = fmaxf(largest, other);
  scales[row] = largest / largest_code;
}

// One block per row, one thread per group of int4.
template <typename From>
__global__ void FitInt4(const From* from, int cols, int groups, float* scales) {
  PdlWait();
  const int64_t row = blockIdx.x;
  for (int group = static_cast<int>(threadIdx.x); group < groups; group += kThreads) {
    float values[kInt4Group];
    const int count = min(kInt4Group, cols - group * kInt4Group);
    for (int i = 0; i < count; ++i) {
      values[i] = ToFloat(from[row * cols + group * kInt4Group + i]);
    }
    scales[row * groups + group] = QuantizeInt4(values, count).scale;
  }
}

template <DType kCodes>
__device__ __forceinline__ uint32_t CodeOf(float value, float scale, float zero) {
  if constexpr (kCodes == DType::kF8E4M3) {
    const float level = scale == 0 ? 0.0f : value / scale;
    return __nv_cvt_float_to_fp8(level, __NV_SATFINITE, __NV_E4M3);
  } else if constexpr (kCodes == DType::kI8) {
    const float level = scale == 0 ? 0.0f : value / scale;
    return static_cast<uint8_t>(static_cast<int>(fminf(fmaxf(rintf(level), -128.0f), 127.0f)));
  } else {
    const float level = scale == 0 ? 0.0f : rintf(value * (1 / scale));
    return static_cast<uint32_t>(fminf(fmaxf(level + zero, 0.0f), 15.0f));
  }
}

struct CodeRows {
  uint8_t* tiles;
  CodeTiles layout;
  int col_tiles;
  float* scales;  // [rows], or null: the tiles have them
  int64_t first;  // row

  // The tile of row `row` at `tile` along the inputs.
  __device__ uint8_t* Tile(int64_t row, int tile) const {
    return tiles + (row / kCodeTileRows * col_tiles + tile) * layout.bytes();
  }
};

// One block per row: codes, then scales and zeros.
template <typename From, DType kCodes>
__global__ void PackRows(const From* from, int cols, const PieceGrid grid, const CodeRows to) {
  constexpr int kBits = kCodes == DType::kI4 ? 4 : 8;
  constexpr int kWords = kCodeTileCols * kBits / 32;  // a row has in a tile
  PdlWait();
  const int64_t row = to.first + blockIdx.x;
  const int within = static_cast<int>(row % kCodeTileRows);
  const From* values = from + int64_t{blockIdx.x} * cols;
  const float* scales = grid.scales + int64_t{blockIdx.x} * grid.groups;
  const float* zeros =
      grid.zeros == nullptr ? nullptr : grid.zeros + int64_t{blockIdx.x} * grid.groups;
  for (int i = static_cast<int>(threadIdx.x); i < to.col_tiles * kWords; i += kThreads) {
    const int tile = i / kWords, word = i % kWords;
    uint32_t codes = 0;
    for (int index = 0; index < 32 / kBits; ++index) {
      const int col = tile * kCodeTileCols + ColumnOfCode(kBits, word, index);
      if (col >= cols) continue;
      const int group = col / grid.group;
      const float zero = zeros == nullptr ? 8.0f : zeros[group];
      const int bit = PlaceOfCode(kBits, within, col % kCodeTileCols).bit;
      codes |= CodeOf<kCodes>(ToFloat(values[col]), scales[group], zero) << bit;
    }
    const int place = PlaceOfCode(kBits, within, ColumnOfCode(kBits, word, 0)).word;
    reinterpret_cast<uint32_t*>(to.Tile(row, tile))[place] = codes;
  }
  if (to.scales != nullptr) {
    if (threadIdx.x == 0) to.scales[row] = scales[0];
    return;
  }
  const int sets = to.layout.sets;
  for (int i = static_cast<int>(threadIdx.x); i < to.col_tiles * sets; i += kThreads) {
    const int tile = i / sets, set = i % sets;
    const int col = tile * kCodeTileCols + set * (kCodeTileCols / sets);
    const int group = min(col / grid.group, grid.groups - 1);
    auto* planes = reinterpret_cast<__nv_bfloat16*>(to.Tile(row, tile) + to.layout.code_bytes());
    const float factor = kCodes == DType::kF8E4M3 ? kFp8Factor : 1.0f;
    planes[within * sets + set] = __float2bfloat16_rn(scales[group] * factor);
    if (to.layout.zeros) {
      planes[(kCodeTileRows + within) * sets + set] =
          __float2bfloat16_rn(128.0f + (zeros == nullptr ? 8.0f : zeros[group]));
    }
  }
}

// FP8 codes in slices, and their scales: [rows], or with a stride [slices, scale_stride].
struct Fp8Slices {
  uint8_t* codes;
  int64_t rows;
  float* scales;
  int64_t scale_stride;
  int64_t first;  // row
};

// One block per row.
template <typename From>
__global__ void PackFp8Slices(const From* from, int cols, const PieceGrid grid,
                              const Fp8Slices to) {
  PdlWait();
  const int64_t row = to.first + blockIdx.x;
  const From* values = from + int64_t{blockIdx.x} * cols;
  const float* scales = grid.scales + int64_t{blockIdx.x} * grid.groups;
  for (int col = static_cast<int>(threadIdx.x); col < cols; col += kThreads) {
    const float scale = scales[col / grid.group];
    to.codes[(col / kFp8Group * to.rows + row) * kFp8Group + col % kFp8Group] =
        CodeOf<DType::kF8E4M3>(ToFloat(values[col]), scale, 0);
  }
  if (to.scale_stride == 0) {
    if (threadIdx.x == 0) to.scales[row] = scales[0];
    return;
  }
  for (int slice = static_cast<int>(threadIdx.x); slice * kFp8Group < cols; slice += kThreads) {
    to.scales[slice * to.scale_stride + row] = scales[slice * kFp8Group / grid.group];
  }
}

// A block per tile, a warp per unit of it: codes are read ahead of the kernel before, pairs go
// through shared memory, so that rows are stored 256 bytes at a time.
template <typename Codes>
__global__ void ExpandTiles(const uint8_t* tiles, const CodeTiles layout, int col_tiles,
                            int first_tile, int rows, __nv_bfloat16* out) {
  constexpr int kRowWords = kCodeTileCols / 2 + 4;  // lanes' words in different banks
  constexpr int kRowVectors = kCodeTileCols / 8;
  __shared__ __align__(16) uint32_t expanded[kCodeTileRows][kRowWords];
  PdlTrigger();
  const int unit = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* tile =
      tiles + (int64_t{first_tile + static_cast<int>(blockIdx.y)} * col_tiles + blockIdx.x) *
                  layout.bytes();
  uint32_t words[kCodeTileCols / kWgmmaStepCols * Codes::kBits / 8];
#pragma unroll
  for (int i = 0; i < kCodeTileCols * Codes::kBits / 512; ++i) {
    reinterpret_cast<uint4*>(words)[i] =
        __ldcs(reinterpret_cast<const uint4*>(tile + unit * layout.unit_bytes()) + i * 32 + lane);
  }
  const auto* scales = reinterpret_cast<const uint16_t*>(tile + layout.code_bytes());
  const int within = unit * kCodeUnitRows + lane / 4;
#pragma unroll
  for (int step = 0; step < kCodeTileCols / kWgmmaStepCols; ++step) {
    const int set = within * Codes::kSets + step / 2 * Codes::kSets / 4;
    GroupPair group;
    if constexpr (Codes::kSets > 0) group.scale = scales[set] * 0x10001u;
    if constexpr (Codes::kZeros) {
      group.zero = scales[kCodeTileRows * Codes::kSets + set] * 0x10001u;
    }
    const int word = Codes::kBits == 8 ? step : step / 2;
    uint32_t* to = expanded[within] + step * (kWgmmaStepCols / 2) + lane % 4;
    Codes::Expand(words[word], step, group, to, to + 4);
  }
  __syncwarp();
  PdlWait();
#pragma unroll
  for (int i = lane; i < kCodeUnitRows * kRowVectors; i += 32) {
    const int from = unit * kCodeUnitRows + i / kRowVectors;
    const int64_t row = int64_t{blockIdx.y} * kCodeTileRows + from;
    if (row >= rows) continue;
    const auto* vectors = reinterpret_cast<const uint4*>(expanded[from]);
    reinterpret_cast<uint4*>(out)[(row * col_tiles + blockIdx.x) * kRowVectors + i % kRowVectors] =
        vectors[i % kRowVectors];
  }
}

// Calls f with the codes of a weight.
template <typename F>
void DispatchCodes(const CudaWeight& weight, F&& f) {
  const CodeTiles& tiles = weight.code_tiles();
  if (weight.dtype() == DType::kI8) return f(Int8Codes());
  if (weight.dtype() == DType::kF8E4M3) {
    return tiles.sets == 0 ? f(Fp8Codes<0>()) : f(Fp8Codes<1>());
  }
  TALON_CHECK(weight.dtype() == DType::kI4, "no codes of {}", DTypeName(weight.dtype()));
  if (tiles.sets == 1) return f(Int4Codes<1, true>());
  return tiles.zeros ? f(Int4Codes<4, true>()) : f(Int4Codes<4, false>());
}

// Calls f with the type of its codes, a constant.
template <typename F>
void DispatchCodeType(DType dtype, F&& f) {
  if (dtype == DType::kI8) return f(std::integral_constant<DType, DType::kI8>());
  if (dtype == DType::kI4) return f(std::integral_constant<DType, DType::kI4>());
  return f(std::integral_constant<DType, DType::kF8E4M3>());
}

float* Room(const Stream& stream, size_t count, Buffer* buffer) {
  if (buffer->bytes() < count * sizeof(float)) {
    TALON_CUDA_CHECK(cudaStreamSynchronize(stream.handle));
    *buffer = MemoryOrThrow(AllocateDevice(stream, count * sizeof(float)));
  }
  return static_cast<float*>(buffer->data());
}

// Host memory stays until the copy is done: a copy from pageable memory returns when it is staged.
void CopyIn(const Stream& stream, const std::vector<float>& from, size_t first, size_t count,
            float* to) {
  TALON_CUDA_CHECK(cudaMemcpyAsync(to, from.data() + first, count * sizeof(float),
                                   cudaMemcpyHostToDevice, stream.handle));
}

}  // namespace

bool CanTile(const QuantGrid& grid, int64_t cols) {
  if (grid.group >= cols || grid.dtype == DType::kI8) return grid.group >= cols;
  if (grid.group % kCodeTileCols == 0) {
    const auto small = [](float scale) { return std::abs(scale) < kLargestFp8Scale; };
    return grid.dtype == DType::kI4 || std::ranges::all_of(grid.scales, small);
  }
  return grid.dtype == DType::kI4 && (grid.group == 32 || grid.group == 64);
}

CodeTiles TilesOfGrid(DType dtype, int64_t group, int64_t cols, bool zeros) {
  if (dtype != DType::kI4) return {.bits = 8, .sets = group < cols ? 1 : 0};
  // A zero costs little where groups are large.
  const bool large = group >= std::min<int64_t>(cols, kCodeTileCols);
  return {.bits = 4, .sets = large ? 1 : 4, .zeros = zeros || large};
}

void PackCodes(const Stream& stream, const RowsToPack& rows, int64_t to, const CudaWeight& weight,
               GridMemory* memory) {
  const DType dtype = weight.dtype();
  const int cols = weight.cols();
  const auto blocks = static_cast<unsigned>(rows.count);
  PieceGrid grid;
  const bool fits_int4 = rows.grid == nullptr && dtype == DType::kI4;
  grid.group =
      fits_int4 ? kInt4Group : static_cast<int>(rows.grid == nullptr ? cols : rows.grid->group);
  grid.groups = CeilDiv(cols, grid.group);
  const size_t count = static_cast<size_t>(rows.count) * grid.groups;
  grid.scales = Room(stream, count, &memory->scales);
  if (rows.grid != nullptr) {
    const size_t first = static_cast<size_t>(rows.first) * grid.groups;
    CopyIn(stream, rows.grid->scales, first, count, grid.scales);
    if (!rows.grid->zeros.empty()) {
      grid.zeros = Room(stream, count, &memory->zeros);
      CopyIn(stream, rows.grid->zeros, first, count, grid.zeros);
    }
  }
  const CodeRows target{static_cast<uint8_t*>(weight.data()), weight.code_tiles(),
                        weight.code_cols(), weight.scales(), to};
  DispatchFloatType(rows.dtype, [&](auto from_type) {
    using From = decltype(from_type);
    const auto* from = static_cast<const From*>(rows.data);
    if (fits_int4) {
      Launch(stream, FitInt4<From>, blocks, kThreads, 0, from, cols, grid.groups, grid.scales);
    } else if (rows.grid == nullptr) {
      const float largest = dtype == DType::kI8 ? 127.0f : 448.0f;
      Launch(stream, FitRows<From>, blocks, kThreads, 0, from, cols, largest, grid.scales);
    }
    if (weight.fp8_activations()) {
      const Fp8Slices target{static_cast<uint8_t*>(weight.data()), weight.rows(), weight.scales(),
                             weight.scale_stride(), to};
      return Launch(stream, PackFp8Slices<From>, blocks, kThreads, 0, from, cols, grid, target);
    }
    DispatchCodeType(dtype, [&](auto codes) {
      Launch(stream, PackRows<From, codes.value>, blocks, kThreads, 0, from, cols, grid, target);
    });
  });
}

void ExpandCodes(const Stream& stream, const CudaWeight& weight, int first, int count, void* out) {
  TALON_CHECK(first % kCodeTileRows == 0);
  const dim3 grid(weight.code_cols(), CeilDiv(count, kCodeTileRows));
  DispatchCodes(weight, [&](auto codes) {
    Launch(stream, ExpandTiles<decltype(codes)>, grid, 32 * kCodeTileUnits, 0,
           static_cast<const uint8_t*>(weight.data()), weight.code_tiles(), weight.code_cols(),
           first / kCodeTileRows, count, static_cast<__nv_bfloat16*>(out));
  });
}

}  // namespace talon::cuda
