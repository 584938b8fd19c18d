// MXFP4 with vpdpbusd (AVX512-VNNI). Its first factor is unsigned: a byte shuffle makes codes + 12
// of codes, and the sums of a group begin at -12 times its inputs'. The high and the low bytes of a
// row's group fill one register, so half of the lanes count 128 times.
#include <immintrin.h>

#include <cstring>

#include "compute/cpu/matmul/kernels_rows-inl.h"
#include "compute/cpu/matmul/mxfp4/mxfp4_kernels-inl.h"

namespace talon {
namespace {

constexpr int kOffset = 12;

__m512i OffsetTable() {
  alignas(16) int8_t table[16];
  for (int i = 0; i < 16; ++i) table[i] = static_cast<int8_t>(kMxfp4Doubled[i] + kOffset);
  return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
}

// Values of a group as bytes: 16 even ones, 16 odd ones, and the same again.
inline __m512i LoadCodes(const uint8_t* from, __m512i table) {
  const __m512i odd = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0,
                                       0x0004000400040004, 0x0004000400040004, 0, 0);
  const __m512i bytes =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m512i codes = _mm512_and_si512(_mm512_srlv_epi16(bytes, odd), _mm512_set1_epi8(15));
  return _mm512_shuffle_epi8(table, codes);
}

// The factors of a group's outputs.
inline __m128 LoadScales(const uint8_t* exponents) {
  int32_t bytes;
  std::memcpy(&bytes, exponents, sizeof(bytes));
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes)), 23));
}

struct Rows {
  template <int kRows>
  static void Run(const Mxfp4Tile& tile) {
    const __m512i table = OffsetTable();
    const __m512 units = _mm512_insertf32x8(_mm512_set1_ps(1), _mm256_set1_ps(128), 0);
    const uint8_t* from[kMxfp4Outputs];
    __m512 sums[kRows][kMxfp4Outputs];
    TALON_UNROLL
    for (int i = 0; i < kMxfp4Outputs; ++i) {
      from[i] = CodesOf(tile, i);
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) sums[r][i] = _mm512_setzero_ps();
    }
    for (int64_t g = 0; g < tile.groups; ++g) {
      const __m128 scales = LoadScales(tile.scales + g * kMxfp4Outputs);
      __m512i codes[kMxfp4Outputs];
      __m512 factors[kMxfp4Outputs];
      TALON_UNROLL
      for (int i = 0; i < kMxfp4Outputs; ++i) {
        codes[i] = LoadCodes(from[i] + g * kMxfp4GroupBytes, table);
        factors[i] = _mm512_broadcastss_ps(_mm_permutevar_ps(scales, _mm_set1_epi32(i)));
      }
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int64_t at = g * kRows + r;
        const __m512i x = _mm512_loadu_si512(tile.x + at * kMxfp4PackedBytes);
        const __m512i offset =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(kOffset), x);
        const __m512i base = _mm512_sub_epi32(_mm512_setzero_si512(), offset);
        const __m512 unit = _mm512_mul_ps(units, _mm512_set1_ps(tile.x_scales[at]));
        TALON_UNROLL
        for (int i = 0; i < kMxfp4Outputs; ++i) {
          const __m512 products = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(base, codes[i], x));
          sums[r][i] = _mm512_fmadd_ps(products, _mm512_mul_ps(unit, factors[i]), sums[r][i]);
        }
      }
    }
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TALON_UNROLL
      for (int i = 0; i < kMxfp4Outputs; ++i) {
        tile.sums[r * kMxfp4Outputs + i] = _mm512_reduce_add_ps(sums[r][i]);
      }
    }
  }
};

}  // namespace

const Mxfp4Kernel& X86VnniMxfp4Kernel() {
  static constexpr Mxfp4Kernel kKernel = {
      .name = "mxfp4 vpdpbusd", .run = kMxfp4Group, .tile = RowsTile<Rows, Mxfp4Tile>};
  return kKernel;
}

}  // namespace talon
