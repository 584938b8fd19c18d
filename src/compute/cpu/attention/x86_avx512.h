// What the files of attention with AVX-512 share.
#ifndef TALON_COMPUTE_CPU_ATTENTION_X86_AVX512_H_
#define TALON_COMPUTE_CPU_ATTENTION_X86_AVX512_H_

#include <cstdint>

#include "compute/cpu/attention/kernels.h"
#include "compute/dtype.h"
#include "compute/kv/kv_units.h"

namespace talon::x86_avx512 {

// AttentionKernels::expand.
void ExpandUnit(DType dtype, KvSide side, const uint8_t* codes, const uint8_t* scales, int head_dim,
                uint16_t* out);

// AttentionKernels::multiply_keys and _values with the bits of AMX's, faster for few rows.
void MultiplyKeysInGroups(const KvTile& keys, const TileProduct& product);
void MultiplyValuesInGroups(const KvTile& values, const TileProduct& product);

}  // namespace talon::x86_avx512

#endif  // TALON_COMPUTE_CPU_ATTENTION_X86_AVX512_H_
