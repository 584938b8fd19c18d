// Architectures without a bf16 matrix kernel for attention.
#include "compute/cpu/attention/kernels.h"

namespace talon {

const AttentionKernels* ArmBf16AttentionKernels() { return nullptr; }

}  // namespace talon
