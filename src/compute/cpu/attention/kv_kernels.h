// Reads K and V, quantised (kv_codes.h) or in units (kv_units.h).
#ifndef TALON_COMPUTE_CPU_ATTENTION_KV_KERNELS_H_
#define TALON_COMPUTE_CPU_ATTENTION_KV_KERNELS_H_

#include <cstdint>

#include "compute/dtype.h"
#include "compute/host/host_memory.h"
#include "compute/kv/kv_units.h"

namespace talon {

// Writes `count` neighbouring vectors as bf16: to [count, head_dim].
void ExpandVectors(DType dtype, const uint8_t* codes, const uint8_t* scales, int count,
                   int head_dim, uint16_t* to);

// Writes `count` tokens of one kv head as vectors of value_type(), from `first` on. Of a cache in
// units they are whole ones.
void ReadTokens(const KvShape& shape, KvSide side, const HostVector& first, int count, void* to);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_ATTENTION_KV_KERNELS_H_
