// int4 with vpdpbusd (AVX512-VNNI). Its first factor is unsigned, so activations come as x + 128;
// 128 times the sum of a group's weights takes that off again. A byte shifted left, or masked, is
// 16 times a code.
#include "compute/cpu/matmul/kernels_x86_avx512-inl.h"
#include "compute/int4.h"

namespace talon {
namespace {

constexpr int kXGroup = 4;
constexpr int kParts = kInt4Group / kXGroup;
constexpr int kPartBytes = kAvx512Width * kXGroup;  // holds two parts
constexpr int kVectorBytes = kAvx512Lanes * kXGroup;
constexpr int kScalesAt = kAvx512Width * kInt4Group / 2;

inline __m512 LoadScales(const uint8_t* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

constexpr int kStepVectors = 2;  // outputs that share the loaded activations

// One group of two vectors of outputs, from vector `first` on.
template <int kRows>
inline __attribute__((always_inline)) void AddStep(const int32_t* x, const uint8_t* group,
                                                   int first,
                                                   Avx512Sums<Avx512Floats, kRows>& sums) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xF0F0F0F0));
  const __m512i unit = _mm512_set1_epi32(static_cast<int>(0x80808080));
  const uint8_t* codes = group + first * kVectorBytes;
  const uint8_t* scales = group + kScalesAt + 2 * first * kAvx512Lanes;
  __m512i offsets[kStepVectors] = {};
  __m512i parts[kStepVectors][kRows] = {};
  TALON_UNROLL
  for (int i = 0; i < kParts; ++i) {
    TALON_UNROLL
    for (int v = 0; v < kStepVectors; ++v) {
      const __m512i both = _mm512_loadu_si512(codes + i / 2 * kPartBytes + v * kVectorBytes);
      const __m512i part = _mm512_and_si512(i % 2 == 0 ? _mm512_slli_epi32(both, 4) : both, mask);
      offsets[v] = _mm512_dpbusd_epi32(offsets[v], unit, part);
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512i row = _mm512_set1_epi32(x[i * kRows + r]);
        parts[v][r] = _mm512_dpbusd_epi32(parts[v][r], row, part);
      }
    }
  }
  TALON_UNROLL
  for (int v = 0; v < kStepVectors; ++v) {
    const __m512 scale = LoadScales(scales + 2 * v * kAvx512Lanes);
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(parts[v][r], offsets[v]));
      sums[r][first + v] = _mm512_fmadd_ps(sum, scale, sums[r][first + v]);
    }
  }
}

struct Ops : Avx512Floats {
  static constexpr int kXWords = kParts;
  static constexpr int kGroupBytes = kScalesAt + 2 * kAvx512Width;
  template <int kRows>
  static inline __attribute__((always_inline)) void Add(const int32_t* x, const uint8_t* panel,
                                                        Avx512Sums<Avx512Floats, kRows>& sums) {
    TALON_UNROLL
    for (int v = 0; v < kAvx512Vectors; v += kStepVectors) AddStep<kRows>(x, panel, v, sums);
  }
};

}  // namespace

const MatrixKernel& X86VnniInt4Kernel() {
  static const MatrixKernel kernel = {.name = "int4 vpdpbusd",
                                      .weight_type = DType::kI4,
                                      .activation_type = DType::kI8,
                                      .sum_type = DType::kF32,
                                      .width = kAvx512Width,
                                      .group = kInt4Group,
                                      .x_group = kXGroup,
                                      .panel_group_bytes = Ops::kGroupBytes,
                                      .max_rows = kAvx512MaxRows,
                                      .row_unit = 1,
                                      .offset_activation = true,
                                      .tile = Avx512Tile<Ops>,
                                      .burn = nullptr};
  return kernel;
}

}  // namespace talon
