// The kernel of quantised/gemm.h; quantised/layout.h explains its tiles. Included by CUDA sources
// only.
//
// Warp-specialised like gemm/wgmma.cuh: a producer warp fills a ring of stages, each of the same
// inputs of x and of one or more tiles for every consumer warpgroup. A warpgroup multiplies 64
// outputs by all rows; each of its warps takes two units of eight outputs. For SwiGLU these are the
// same outputs of gate and up, so that a thread holds both.
#ifndef TALON_COMPUTE_CUDA_GEMM_QUANTISED_GEMM_CUH_
#define TALON_COMPUTE_CUDA_GEMM_QUANTISED_GEMM_CUH_

#include <cstdint>
#include <utility>

#include "compute/cuda/device/dynamic_shared.cuh"
#include "compute/cuda/device/hopper.cuh"
#include "compute/cuda/gemm/quantised/codes.cuh"
#include "compute/cuda/gemm/quantised/gemm.h"
#include "compute/cuda/gemm/wgmma.cuh"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

inline constexpr int kCodeHalfSteps = 4;  // steps whose pairs are expanded together

// Loads for a producer of one warp: a lane for the tiles of each warpgroup, and one for x.
template <int kRows>
class CodeLoads {
 public:
  __device__ CodeLoads(const CUtensorMap& x, const CodeArgs& args, const WgmmaBlock& block)
      : x_(x), args_(args), block_(block), lane_(threadIdx.x % 32) {}

  __device__ void Prefetch() const {
    if (lane_ == 0) PrefetchTensorMap(x_);
  }

  __device__ void LoadWeights(const StageCursor& at, int slot) const {
    const int groups = args_.common.groups;
    const int bytes = args_.stage_tiles * args_.tile_bytes;
    if (lane_ == 0) MbarrierArriveExpectTx(block_.Full(slot), operand_bytes() + groups * bytes);
    __syncwarp();
    if (lane_ >= groups) return;
    const int part = args_.common.swiglu ? groups / 2 : groups;
    const int tile = at.item * part + lane_ % part + (lane_ < part ? 0 : args_.up_tile);
    const int64_t first = int64_t{tile} * args_.col_tiles + (block_.slice_begin + at.slice) / 2;
    BulkLoad(args_.codes + first * args_.tile_bytes, bytes,
             Stage(slot) + operand_bytes() + lane_ * bytes, block_.Full(slot));
  }

  __device__ void LoadOperand(const StageCursor& at, int slot) const {
    if (lane_ != args_.common.groups) return;
    TmaLoadSlices(x_, 0, block_.slice_begin + at.slice, Stage(slot), block_.Full(slot));
  }

 private:
  __device__ uint32_t Stage(int slot) const {
    return block_.ring + slot * args_.common.stage_bytes;
  }
  __device__ int operand_bytes() const {
    return args_.common.stage_slices * kRows * kSliceRowBytes;
  }

  const CUtensorMap& x_;
  const CodeArgs& args_;
  const WgmmaBlock& block_;
  int lane_;
};

// The two units of a warp: their rows in the block's tiles, of which each warpgroup's are 64.
struct CodeUnits {
  int row[2];

  __device__ CodeUnits(const CodeArgs& args, int warp) {
    const int all = args.common.groups * kCodeTileRows;
    row[0] = args.common.swiglu ? warp * kCodeUnitRows : warp * 2 * kCodeUnitRows;
    row[1] = args.common.swiglu ? row[0] + all / 2 : row[0] + kCodeUnitRows;
  }
};

__device__ __forceinline__ uint4 LoadShared16(uint32_t address) {
  uint4 four;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
               : "r"(address)
               : "memory");
  return four;
}
template <int kSets>
__device__ __forceinline__ RowSets<kSets> LoadSets(uint32_t address) {
  RowSets<kSets> sets;
  if constexpr (kSets == 4) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(sets.words[0]), "=r"(sets.words[1])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(sets.words[0]) : "r"(address) : "memory");
  }
  return sets;
}

