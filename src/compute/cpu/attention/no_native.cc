// Architectures without attention kernels of their own.
#include "compute/cpu/attention/kernels.h"

namespace talon {

const AttentionKernels* const* NativeAttentionKernels() {
  static const AttentionKernels* const none[] = {nullptr};
  return none;
}

}  // namespace talon
