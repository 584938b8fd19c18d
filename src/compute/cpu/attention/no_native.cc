// Architectures without attention kernels of their own.
#include "compute/cpu/attention/kernels.h"

namespace talon {

const AttentionKernels* NativeAttentionKernels() { return nullptr; }

}  // namespace talon
