#include "compute/cuda/experts/products.cuh"
#include "compute/cuda/gemm/mxfp4_tiles.h"

namespace talon::cuda {
namespace {

// Loads past the L1 cache, which is for the rows of x.
__device__ __forceinline__ uint4 LoadOnce(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
__device__ __forceinline__ uint32_t LoadOnce(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

struct Mxfp4Format : MmaAccumulate<Mxfp4Format> {
  using T = __nv_bfloat16;
  static constexpr int kScales = 4;  // one for each piece
  static constexpr int kAhead = 2;
  static __device__ __forceinline__ int InputOffset(int piece, int t) { return 32 * piece + 8 * t; }

  // What a lane reads of a half's rows.
  struct Rows {
    const uint4* codes;
    const uint32_t* scales;

    __device__ __forceinline__ Rows(const ExpertProduct& args, const ExpertMatrix& matrix,
                                    int row_begin) {
      const int lane = threadIdx.x % 32;
      const int row = min(row_begin, args.matrix_rows - 1);
      const int64_t tile = row / kMxfp4TileRows * (args.x_stride / kChunkInputs);
      codes = static_cast<const uint4*>(matrix.data) + tile * (kMxfp4TileBytes / 16) + lane;
      scales =
          static_cast<const uint32_t*>(matrix.scales) + tile * (kMxfp4TileScales / 4) + lane / 4;
    }
  };

  struct Chunk {
    uint4 codes[2];
    uint32_t scales[2];  // Mxfp4Scale of each piece

    __device__ __forceinline__ void Load(const Rows& from, int chunk) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        codes[i] = LoadOnce(from.codes + chunk * (kMxfp4TileBytes / 16) + 32 * i);
        scales[i] = LoadOnce(from.scales + chunk * (kMxfp4TileScales / 4) + 8 * i);
      }
    }
    __device__ __forceinline__ void Expand(int piece, uint32_t (&a)[2][4]) const {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t words[4] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w};
        a[0][i] = Mxfp4Expand(words[piece], 0);
        a[0][2 + i] = Mxfp4Expand(words[piece], 1);
        a[1][i] = Mxfp4Expand(words[piece], 2);
        a[1][2 + i] = Mxfp4Expand(words[piece], 3);
      }
    }
    __device__ __forceinline__ float Scale(int piece, int row) const {
      return __uint_as_float((scales[row] >> (8 * piece) & 0xFF) << 23);
    }
  };
};

}  // namespace

void LaunchExpertsMxfp4(const Stream& stream, const ExpertProduct& product, bool gated,
                        int tile_pairs, int items) {
  LaunchProducts<Mxfp4Format>(stream, product, gated, tile_pairs, items);
}

}  // namespace talon::cuda
