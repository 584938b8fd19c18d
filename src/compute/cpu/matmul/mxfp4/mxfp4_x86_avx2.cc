// MXFP4 with AVX2: codes become whole numbers by a byte shuffle. vpmaddubsw wants one unsigned
// factor: |code| times x with the sign of the code; a pair is at most 2 * 12 * 127.
#include <immintrin.h>

#include "compute/cpu/matmul/kernels_rows-inl.h"
#include "compute/cpu/matmul/mxfp4/mxfp4_kernels-inl.h"

namespace talon {
namespace {

// The 16 even values, then the odd ones.
inline __m256i LoadCodes(const uint8_t* from, __m256i table) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
  return _mm256_shuffle_epi8(table, _mm256_and_si256(both, _mm256_set1_epi8(15)));
}

inline __m256i Pairs(__m256i magnitudes, __m256i codes, const int8_t* x) {
  const __m256i row = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  return _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(row, codes));
}

inline float SumOfLanes(__m256 v) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

template <int kRows>
void RunOutput(const Mxfp4Tile& tile, int output) {
  const uint8_t* from = CodesOf(tile, output);
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kMxfp4Doubled)));
  __m256 acc[kRows];
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = _mm256_setzero_ps();
  for (int64_t g = 0; g < tile.groups; ++g) {
    const __m256i codes = LoadCodes(from + g * kMxfp4GroupBytes, table);
    const __m256i magnitudes = _mm256_abs_epi8(codes);
    const float scale = ScaleOf(tile.scales[g * kMxfp4Outputs + output]);
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = g * kRows + r;
      const int8_t* x = tile.x + at * kMxfp4PackedBytes;
      const __m256i high = Pairs(magnitudes, codes, x);
      const __m256i low = Pairs(magnitudes, codes, x + 2 * kMxfp4GroupBytes);
      const __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(high, _mm256_set1_epi16(128)),
                                           _mm256_madd_epi16(low, _mm256_set1_epi16(1)));
      const __m256 factor = _mm256_set1_ps(scale * tile.x_scales[at]);
      acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), factor, acc[r]);
    }
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) tile.sums[r * kMxfp4Outputs + output] = SumOfLanes(acc[r]);
}

struct Rows {
  template <int kRows>
  static void Run(const Mxfp4Tile& tile) {
    for (int i = 0; i < tile.outputs; ++i) RunOutput<kRows>(tile, i);
  }
};

}  // namespace

const Mxfp4Kernel& X86Avx2Mxfp4Kernel() {
  static constexpr Mxfp4Kernel kKernel = {
      .name = "mxfp4 avx2", .run = kMxfp4Group, .tile = RowsTile<Rows, Mxfp4Tile>};
  return kKernel;
}

}  // namespace talon
