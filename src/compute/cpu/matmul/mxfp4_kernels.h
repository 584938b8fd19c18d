// The inner loops of products with MXFP4 weights. Small files that only their own flags can compile
// include this, so it has no inline functions (kernels_table.h says why).
#ifndef TALON_COMPUTE_CPU_MATMUL_MXFP4_KERNELS_H_
#define TALON_COMPUTE_CPU_MATMUL_MXFP4_KERNELS_H_

#include <cstdint>

#include "compute/mxfp4.h"

namespace talon {

constexpr int kMxfp4Outputs = 4;  // outputs that a kernel computes together
constexpr int kMxfp4MaxRows = 4;
// A row of activations, group by group: the high bytes of the 16 even inputs, of the odd ones, then
// the low bytes of both.
constexpr int kMxfp4PackedBytes = 4 * kMxfp4GroupBytes;

// Sums of kMxfp4Outputs outputs for up to kMxfp4MaxRows rows.
struct Mxfp4Tile {
  const uint8_t* codes = nullptr;   // [outputs][groups][kMxfp4GroupBytes]
  const uint8_t* scales = nullptr;  // [groups][kMxfp4Outputs]: exponent bits of the float32 factor
  int outputs = kMxfp4Outputs;      // outputs that there are; the others' sums are arbitrary
  int64_t groups = 0;
  int rows = 0;
  const int8_t* x = nullptr;        // [rows][groups][kMxfp4PackedBytes]
  const float* x_scales = nullptr;  // [rows][groups]
  float* sums = nullptr;            // [rows][kMxfp4Outputs]
};
using Mxfp4Kernel = void (*)(const Mxfp4Tile& tile);

// The fastest kernel of this machine, and the one for any machine.
Mxfp4Kernel GetMxfp4Kernel();
void PortableMxfp4Kernel(const Mxfp4Tile& tile);
void ArmDotprodMxfp4Kernel(const Mxfp4Tile& tile);  // where the build is for this architecture
void X86Avx2Mxfp4Kernel(const Mxfp4Tile& tile);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_MXFP4_KERNELS_H_