// What a thread reads of its warp's two units in a tile.
template <typename Codes>
class UnitCodes {
 public:
  // `tile_stride`: bytes from the first tile of a warpgroup in a stage to that of the next.
  __device__ UnitCodes(const CodeUnits& units, int tile_stride) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) {
      const int row = units.row[unit] % kCodeTileRows;
      const int tile = units.row[unit] / kCodeTileRows * tile_stride;
      code_offset_[unit] = tile + row / kCodeUnitRows * kUnitBytes + lane * 16;
      scale_offset_[unit] = tile + kCodeBytes + (row + lane / 4) * Sets::kBytes;
    }
  }

  // Reads the tile at `tile` in shared memory.
  __device__ __forceinline__ void Load(uint32_t tile) {
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        words_[unit][i] = LoadShared16(tile + code_offset_[unit] + i * 512);
      }
      const uint32_t scales = tile + scale_offset_[unit];
      if constexpr (Codes::kSets > 0) scales_[unit] = LoadSets<kSets>(scales);
      if constexpr (Codes::kZeros) {
        zeros_[unit] = LoadSets<kSets>(scales + kCodeTileRows * Sets::kBytes);
      }
    }
  }

  // Expands the pairs of half a tile, four steps.
  __device__ __forceinline__ void Expand(int half, uint32_t (&pairs)[kCodeHalfSteps][4]) const {
#pragma unroll
    for (int step = 0; step < kCodeHalfSteps; ++step) {
#pragma unroll
      for (int unit = 0; unit < 2; ++unit) {
        GroupPair group;
        if constexpr (Codes::kSets > 0) group.scale = scales_[unit].Pair(half * 2 + step / 2);
        if constexpr (Codes::kZeros) group.zero = zeros_[unit].Pair(half * 2 + step / 2);
        const uint4& four = words_[unit][half % kLoads];
        const uint32_t all[4] = {four.x, four.y, four.z, four.w};
        const uint32_t word = Codes::kBits == 8 ? all[step] : all[half * 2 + step / 2];
        Codes::Expand(word, step, group, &pairs[step][unit], &pairs[step][2 + unit]);
      }
    }
  }

 private:
  static constexpr int kCodeBytes = kCodeTileRows * kCodeTileCols * Codes::kBits / 8;
  static constexpr int kUnitBytes = kCodeBytes / kCodeTileUnits;
  static constexpr int kLoads = Codes::kBits == 8 ? 2 : 1;
  static constexpr int kSets = Codes::kSets == 0 ? 1 : Codes::kSets;
  using Sets = RowSets<kSets>;

  int code_offset_[2];
  int scale_offset_[2];
  uint4 words_[2][kLoads];
  Sets scales_[2];
  Sets zeros_[2];
};

// Starts the wgmma group of half a tile with the slice of x at `slice`.
template <int kRows>
__device__ __forceinline__ void MultiplyHalf(uint32_t slice,
                                             const uint32_t (&pairs)[kCodeHalfSteps][4],
                                             float (&acc)[kRows / 2]) {
  const uint64_t x = MatrixDescriptor(slice);
  WgmmaFence();
#pragma unroll
  for (int step = 0; step < kCodeHalfSteps; ++step) {
    WgmmaOfCodes(acc, pairs[step], x + step * kDescriptorStep);
  }
  WgmmaCommitGroup();
}

// Accumulates the next stages of an item. One half's pairs are expanded while the wgmmas of the
// other run. A stage is released once the first half of the next one is issued.
template <typename Codes, int kRows>
__device__ __forceinline__ void AccumulateCodes(const CodeArgs& args, const WgmmaBlock& block,
                                                UnitCodes<Codes>* codes, PipelineState* state,
                                                float (&acc)[kRows / 2]) {
  constexpr uint32_t kSliceBytes = kRows * kSliceRowBytes;
  const bool leader = threadIdx.x % 32 == 0;
  const int operand_bytes = args.common.stage_slices * kSliceBytes;
#pragma unroll
  for (float& value : acc) value = 0;
  PinAccumulators(acc);
  int before = -1;
  const auto release = [&] {
    if (before >= 0 && leader) MbarrierArrive(block.Empty(before));
    before = -1;
  };
  uint32_t pairs[2][kCodeHalfSteps][4];
  for (int slice = 0; slice < block.slice_count; slice += args.common.stage_slices) {
    MbarrierWait(block.Full(state->slot), state->parity);
    __syncwarp();
    const uint32_t stage = block.ring + state->slot * args.common.stage_bytes;
    const uint32_t tiles = stage + operand_bytes;
    codes->Load(tiles);
    for (int tile = 0; tile < args.stage_tiles; ++tile) {
      const uint32_t x = stage + tile * 2 * kSliceBytes;
      codes->Expand(0, pairs[0]);
      MultiplyHalf<kRows>(x, pairs[0], acc);
      WgmmaWaitGroup<1>();
      release();
      codes->Expand(1, pairs[1]);
      if (tile + 1 < args.stage_tiles) codes->Load(tiles + (tile + 1) * args.tile_bytes);
      MultiplyHalf<kRows>(x + kSliceBytes, pairs[1], acc);
      WgmmaWaitGroup<1>();
    }
    before = state->slot;
    state->Advance(args.common.ring);
  }
  __syncwarp();
  WgmmaWaitGroup<0>();
  PinAccumulators(acc);
  release();
}

