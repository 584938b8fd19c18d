// int4 with AVX2. vpmaddubsw wants one unsigned factor: |code| times x with the sign of the code. A
// pair of products is at most 2 * 8 * 127, so the 8 pairs that an output has in a lane add up in 16
// bits; vpmaddwd then adds the two halves of the lane, times 16 as the scales want it.
#include <immintrin.h>

#include "compute/cpu/matmul/kernels_rows-inl.h"

namespace talon {
namespace {

constexpr int kVectors = kWidth / 8;

// The codes in the low halves of the bytes, with their signs.
inline __m256i SignedCodes(__m256i bytes) {
  const __m256i sign = _mm256_set1_epi8(8);
  const __m256i codes = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
  return _mm256_sub_epi8(_mm256_xor_si256(codes, sign), sign);
}

inline __m256 LoadScales(const uint8_t* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// One group of eight outputs.
template <int kRows>
inline __attribute__((always_inline)) void Step(const int32_t* x, const uint8_t* codes,
                                                __m256 scales, __m256 (&acc)[kRows]) {
  __m256i sums[kRows];
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) sums[r] = _mm256_setzero_si256();
  TALON_UNROLL
  for (int i = 0; i < kInt4Parts; i += 2) {
    const auto* from = reinterpret_cast<const __m256i*>(codes + i / 2 * kInt4PartBytes);
    const __m256i both = _mm256_loadu_si256(from);
    const __m256i parts[2] = {SignedCodes(both), SignedCodes(_mm256_srli_epi16(both, 4))};
    TALON_UNROLL
    for (int half = 0; half < 2; ++half) {
      const __m256i magnitudes = _mm256_abs_epi8(parts[half]);
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m256i row = _mm256_set1_epi32(x[(i + half) * kRows + r]);
        const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(row, parts[half]));
        sums[r] = _mm256_add_epi16(sums[r], pairs);
      }
    }
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m256i sum = _mm256_madd_epi16(sums[r], _mm256_set1_epi16(16));
    acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scales, acc[r]);
  }
}

struct Rows {
  template <int kRows>
  static void Run(const TileArgs& args) {
    const auto* from = static_cast<const float*>(args.from);
    auto* to = static_cast<float*>(args.to);
    __m256 acc[kVectors][kRows];
    TALON_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) acc[v][r] = _mm256_loadu_ps(from + r * kWidth + 8 * v);
    }
    const auto* x = static_cast<const int32_t*>(args.x);  // 4 inputs each
    const auto* group = static_cast<const uint8_t*>(args.panel);
    const auto* next = static_cast<const uint8_t*>(args.next);
    for (int64_t g = 0; g < args.groups; ++g, x += kRows * kInt4Parts, group += kInt4GroupBytes) {
      for (int64_t line = 0; line < args.next_step; line += 64) {
        __builtin_prefetch(next + line, 0, 2);
      }
      next += args.next_step;
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        Step<kRows>(x, group + 32 * v, LoadScales(group + kInt4ScalesAt + 16 * v), acc[v]);
      }
    }
    TALON_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) _mm256_storeu_ps(to + r * kWidth + 8 * v, acc[v][r]);
    }
  }
};

}  // namespace

const MatrixKernel& X86Avx2Int4Kernel() {
  static constexpr MatrixKernel kKernel = RowsInt4Kernel("int4 avx2", RowsTile<Rows>);
  return kKernel;
}

}  // namespace talon
