// Loads of the weight-streaming GEMM: how a block fills its ring of stages with cp.async.
#ifndef TALON_COMPUTE_CUDA_GEMM_STREAM_LOAD_CUH_
#define TALON_COMPUTE_CUDA_GEMM_STREAM_LOAD_CUH_

#include <cstdint>

#include "base/math.h"
#include "compute/cuda/gemm/layout.h"
#include "compute/cuda/gemm/stream.h"

namespace talon::cuda {

// Copies 16 bytes asynchronously, or writes zeros if the source does not exist.
__device__ __forceinline__ void CpAsyncChunk(uint8_t* shared, const uint8_t* global, bool exists) {
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(global),
               "r"(exists ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void CpAsyncCommitGroup() { asm volatile("cp.async.commit_group;"); }

template <int kPending>
__device__ __forceinline__ void CpAsyncWaitGroup() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// The part of the GEMM that a block computes.
struct StreamWork {
  int tile;       // tile * row_blocks + row block
  int split;      // split-K index within the tile
  int first_row;  // first row of x
  int first_output;
  int stage_begin;
  int stage_count;
};

template <typename Tile>
__device__ StreamWork WorkOfBlock(const StreamArgs& args) {
  // Blocks that read the same weights are neighbours, then the splits of a tile.
  const int row_blocks = CeilDiv(args.rows, Tile::kRows);
  const int block = static_cast<int>(blockIdx.x);
  const int row_block = block % row_blocks;
  const int split = block / row_blocks % args.splits;
  const int tile = block / row_blocks / args.splits;
  const int begin = SplitBegin(args.stages, args.splits, split);
  return {tile * row_blocks + row_block,
          split,
          row_block * Tile::kRows,
          tile * Tile::kOutputs,
          begin,
          SplitBegin(args.stages, args.splits, split + 1) - begin};
}

// Loads stages of the block's tile into the ring.
template <typename Tile>
class StageLoader {
 public:
  __device__ StageLoader(const StreamArgs& args, const StreamWork& work, uint8_t* ring)
      : args_(args), work_(work), ring_(ring) {
    const int thread = static_cast<int>(threadIdx.x);
    weight_row_ = thread / WeightCopies::kRowChunks;
    const int weight_chunk = thread % WeightCopies::kRowChunks;
    weight_offset_ = Tile::WeightOffset(weight_row_, weight_chunk);
    weights_ = static_cast<const uint8_t*>(args.weights) +
               (work.first_output + weight_row_) * args.weight_row_bytes +
               int64_t{work.stage_begin} * Tile::kWeightRowBytes + weight_chunk * kChunkBytes;
    x_row_ = thread / OperandCopies::kRowChunks;
    const int x_chunk = thread % OperandCopies::kRowChunks;
    x_offset_ = Tile::OperandOffset(x_row_, x_chunk);
    x_ = static_cast<const uint8_t*>(args.x) + (work.first_row + x_row_) * args.x_row_bytes +
         int64_t{work.stage_begin} * Tile::kOperandRowBytes + x_chunk * kChunkBytes;
  }

  // `slot` is the ring slot that receives the stage.
  __device__ void LoadWeights(int stage, int slot) const {
    uint8_t* to = ring_ + slot * Tile::kStageBytes + weight_offset_;
    const uint8_t* from = weights_ + int64_t{stage} * Tile::kWeightRowBytes;
#pragma unroll
    for (int i = 0; i < WeightCopies::kLoads; ++i) {
      constexpr int kStep = WeightCopies::kRowStep;
      const bool exists = work_.first_output + weight_row_ + i * kStep < args_.outputs;
      CpAsyncChunk(to + i * kStep * Tile::kWeightRowBytes,
                   exists ? from + i * kStep * args_.weight_row_bytes
                          : static_cast<const uint8_t*>(args_.weights),
                   exists);
    }
    if constexpr (Tile::kInt8) LoadScales(stage, slot);
  }

  __device__ void LoadOperand(int stage, int slot) const {
    if (!OperandCopies::kAllThreads && x_row_ >= Tile::kRows) return;
    uint8_t* to = ring_ + slot * Tile::kStageBytes + x_offset_;
    const uint8_t* from = x_ + int64_t{stage} * Tile::kOperandRowBytes;
#pragma unroll
    for (int i = 0; i < OperandCopies::kLoads; ++i) {
      constexpr int kStep = OperandCopies::kRowStep;
      const bool exists = work_.first_row + x_row_ + i * kStep < args_.rows;
      CpAsyncChunk(
          to + i * kStep * Tile::kOperandRowBytes,
          exists ? from + i * kStep * args_.x_row_bytes : static_cast<const uint8_t*>(args_.x),
          exists);
    }
  }

 private:
  using WeightCopies = CopyShape<Tile::kOutputs, Tile::kWeightRowBytes, Tile::kThreads>;
  using OperandCopies = CopyShape<Tile::kRows, Tile::kOperandRowBytes, Tile::kThreads>;

  __device__ void LoadScales(int stage, int slot) const {
    constexpr int kChunkScales = kChunkBytes / 4;
    constexpr int kChunks = Tile::kScaleBytes / kChunkBytes;
    const int id = static_cast<int>(threadIdx.x);
    if (id >= kChunks) return;
    const int group = id / (Tile::kOutputs / kChunkScales);
    const int output = id % (Tile::kOutputs / kChunkScales) * kChunkScales;
    const int64_t row = int64_t{work_.stage_begin + stage} * Tile::kStageGroups + group;
    const float* from = args_.scales + row * args_.scale_stride + work_.first_output + output;
    CpAsyncChunk(ring_ + slot * Tile::kStageBytes + Tile::ScaleOffset(group, output),
                 reinterpret_cast<const uint8_t*>(from), true);
  }

  const StreamArgs& args_;
  const StreamWork& work_;
  uint8_t* ring_;
  const uint8_t* weights_;  // this thread's first chunk of the first stage
  const uint8_t* x_;
  int weight_row_;
  int weight_offset_;
  int x_row_;
  int x_offset_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_STREAM_LOAD_CUH_
