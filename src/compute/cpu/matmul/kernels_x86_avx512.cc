// bf16 weights with AVX-512's float arithmetic, for processors without vdpbf16ps: two inputs of an
// output share a lane and become float by a shift and a mask. Activations stay float; one fused
// multiply-add per input in ascending order, as in kernels_float.cc, whose bits it gives.
#include "compute/cpu/matmul/kernels_x86_avx512-inl.h"

namespace talon {
namespace {

constexpr int kInputs = 2;  // a group has

struct Ops : Avx512Floats {
  static constexpr int kXWords = kInputs;
  static constexpr int kGroupBytes = kAvx512Width * kInputs * 2;

  static Acc Dot(Acc acc, __m512i x, __m512i w) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(w), acc);
  }

  template <int kRows>
  static inline __attribute__((always_inline)) void Add(const int32_t* x, const uint8_t* panel,
                                                        Avx512Sums<Avx512Floats, kRows>& sums) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
    __m512i weights[kInputs][kAvx512Vectors];
    TALON_UNROLL
    for (int v = 0; v < kAvx512Vectors; ++v) {
      const __m512i pairs = _mm512_loadu_si512(panel + v * kAvx512Lanes * 4);
      weights[0][v] = _mm512_slli_epi32(pairs, 16);
      weights[1][v] = _mm512_and_si512(pairs, upper);
    }
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TALON_UNROLL
      for (int i = 0; i < kInputs; ++i) {
        const __m512i row = _mm512_set1_epi32(x[r * kInputs + i]);
        TALON_UNROLL
        for (int v = 0; v < kAvx512Vectors; ++v) sums[r][v] = Dot(sums[r][v], row, weights[i][v]);
      }
    }
  }
};

}  // namespace

const MatrixKernel& X86Avx512Bf16Kernel() {
  static const MatrixKernel kernel = {.name = "bf16 avx512",
                                      .weight_type = DType::kBF16,
                                      .activation_type = DType::kF32,
                                      .sum_type = DType::kF32,
                                      .width = kAvx512Width,
                                      .group = kInputs,
                                      .x_group = kInputs,
                                      .panel_group_bytes = Ops::kGroupBytes,
                                      .max_rows = kAvx512MaxRows,
                                      .row_unit = 1,
                                      .offset_activation = false,
                                      .tile = Avx512Tile<Ops>,
                                      .burn = Avx512Burn<Ops, 16>};
  return kernel;
}

}  // namespace talon
