// Attention's products with AMX, over a cache in the order of AVX-512's kernels.
#ifndef TALON_COMPUTE_CPU_ATTENTION_X86_AMX_H_
#define TALON_COMPUTE_CPU_ATTENTION_X86_AMX_H_

#include <algorithm>

#include "compute/cpu/attention/kernels.h"

namespace talon::x86_amx {

// Inputs whose products are added before they join a sum: how they are grouped shows in the bits.
// Scores have their whole depth in one call; sums of values may be cut at any unit.
inline int GroupOf(const TileProduct& product) {
  constexpr int kMost = 32;
  return product.rescale != nullptr ? kUnitKeys : std::min(product.depth & -product.depth, kMost);
}

// `kernels`: those of x86_avx512.cc. REQUIRES: tdpbf16ps and vcvtneps2bf16.
AttentionKernels WithAmx(AttentionKernels kernels);

}  // namespace talon::x86_amx

#endif  // TALON_COMPUTE_CPU_ATTENTION_X86_AMX_H_
