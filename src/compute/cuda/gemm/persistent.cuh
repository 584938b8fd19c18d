// Persistent weight-streaming GEMM with a SwiGLU epilogue, for many outputs and few rows
// (StreamTileKind::kPersistent). Included by CUDA sources only.
//
// A block processes one tile after the other and keeps its ring of stages full: the next tile's
// stages are in flight while the epilogue of a tile runs. A tile is 16 rows of the gate and the
// same 16 of up, so that it holds both values of a column.
#ifndef TALON_COMPUTE_CUDA_GEMM_PERSISTENT_CUH_
#define TALON_COMPUTE_CUDA_GEMM_PERSISTENT_CUH_

#include "compute/cuda/device/convert.cuh"
#include "compute/cuda/gemm/layout.h"
#include "compute/cuda/gemm/stream.h"
#include "compute/cuda/gemm/stream_load.cuh"
#include "compute/cuda/gemm/stream_store.cuh"
#include "compute/cuda/gemm/stream_warp.cuh"
#include "compute/cuda/runtime/launch.h"

namespace talon::cuda {

// Loads the stages of the block's tiles into the ring, in order.
template <typename Tile>
class TileLoader {
 public:
  __device__ TileLoader(const StreamArgs& args, uint8_t* ring)
      : args_(args),
        ring_(ring),
        row_(static_cast<int>(threadIdx.x) / WeightCopies::kRowChunks),
        chunk_(static_cast<int>(threadIdx.x) % WeightCopies::kRowChunks),
        next_{static_cast<int>(blockIdx.x), 0} {}

  __device__ bool HasMore() const { return next_.tile < args_.tiles; }
  // Loads the next stage's weights (LoadWeights) or its columns of x (LoadOperand) into slot `slot`
  // of the ring.
  __device__ void LoadWeights(int slot) const {
    const auto* weights = static_cast<const uint8_t*>(args_.weights);
    const int64_t column = int64_t{next_.stage} * Tile::kWeightRowBytes + chunk_ * kChunkBytes;
#pragma unroll
    for (int i = 0; i < WeightCopies::kLoads; ++i) {
      const int tile_row = row_ + i * WeightCopies::kRowStep;
      const int gate = next_.tile * kRunRows + tile_row % kRunRows;
      const int64_t row = gate + int64_t{tile_row / kRunRows} * args_.gates;
      CpAsyncChunk(ring_ + slot * Tile::kStageBytes + Tile::WeightOffset(tile_row, chunk_),
                   weights + row * args_.weight_row_bytes + column, true);
    }
  }
  __device__ void LoadOperand(int slot) const {
    const auto* x = static_cast<const uint8_t*>(args_.x);
    const int64_t column = int64_t{next_.stage} * Tile::kOperandRowBytes + chunk_ * kChunkBytes;
#pragma unroll
    for (int i = 0; i < OperandCopies::kLoads; ++i) {
      const int row = row_ + i * OperandCopies::kRowStep;
      const bool exists = row < args_.rows;
      CpAsyncChunk(ring_ + slot * Tile::kStageBytes + Tile::OperandOffset(row, chunk_),
                   exists ? x + row * args_.x_row_bytes + column : x, exists);
    }
  }
  __device__ void Advance() { next_.Advance(args_.stages, gridDim.x); }
  __device__ void Rewind() { next_ = {static_cast<int>(blockIdx.x), 0}; }

 private:
  using WeightCopies = CopyShape<Tile::kOutputs, Tile::kWeightRowBytes, Tile::kThreads>;
  using OperandCopies = CopyShape<Tile::kRows, Tile::kOperandRowBytes, Tile::kThreads>;
  static_assert(Tile::kOutputs == 2 * kRunRows && Tile::kWeightRowBytes == Tile::kOperandRowBytes);
  static_assert(OperandCopies::kAllThreads);

  const StreamArgs& args_;
  uint8_t* ring_;
  int row_;
  int chunk_;
  TileCursor next_;
};

// Stores silu(gate) * up of four columns of a row, with their biases, to the operand of the next
// GEMM.
template <typename Operand>
__device__ __forceinline__ void StoreGated(const StreamArgs& args, int row, int column, float4 gate,
                                           float4 up) {
  gate = WithBias(args, column, gate);
  up = WithBias(args, args.gates + column, up);
  const float gates[4] = {gate.x, gate.y, gate.z, gate.w};
  const float ups[4] = {up.x, up.y, up.z, up.w};
  struct alignas(8) Four {
    Operand x[4];
  } values;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Fast-math functions suffice: the result is rounded to 16 bits.
    values.x[i] = FromFloat<Operand>(__fdividef(gates[i], 1.0f + __expf(-gates[i])) * ups[i]);
  }
  auto* to = static_cast<Operand*>(args.operand) + row * args.operand_stride + column;
  *reinterpret_cast<Four*>(to) = values;
}

// Epilogue of a tile whose accumulators [slices][rows][outputs] are in shared memory.
template <typename Tile, typename Operand>
__device__ __forceinline__ void RunSwiGluEpilogue(const StreamArgs& args, int tile,
                                                  const float* acc) {
  constexpr int kQuads = kRunRows / 4;
  for (int id = static_cast<int>(threadIdx.x); id < args.rows * kQuads; id += Tile::kThreads) {
    const int row = id / kQuads;
    const int in_tile = id % kQuads * 4;
    StoreGated<Operand>(args, row, tile * kRunRows + in_tile, ReduceSlices<Tile>(acc, row, in_tile),
                        ReduceSlices<Tile>(acc, row, kRunRows + in_tile));
  }
}

template <typename Tile, typename Operand>
__global__ void __launch_bounds__(Tile::kThreads, 1) PersistentGemmKernel(const StreamArgs args) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kAhead = Tile::kStages - 1;
  PdlTrigger();
  TileLoader<Tile> loader(args, shared);
  for (int slot = 0; slot < kAhead; ++slot) {
    if (loader.HasMore()) loader.LoadWeights(slot);
    loader.Advance();
    CpAsyncCommitGroup();
  }
  PdlWait();
  loader.Rewind();
  for (int slot = 0; slot < kAhead; ++slot) {
    if (loader.HasMore()) loader.LoadOperand(slot);
    loader.Advance();
    CpAsyncCommitGroup();
  }
  auto* acc = reinterpret_cast<float*>(shared + Tile::kStages * Tile::kStageBytes);
  WarpAccumulator<Tile, Operand> warp;
  int read_slot = 0;
  int write_slot = kAhead;
  for (TileCursor at = {static_cast<int>(blockIdx.x), 0}; at.tile < args.tiles;
       at.Advance(args.stages, gridDim.x)) {
    CpAsyncWaitGroup<kAhead - 1>();  // as in StreamGemmKernel
    __syncthreads();  // all warps have read the previous stage, whose slot is refilled next
    if (loader.HasMore()) {
      loader.LoadWeights(write_slot);
      loader.LoadOperand(write_slot);
      loader.Advance();
    }
    CpAsyncCommitGroup();
    warp.AddStage(shared + read_slot * Tile::kStageBytes);
    write_slot = read_slot;
    read_slot = read_slot + 1 == Tile::kStages ? 0 : read_slot + 1;
    if (at.stage + 1 < args.stages) continue;
    // A thread gets here again only after a barrier that follows all reads of the accumulators.
    warp.Store(acc);
    warp.Clear();
    __syncthreads();
    RunSwiGluEpilogue<Tile, Operand>(args, at.tile, acc);
  }
  CpAsyncWaitGroup<0>();
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_PERSISTENT_CUH_
