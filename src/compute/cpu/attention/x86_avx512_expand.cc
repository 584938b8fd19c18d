// Units of quantised K and V (kv_codes.h) as bf16, for attention with AVX-512. Codes lie in the
// order of the result, so that only scales have to find their lanes.
#include <immintrin.h>

#include <algorithm>
#include <bit>

#include "compute/cpu/attention/x86_avx512.h"
#include "compute/kv/kv_codes.h"

namespace talon::x86_avx512 {
namespace {

constexpr int kCodes = 16;  // a step takes

// The token of code `i` of a unit.
int TokenOf(KvSide side, int head_dim, int i) {
  if (side == KvSide::kKeys) return i / 2 % kUnitTokens;
  return i / (2 * head_dim) * 2 + i % 2;
}

inline __m128i LoadCodes(const uint8_t* codes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
}

// Sign, exponent and fraction move to their places in bf16, where the exponent's bias is 120 more.
struct Fp8Codes {
  static constexpr DType kType = DType::kF8E4M3;
  using Scales = __m256i;

  static Scales Load(const uint8_t* scales) {
    const __m256i wide = _mm256_cvtepu8_epi16(LoadCodes(scales));
    return _mm256_slli_epi16(_mm256_sub_epi16(wide, _mm256_set1_epi16(7)), 7);
  }
  static __m256i Expand(__m128i codes, Scales exponents) {
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 4);
    const __mmask16 is_number = _mm256_test_epi16_mask(wide, _mm256_set1_epi16(0x07F0));
    const __m256i bits = _mm256_and_si256(wide, _mm256_set1_epi16(static_cast<int16_t>(0x87F0)));
    return _mm256_mask_add_epi16(bits, is_number, bits, exponents);
  }
};

// A code times a power of two is exact in bf16.
struct Int8Codes {
  static constexpr DType kType = DType::kI8;
  using Scales = __m512;

  static Scales Load(const uint8_t* scales) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(LoadCodes(scales)), 23));
  }
  static __m256i Expand(__m128i codes, Scales scales) {
    const __m512 values = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), scales);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(values), 16));
  }
};

template <class Codes>
void ExpandRun(const uint8_t* codes, typename Codes::Scales scales, int count, uint16_t* out) {
  for (int i = 0; i < count; i += kCodes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        Codes::Expand(LoadCodes(codes + i), scales));
  }
}

// A unit with a vector that is not finite.
void ExpandSlowly(DType dtype, KvSide side, const uint8_t* codes, const uint8_t* scales,
                  int head_dim, uint16_t* out) {
  for (int i = 0; i < kUnitTokens * head_dim; ++i) {
    out[i] = BF16FromF32(KvValue(dtype, codes[i], scales[TokenOf(side, head_dim, i)]));
  }
}

// The tokens of sixteen neighbours come round at once in keys, in values after two vectors.
template <class Codes>
void Expand(KvSide side, const uint8_t* codes, const uint8_t* scales, int head_dim, uint16_t* out) {
  if (std::find(scales, scales + kUnitTokens, kNanKvScale) != scales + kUnitTokens) {
    return ExpandSlowly(Codes::kType, side, codes, scales, head_dim, out);
  }
  const int run = side == KvSide::kKeys ? kUnitTokens * head_dim : 2 * head_dim;
  for (int first = 0; first < kUnitTokens * head_dim; first += run) {
    uint8_t lanes[kCodes];
    for (int i = 0; i < kCodes; ++i) lanes[i] = scales[TokenOf(side, head_dim, first + i)];
    ExpandRun<Codes>(codes + first, Codes::Load(lanes), run, out + first);
  }
}

}  // namespace

void ExpandUnit(DType dtype, KvSide side, const uint8_t* codes, const uint8_t* scales, int head_dim,
                uint16_t* out) {
  if (dtype == DType::kI8) return Expand<Int8Codes>(side, codes, scales, head_dim, out);
  Expand<Fp8Codes>(side, codes, scales, head_dim, out);
}

}  // namespace talon::x86_avx512
