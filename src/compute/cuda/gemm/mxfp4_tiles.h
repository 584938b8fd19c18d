// MXFP4 matrices (mxfp4.h) in device memory: tiles of 16 rows and 128 inputs, row of tiles by row
// of tiles, padded with zeros. A tile is what a warp of mma.sync reads at once:
//   codes    [2][32 lanes][4 words]: half i of lane 4 g + t is row 8 i + g, and its word p the
//            inputs 32 p + 8 t .. + 7, as Mxfp4Word arranges them
//   scales   [16 rows][4]: what Mxfp4Scale makes of the exponents of the groups p
#ifndef TALON_COMPUTE_CUDA_GEMM_MXFP4_TILES_H_
#define TALON_COMPUTE_CUDA_GEMM_MXFP4_TILES_H_

#include <cstdint>

#include "compute/host_device.h"

namespace talon::cuda {

inline constexpr int kMxfp4TileRows = 16;
inline constexpr int kMxfp4TileCols = 128;
inline constexpr int kMxfp4TileBytes = kMxfp4TileRows * kMxfp4TileCols / 2;
inline constexpr int kMxfp4TileScales = kMxfp4TileRows * kMxfp4TileCols / 32;

// The bits of a bf16 that a code's sign and size become: 2^-126 of its value, subnormal ones too.
inline constexpr uint32_t kMxfp4Pair = 0x81C081C0;

// Bits of one half of a word: pair p of its inputs is (2 p, 2 p + 1), the first of which is in the
// low half. A rotation by Mxfp4Turn brings three of the pairs to kMxfp4Pair; of the last one
// all but the lowest bit of the size lie there, and that one is eight bits too high. The turn of
// pair 2 takes a sign from one half to the other.
TALON_HOST_DEVICE constexpr int Mxfp4Turn(int pair) { return pair == 0 ? 2 : pair == 1 ? 6 : -4; }

TALON_HOST_DEVICE constexpr uint32_t TurnLeft(uint32_t word, int bits) {
  return bits >= 0 ? word << bits | word >> (32 - bits) : word >> -bits | word << (32 + bits);
}

// Eight codes, the first in the lowest bits, in the order in which Mxfp4Expand takes them.
TALON_HOST_DEVICE constexpr uint32_t Mxfp4Word(uint32_t codes) {
  uint32_t word = 0;
  for (int pair = 0; pair < 4; ++pair) {
    uint32_t bits = 0;
    for (int half = 0; half < 2; ++half) {
      const uint32_t code = codes >> (8 * pair + 4 * half) & 0xF;
      bits |= ((code & 8) << 12 | (code & 7) << 6) << (16 * half);
    }
    word |= pair < 3 ? TurnLeft(bits, -Mxfp4Turn(pair))
                     : (bits & ~0x00400040u) | (bits & 0x00400040u) << 8;
  }
  return word;
}

// Pair `pair` of a word: two bf16 of 2^-126 of their values.
TALON_HOST_DEVICE constexpr uint32_t Mxfp4Expand(uint32_t word, int pair) {
  if (pair < 3) return TurnLeft(word, Mxfp4Turn(pair)) & kMxfp4Pair;
  return (word & (kMxfp4Pair & ~0x00400040u)) | (word >> 8 & 0x00400040u);
}

static_assert(Mxfp4Expand(Mxfp4Word(0x76543210), 0) == 0x00400000);
static_assert(Mxfp4Expand(Mxfp4Word(0xFEDCBA98), 1) == 0x80C08080);
static_assert(Mxfp4Expand(Mxfp4Word(0x0FB5A5B0), 2) == 0x80C00140);
static_assert(Mxfp4Expand(Mxfp4Word(0x9F000000), 3) == 0x804081C0);

// The exponent of a group's factor 2^(exponent - 127), as that of a float32 which also takes back
// what codes are too small (2^-126) and rows that are multiplied with them are too large (2^64).
// Above what float32 has: infinity.
inline constexpr float kMxfp4RowFactor = 18446744073709551616.0f;  // 2^64
TALON_HOST_DEVICE constexpr uint8_t Mxfp4Scale(uint8_t exponent) {
  return exponent > 192 ? 255 : exponent + 62;
}

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_MXFP4_TILES_H_
