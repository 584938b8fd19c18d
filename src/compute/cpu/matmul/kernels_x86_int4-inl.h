// What the int4 kernels with vpdpbusd (AVX512-VNNI) share. Its first factor is unsigned, so it
// multiplies activations + 128; 128 times the sum of a group's weights takes that off again. A byte
// shifted left, or masked, is 16 times a code.
//
// `Layout` is a type in the including file's anonymous namespace, so no instance is shared between
// files compiled with different flags.
#ifndef TALON_COMPUTE_CPU_MATMUL_KERNELS_X86_INT4_INL_H_
#define TALON_COMPUTE_CPU_MATMUL_KERNELS_X86_INT4_INL_H_

#include <immintrin.h>

#include "compute/cpu/matmul/kernels_table.h"
#include "compute/int4.h"

namespace talon {

constexpr int kInt4XGroup = 4;
constexpr int kInt4Parts = kInt4Group / kInt4XGroup;
constexpr int kInt4Lanes = 16;
constexpr int kInt4StepVectors = 2;  // outputs that share the loaded activations

// A group of an int4 panel of `width` outputs (kernels_table.h): codes, then scales.
constexpr int Int4ScalesAt(int width) { return width * kInt4Group / 2; }
constexpr int Int4GroupBytes(int width) { return Int4ScalesAt(width) + 2 * width; }

inline __attribute__((always_inline)) __m512i LowCodes(__m512i both) {
  return _mm512_and_si512(_mm512_slli_epi32(both, 4), _mm512_set1_epi8(static_cast<char>(0xF0)));
}
inline __attribute__((always_inline)) __m512i HighCodes(__m512i both) {
  return _mm512_and_si512(both, _mm512_set1_epi8(static_cast<char>(0xF0)));
}
inline __attribute__((always_inline)) __m512 LoadInt4Scales(const uint8_t* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// One group of two vectors of outputs, from vector `first` on. Layout: kWidth, kRows, and
// Row(x, part, row), four activations + 128 in every lane. `sums`: those of the row's first vector
// of outputs, kStride from row to row.
template <class Layout, int kRows, int kVectors>
inline __attribute__((always_inline)) void AddInt4Step(const void* x, const uint8_t* group,
                                                       int first, __m512 (&sums)[kRows][kVectors]) {
  constexpr int kVectorBytes = kInt4Lanes * kInt4XGroup;
  constexpr int kPartBytes = Layout::kWidth * kInt4XGroup;  // holds two parts
  const __m512i unit = _mm512_set1_epi32(static_cast<int>(0x80808080));
  const uint8_t* codes = group + first * kVectorBytes;
  const uint8_t* scales = group + Int4ScalesAt(Layout::kWidth) + 2 * first * kInt4Lanes;
  __m512i offsets[kInt4StepVectors] = {};
  __m512i parts[kInt4StepVectors][kRows] = {};
  TALON_UNROLL
  for (int i = 0; i < kInt4Parts; ++i) {
    TALON_UNROLL
    for (int v = 0; v < kInt4StepVectors; ++v) {
      const __m512i both = _mm512_loadu_si512(codes + i / 2 * kPartBytes + v * kVectorBytes);
      const __m512i part = i % 2 == 0 ? LowCodes(both) : HighCodes(both);
      offsets[v] = _mm512_dpbusd_epi32(offsets[v], unit, part);
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) {
        parts[v][r] = _mm512_dpbusd_epi32(parts[v][r], Layout::template Row<kRows>(x, i, r), part);
      }
    }
  }
  TALON_UNROLL
  for (int v = 0; v < kInt4StepVectors; ++v) {
    const __m512 scale = LoadInt4Scales(scales + 2 * v * kInt4Lanes);
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(parts[v][r], offsets[v]));
      sums[r][first + v] = _mm512_fmadd_ps(sum, scale, sums[r][first + v]);
    }
  }
}

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_KERNELS_X86_INT4_INL_H_
