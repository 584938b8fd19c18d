// The work of one warp on a stage of the weight-streaming GEMM.
#ifndef TALON_COMPUTE_CUDA_GEMM_STREAM_WARP_CUH_
#define TALON_COMPUTE_CUDA_GEMM_STREAM_WARP_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "compute/cuda/gemm/layout.h"

namespace talon::cuda {

__device__ __forceinline__ uint4 LoadShared(const uint8_t* shared) {
  return *reinterpret_cast<const uint4*>(shared);
}

// acc[16 outputs, 8 rows] += a[16, 16] * b[8, 16]^T
template <typename Operand>
__device__ __forceinline__ void MmaSync(float (&acc)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                        uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<Operand, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// Converts four int8 to two pairs of bf16, exactly. With 0x43 above it, a byte's low 7 bits read as
// bf16 are 128 + those bits, and its sign bit alone is 128 or 256: their difference is the signed
// value.
__device__ __forceinline__ uint2 WidenInt8(uint32_t four) {
  const uint32_t pairs[2] = {__byte_perm(four, 0x43434343, 0x4140),
                             __byte_perm(four, 0x43434343, 0x4342)};
  uint32_t wide[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t magnitude = pairs[i] & 0xFF7FFF7F;
    const uint32_t sign = pairs[i] & 0xFF80FF80;
    const __nv_bfloat162 value = __hsub2(reinterpret_cast<const __nv_bfloat162&>(magnitude),
                                         reinterpret_cast<const __nv_bfloat162&>(sign));
    wide[i] = reinterpret_cast<const uint32_t&>(value);
  }
  return {wide[0], wide[1]};
}

// A warp's accumulators: one panel of outputs, one slice of every stage, all rows.
template <typename Tile, typename Operand>
class WarpAccumulator {
 public:
  __device__ WarpAccumulator()
      : slice_(static_cast<int>(threadIdx.x) / 32 / Tile::kPanels),
        lane_(static_cast<int>(threadIdx.x) % 4) {
    const int panel = static_cast<int>(threadIdx.x) / 32 % Tile::kPanels;
    const int group = static_cast<int>(threadIdx.x) % 32 / 4;
    output_ = panel * kPanelOutputs + group;
    weight_offset_ = Tile::WeightOffset(output_, slice_ * 4 + lane_);
    const int chunk = Tile::kInt8 ? slice_ * 8 + lane_ * 2 : slice_ * 4 + lane_;
    x_offset_ = Tile::OperandOffset(group, chunk);
  }

  __device__ void AddStage(const uint8_t* stage) {
    if constexpr (Tile::kInt8) {
      AddInt8(stage);
    } else {
      AddHalf(stage);
    }
  }

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < 2 * Tile::kRowTiles * 4; ++i) {
      acc_[i / 4 / Tile::kRowTiles][i / 4 % Tile::kRowTiles][i % 4] = 0;
    }
  }

  // Writes the accumulators to shared memory, [slices][rows][outputs].
  __device__ void Store(float* acc) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < Tile::kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = n * 8 + lane_ * 2 + i % 2;
          acc[Tile::AccumulatorIndex(slice_, row, output_ + m * 16 + i / 2 * 8)] = acc_[m][n][i];
        }
      }
    }
  }

 private:
  static constexpr int kInt8Steps = kSliceBytes / 16;

  // Rows 8 apart have the same swizzle.
  __device__ uint4 Weights(const uint8_t* stage, int m, int half) const {
    return LoadShared(stage + weight_offset_ + (m * 16 + half * 8) * Tile::kWeightRowBytes);
  }

  __device__ void AddHalf(const uint8_t* stage) {
    uint4 w[2][2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      w[m][0] = Weights(stage, m, 0);
      w[m][1] = Weights(stage, m, 1);
    }
#pragma unroll
    for (int n = 0; n < Tile::kRowTiles; ++n) {
      const uint4 x = LoadShared(stage + x_offset_ + n * 8 * Tile::kOperandRowBytes);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        MmaSync<Operand>(acc_[m][n], w[m][0].x, w[m][1].x, w[m][0].y, w[m][1].y, x.x, x.y);
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        MmaSync<Operand>(acc_[m][n], w[m][0].z, w[m][1].z, w[m][0].w, w[m][1].w, x.z, x.w);
      }
    }
  }

  // A lane's part of its slice: the weights of four mma steps, and their scales.
  struct Int8Weights {
    uint32_t words[2][kInt8Steps][4];
    float scale[2][2];
  };

  __device__ Int8Weights LoadInt8(const uint8_t* stage) const {
    const int group = slice_ * kSliceBytes / kScaleGroup;
    Int8Weights w;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 bytes = Weights(stage, m, half);
        const uint32_t fours[kInt8Steps] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
        for (int step = 0; step < kInt8Steps; ++step) {
          const uint2 wide = WidenInt8(fours[step]);
          w.words[m][step][half] = wide.x;
          w.words[m][step][half + 2] = wide.y;
        }
        const int offset = Tile::ScaleOffset(group, output_ + m * 16 + half * 8);
        w.scale[m][half] = *reinterpret_cast<const float*>(stage + offset);
      }
    }
    return w;
  }

  // The slice is within one group of scales, so its accumulator is scaled as a whole.
  __device__ void AddInt8(const uint8_t* stage) {
    const Int8Weights w = LoadInt8(stage);
#pragma unroll
    for (int n = 0; n < Tile::kRowTiles; ++n) {
      const uint8_t* row = stage + n * 8 * Tile::kOperandRowBytes;
      const uint4 low = LoadShared(row + x_offset_);
      const uint4 high = LoadShared(row + (x_offset_ ^ kChunkBytes));  // the pair's other chunk
      const uint32_t x[kInt8Steps][2] = {
          {low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        float acc[4] = {};
#pragma unroll
        for (int step = 0; step < kInt8Steps; ++step) {
          const uint32_t(&a)[4] = w.words[m][step];
          MmaSync<Operand>(acc, a[0], a[1], a[2], a[3], x[step][0], x[step][1]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          acc_[m][n][i] = fmaf(w.scale[m][i / 2], acc[i], acc_[m][n][i]);
        }
      }
    }
  }

  int slice_;
  int lane_;    // lane % 4
  int output_;  // within the tile, the first of this lane's four
  int weight_offset_;
  int x_offset_;
  float acc_[2][Tile::kRowTiles][4] = {};
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_STREAM_WARP_CUH_
