// MXFP4 matrices (mxfp4.h) in device memory: tiles of 16 rows and 128 inputs, row of tiles by row
// of tiles, padded with zeros. A tile is what a warp of mma.sync reads at once:
//   codes    [2][32 lanes][4 words]: half i of lane 4 g + t is row 8 i + g, and its word p the
//   inputs
//            32 p + 8 t .. + 7, of which the even ones are in the low half of the word
//   scales   [16 rows][4]: the exponents of the groups p
#ifndef TALON_COMPUTE_CUDA_GEMM_MXFP4_TILES_H_
#define TALON_COMPUTE_CUDA_GEMM_MXFP4_TILES_H_

#include <cstdint>

#include "compute/host_device.h"

namespace talon::cuda {

inline constexpr int kMxfp4TileRows = 16;
inline constexpr int kMxfp4TileCols = 128;
inline constexpr int kMxfp4TileBytes = kMxfp4TileRows * kMxfp4TileCols / 2;
inline constexpr int kMxfp4TileScales = kMxfp4TileRows * kMxfp4TileCols / 32;

// Codes 0, 2, 4, 6 of a word into its low half, 1, 3, 5, 7 into the high one.
TALON_HOST_DEVICE constexpr uint32_t SplitPairs(uint32_t word) {
  uint32_t split = 0;
  for (int i = 0; i < 8; ++i) {
    split |= (word >> (4 * i) & 0xF) << (4 * (i / 2) + 16 * (i % 2));
  }
  return split;
}
static_assert(SplitPairs(0x76543210) == 0x75316420);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_MXFP4_TILES_H_