// A thread's two sums of unit `unit` and the j-th group of eight rows belong to one output and two
// rows. Exchanged with the neighbour that has the next output they become two outputs of one row:
// of row j * 8 + ExchangedRow, from output ExchangedOutput of the unit on.
__device__ __forceinline__ int ExchangedRow() { return threadIdx.x % 4 * 2 + threadIdx.x / 4 % 2; }
__device__ __forceinline__ int ExchangedOutput() { return threadIdx.x % 32 / 8 * 2; }
template <int kAccumulators>
__device__ __forceinline__ Outputs<2> Exchange(const float (&acc)[kAccumulators], int j, int unit) {
  const bool odd = threadIdx.x / 4 % 2 == 1;
  const float first = acc[j * 4 + unit * 2], second = acc[j * 4 + unit * 2 + 1];
  const float other = __shfl_xor_sync(0xffffffff, odd ? first : second, 4);
  return odd ? Outputs<2>{{other, second}} : Outputs<2>{{first, other}};
}

template <int kRows>
__device__ __forceinline__ void StoreCodeSums(const WgmmaArgs& args, const CodeUnits& units,
                                              int item, const float (&acc)[kRows / 2]) {
  const int width = args.groups * kCodeTileRows;
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    Outputs<2> sums[2] = {Exchange(acc, j, 0), Exchange(acc, j, 1)};
    const int row = j * 8 + ExchangedRow();
    if (row >= args.rows) continue;
    if (args.swiglu) {
      const int col = item * (width / 2) + units.row[0] + ExchangedOutput();
      StoreSwiGlu<__nv_bfloat16>(args, row, col, sums[0], sums[1]);
      continue;
    }
    float* out = args.out + row * args.out_stride;
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) {
      const int output = item * width + units.row[unit] + ExchangedOutput();
      Finish(args, 0, output, &sums[unit]);
      if (args.accumulate) {
        AddTo(&sums[unit], LoadOutputs<2>(out, output, args.outputs, args.aligned));
      }
      StoreOutputs(out, output, args.outputs, args.aligned, sums[unit]);
    }
  }
}

// Split-K: stores the sums to [rows][outputs of a tile].
template <int kRows>
__device__ __forceinline__ void StoreCodePartial(const WgmmaArgs& args, const CodeUnits& units,
                                                 float* partial, const float (&acc)[kRows / 2]) {
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) {
      const Outputs<2> sums = Exchange(acc, j, unit);
      const int row = j * 8 + ExchangedRow();
      if (row >= args.rows) continue;
      float* to = partial + row * args.groups * kCodeTileRows + units.row[unit] + ExchangedOutput();
      __stcg(reinterpret_cast<float2*>(to), float2{sums.v[0], sums.v[1]});
    }
  }
}

template <typename Codes, int kRows>
__device__ __forceinline__ void ConsumeCodes(const CodeArgs& args, const WgmmaBlock& block,
                                             int warp) {
  const WgmmaArgs& common = args.common;
  const CodeUnits units(args, warp);
  const int width = common.groups * kCodeTileRows;
  UnitCodes<Codes> codes(units, args.stage_tiles * args.tile_bytes);
  PipelineState state;
  float* partials =
      common.partials + int64_t{block.first_item} * common.splits * common.rows * width;
  for (int item = block.first_item; item < common.items; item += block.item_step) {
    float acc[kRows / 2];
    AccumulateCodes<Codes, kRows>(args, block, &codes, &state, acc);
    if (common.splits == 1) {
      StoreCodeSums<kRows>(common, units, item, acc);
    } else {
      StoreCodePartial<kRows>(common, units, partials + block.rank * common.rows * width, acc);
    }
  }
  if (common.splits == 1) return;
  WaitForSplits(common.arrivals + block.first_item, common.splits, common.groups);
  RunSplitKEpilogue<__nv_bfloat16>(common, width, block.first_item, partials, block.rank,
                                   common.groups * kGroupThreads);
}

template <typename Codes, int kRows>
__global__ void __launch_bounds__(MostCodeGroups(kRows) * kGroupThreads + 32, 1)
    CodeKernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CodeArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ WgmmaBarriers barriers;
  PdlTrigger();
  const WgmmaBlock block = DescribeBlock(args.common, barriers);
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  const int consumers = args.common.groups * kGroupThreads;
  RingProducer producer(CodeLoads<kRows>(x, args, block), args.common, block);
  const bool produces = warp == consumers / 32;
  if (produces) {
    if (threadIdx.x % 32 == 0) InitRing(args.common, block);
    __syncwarp();
    producer.StartWeights();
  }
  __syncthreads();
  PdlWait();
  if (produces) {
    producer.Run();
  } else {
    ConsumeCodes<Codes, kRows>(args, block, warp);
  }
#endif
}

template <typename Codes>
const CodeKernels& AllCodeKernels() {
  static const CodeKernels kernels = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return CodeKernels{CodeKernel<Codes, kCodeRowTiles[kIndex]>...};
  }
  (std::make_index_sequence<kCodeRowTiles.size()>());
  return kernels;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_QUANTISED_GEMM_CUH_
