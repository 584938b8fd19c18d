// What the MXFP4 kernels share. Everything here is local to the including file, which may be
// compiled for a special instruction set (kernels_table.h).
#ifndef TALON_COMPUTE_CPU_MATMUL_MXFP4_MXFP4_KERNELS_INL_H_
#define TALON_COMPUTE_CPU_MATMUL_MXFP4_MXFP4_KERNELS_INL_H_

#include <cstring>

#include "compute/cpu/matmul/mxfp4/mxfp4_kernels.h"

namespace talon {
namespace {

// The codes of an output; those of the last one where there is no such output.
[[maybe_unused]] const uint8_t* CodesOf(const Mxfp4Tile& tile, int output) {
  const int known = output < tile.outputs ? output : tile.outputs - 1;
  return tile.codes + known * tile.groups * kMxfp4GroupBytes;
}

// The factor of doubled codes that is kept as its exponent bits.
[[maybe_unused]] float ScaleOf(uint8_t exponent_bits) {
  const uint32_t bits = static_cast<uint32_t>(exponent_bits) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return scale;
}

}  // namespace
}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_MXFP4_MXFP4_KERNELS_INL_H_
