// The inner loops of products with MXFP4 weights. Small files that only their own flags can compile
// include this, so it has no inline functions (kernels_table.h says why).
#ifndef TALON_COMPUTE_CPU_MATMUL_MXFP4_MXFP4_KERNELS_H_
#define TALON_COMPUTE_CPU_MATMUL_MXFP4_MXFP4_KERNELS_H_

#include <cstdint>

#include "compute/mxfp4.h"

namespace talon {

constexpr int kMxfp4Outputs = 4;  // outputs that a kernel computes together
constexpr int kMxfp4MaxRows = 4;
// A group of a row of activations. Its 16 even inputs come first, then the odd ones: the high bytes
// of a run of them, their low bytes, and so on.
constexpr int kMxfp4PackedBytes = 4 * kMxfp4GroupBytes;

// Sums of kMxfp4Outputs outputs for a few rows.
struct Mxfp4Tile {
  const uint8_t* codes = nullptr;   // [outputs][groups][kMxfp4GroupBytes]
  const uint8_t* scales = nullptr;  // [groups][kMxfp4Outputs]: exponent bits of the float32 factor
  int outputs = kMxfp4Outputs;      // outputs that there are; the others' sums are arbitrary
  int64_t groups = 0;
  int rows = 0;
  const int8_t* x = nullptr;        // [groups][rows][kMxfp4PackedBytes]
  const float* x_scales = nullptr;  // [groups][rows]
  float* sums = nullptr;            // [rows][kMxfp4Outputs]
};

struct Mxfp4Kernel {
  const char* name;  // "mxfp4 smmla"
  int run;           // inputs of a run: 8 or all
  void (*tile)(const Mxfp4Tile& tile);
};

// Kernels that this processor can run, best first, ended by a null.
const Mxfp4Kernel* const* AttainableMxfp4Kernels();
const Mxfp4Kernel& PortableMxfp4Kernel();
const Mxfp4Kernel& ArmDotprodMxfp4Kernel();  // where the build is for this architecture
const Mxfp4Kernel& ArmI8mmMxfp4Kernel();
const Mxfp4Kernel& X86Avx2Mxfp4Kernel();
const Mxfp4Kernel& X86VnniMxfp4Kernel();

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_MXFP4_MXFP4_KERNELS_H_
