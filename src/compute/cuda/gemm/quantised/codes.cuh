// From codes to pairs of bf16, a word at a time. Included by CUDA sources only.
#ifndef TALON_COMPUTE_CUDA_GEMM_QUANTISED_CODES_CUH_
#define TALON_COMPUTE_CUDA_GEMM_QUANTISED_CODES_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "compute/cuda/gemm/quantised/layout.h"

namespace talon::cuda {

__device__ __forceinline__ uint32_t SubtractPair(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
__device__ __forceinline__ uint32_t MultiplyPair(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

// (word & mask) | bits, in one instruction.
__device__ __forceinline__ uint32_t MaskOr(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

// 128 as a bf16, in both halves: its fraction holds seven bits, the last of which is worth 1.
inline constexpr uint32_t kPairOf128 = 0x43004300;

// The scale and the zero of a row's group, each in both halves.
struct GroupPair {
  uint32_t scale = 0;
  uint32_t zero = 0;
};

// Formats. kSets and kZeros: what tiles hold besides the codes (CodeTiles). Expand gives the pairs
// of one step of 16 inputs: `low` the inputs 2t and 2t + 1, `high` those eight further on.

struct Int8Codes {
  static constexpr int kBits = 8;
  static constexpr int kSets = 0;
  static constexpr bool kZeros = false;
  // Seven bits are 128 more than their value in the fraction of 128; the sign makes 256 of 128.
  static __device__ __forceinline__ uint32_t Pair(uint32_t word) {
    return SubtractPair(MaskOr(word, 0x007F007F, kPairOf128), MaskOr(word, 0x00800080, kPairOf128));
  }
  static __device__ __forceinline__ void Expand(uint32_t word, int, const GroupPair&, uint32_t* low,
                                                uint32_t* high) {
    *low = Pair(word);
    *high = Pair(word >> 8);
  }
};

// Four bits of exponent in the place of bf16's eight are 2^120 too small; a group's scale has that
// factor in it.
inline constexpr uint32_t kPairOfFp8Factor = 0x7B807B80;

template <int kSetsOf>
struct Fp8Codes {
  static constexpr int kBits = 8;
  static constexpr int kSets = kSetsOf;
  static constexpr bool kZeros = false;
  // `bits`: the code without its sign, in its place.
  static __device__ __forceinline__ uint32_t Pair(uint32_t sign, uint32_t bits,
                                                  const GroupPair& group) {
    return MultiplyPair(MaskOr(sign, 0x80008000, bits & 0x07F007F0),
                        kSets == 0 ? kPairOfFp8Factor : group.scale);
  }
  static __device__ __forceinline__ void Expand(uint32_t word, int, const GroupPair& group,
                                                uint32_t* low, uint32_t* high) {
    *low = Pair(word << 8, word << 4, group);
    *high = Pair(word, word >> 4, group);
  }
};

// 136, the zero of symmetric int4 codes.
inline constexpr uint32_t kPairOfSymmetricZero = 0x43084308;

template <int kSetsOf, bool kZerosOf>
struct Int4Codes {
  static constexpr int kBits = 4;
  static constexpr int kSets = kSetsOf;
  static constexpr bool kZeros = kZerosOf;
  // A group's zero is 128 more than its value.
  static __device__ __forceinline__ uint32_t Pair(uint32_t word, const GroupPair& group) {
    const uint32_t zero = kZeros ? group.zero : kPairOfSymmetricZero;
    return MultiplyPair(SubtractPair(MaskOr(word, 0x000F000F, kPairOf128), zero), group.scale);
  }
  // A word has two steps.
  static __device__ __forceinline__ void Expand(uint32_t word, int step, const GroupPair& group,
                                                uint32_t* low, uint32_t* high) {
    const int shift = step % 2 * 8;
    *low = Pair(word >> shift, group);
    *high = Pair(word >> (shift + 4), group);
  }
};

// A row's scales, or zeros, of one tile: as read, and the one of inputs [32 * quarter, + 32) in
// both halves of a word.
template <int kSets>
struct RowSets {
  static_assert(kSets == 1 || kSets == 4);
  static constexpr int kBytes = kSets * 2;
  uint32_t words[kSets == 4 ? 2 : 1];

  __device__ __forceinline__ uint32_t Pair(int quarter) const {
    if constexpr (kSets == 1) return __byte_perm(words[0], 0, 0x1010);
    return __byte_perm(words[quarter / 2], 0, quarter % 2 == 0 ? 0x1010 : 0x3232);
  }
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_QUANTISED_CODES_CUH_
