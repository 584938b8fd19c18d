#include "compute/cuda/experts/products.cuh"
#include "compute/cuda/gemm/mxfp4_tiles.h"

namespace talon::cuda {
namespace {

// 2^(exponent - 127 + 62) in both halves; NaN where bf16 has no such number.
__device__ __forceinline__ __nv_bfloat162 GroupFactor(uint32_t exponent) {
  const uint32_t bits = exponent > 192 ? 0x7FC0u : (exponent + 62) << 7;
  const uint32_t both = bits | bits << 16;
  return *reinterpret_cast<const __nv_bfloat162*>(&both);
}

// Two values of a word of codes (mxfp4_tiles.h): as bits of a bf16 the exponent and the mantissa of
// a code are 2^-126 times its value, subnormal ones too. With the factor above a value is 2^-64 of
// what it stands for, which keeps both factors within bf16 for all exponents that weights have.
__device__ __forceinline__ uint32_t ExpandPair(uint32_t word, int pair, __nv_bfloat162 factor) {
  const uint32_t sign = word << (12 - 4 * pair);
  const uint32_t size = pair < 2 ? word << (6 - 4 * pair) : word >> (4 * pair - 6);
  const uint32_t bits = (sign & 0x80008000u) | (size & 0x01C001C0u);
  const __nv_bfloat162 value = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits), factor);
  return *reinterpret_cast<const uint32_t*>(&value);
}

struct Mxfp4Format : MmaAccumulate<Mxfp4Format> {
  using T = __nv_bfloat16;
  static constexpr bool kScalesChunks = false;
  static constexpr float kSumScale = 18446744073709551616.0f;  // 2^64
  static constexpr int kAhead = 3;
  static __device__ __forceinline__ int InputOffset(int piece, int t) { return 32 * piece + 8 * t; }

  struct Chunk {
    uint4 codes[2];
    uint32_t scales[2];  // scales of the chunk's groups

    __device__ __forceinline__ void Load(const ExpertProduct& args, const ExpertMatrix& matrix,
                                         int row_begin, int chunk) {
      const int lane = threadIdx.x % 32;
      const int row = min(row_begin, args.matrix_rows - 1);
      const int64_t tile = row / kMxfp4TileRows * (args.x_stride / kChunkInputs) + chunk;
      const auto* data = static_cast<const uint8_t*>(matrix.data) + tile * kMxfp4TileBytes;
      const auto* exponents = static_cast<const uint8_t*>(matrix.scales) + tile * kMxfp4TileScales;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        codes[i] = __ldcs(reinterpret_cast<const uint4*>(data) + 32 * i + lane);
        scales[i] = __ldcs(reinterpret_cast<const uint32_t*>(exponents) + 8 * i + lane / 4);
      }
    }
    __device__ __forceinline__ void Expand(int piece, uint32_t (&a)[2][4]) const {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t words[4] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w};
        const __nv_bfloat162 factor = GroupFactor(scales[i] >> (8 * piece) & 0xFF);
        a[0][i] = ExpandPair(words[piece], 0, factor);
        a[0][2 + i] = ExpandPair(words[piece], 1, factor);
        a[1][i] = ExpandPair(words[piece], 2, factor);
        a[1][2 + i] = ExpandPair(words[piece], 3, factor);
      }
    }
  };
};

}  // namespace

void LaunchExpertsMxfp4(const Stream& stream, const ExpertProduct& product, bool gated,
                        int tile_pairs, int items) {
  LaunchProducts<Mxfp4Format>(stream, product, gated, tile_pairs, items);
}

}  // namespace talon::cuda
