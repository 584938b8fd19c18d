// Reads quantised K and V (kv_codes.h).
#ifndef TALON_COMPUTE_CPU_ATTENTION_KV_KERNELS_H_
#define TALON_COMPUTE_CPU_ATTENTION_KV_KERNELS_H_

#include <cstdint>

#include "compute/dtype.h"

namespace talon {

// Writes `count` neighbouring vectors as bf16: to [count, head_dim].
void ExpandVectors(DType dtype, const uint8_t* codes, const uint8_t* scales, int count,
                   int head_dim, uint16_t* to);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_KV_KERNELS_H_
