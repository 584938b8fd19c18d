// int8 with AVX2. vpmaddubsw wants one unsigned factor: |w| times x with the sign of w is x * w,
// and pairs of such products (at most 2 * 127 * 127) cannot saturate 16 bits.
#include <immintrin.h>

#include "compute/cpu/matmul/kernels_rows-inl.h"

namespace talon {
namespace {

constexpr int kVectors = kWidth / 8;

inline __m256i LoadVector(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

inline __m256i AddDots(__m256i acc, __m256i w, __m256i abs_w, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(abs_w, _mm256_sign_epi8(x, w));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

struct Rows {
  template <int kRows>
  static void Run(const TileArgs& args) {
    const auto* from = static_cast<const int32_t*>(args.from);
    __m256i acc[kRows][kVectors];
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = LoadVector(from + r * kWidth + 8 * v);
    }
    const auto* x = static_cast<const int32_t*>(args.x);  // a group is 4 bytes
    const auto* w = static_cast<const int8_t*>(args.panel);
    const auto* next = static_cast<const uint8_t*>(args.next);
    for (int64_t g = 0; g < args.groups; ++g, x += kRows, w += kWidth * kXGroup) {
      __builtin_prefetch(next, 0, 2);  // a group is a line
      next += args.next_step;
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const __m256i outputs = LoadVector(w + 32 * v);
        const __m256i magnitudes = _mm256_abs_epi8(outputs);
        TALON_UNROLL
        for (int r = 0; r < kRows; ++r) {
          acc[r][v] = AddDots(acc[r][v], outputs, magnitudes, _mm256_set1_epi32(x[r]));
        }
      }
    }
    auto* to = static_cast<int32_t*>(args.to);
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + r * kWidth + 8 * v), acc[r][v]);
      }
    }
  }
};

int64_t Burn(int64_t iterations) {
  constexpr int kChains = 8;
  __m256i x = _mm256_set1_epi8(1);
  __m256i acc[kChains];
  TALON_UNROLL
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_setzero_si256();
  for (int64_t n = 0; n < iterations; ++n) {
    TALON_UNROLL
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(x));  // else the product is computed once
      acc[i] = AddDots(acc[i], x, x, x);
    }
  }
  TALON_UNROLL
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+x"(acc[i]));
  return iterations * kChains * 32 * 2;
}

}  // namespace

const MatrixKernel& X86Avx2Kernel() {
  static constexpr MatrixKernel kKernel = RowsInt8Kernel("int8 avx2", RowsTile<Rows>, Burn);
  return kKernel;
}

}  // namespace talon
