// bf16 weights with AVX-512's float arithmetic, for processors without vdpbf16ps: two inputs of an
// output share a lane and become float by a shift and a mask. Activations stay float; one fused
// multiply-add per input in ascending order, as in kernels_float.cc, whose bits it gives.
#include "compute/cpu/matmul/kernels_x86_avx512-inl.h"

namespace talon {
namespace {

constexpr int kInputs = 2;  // a group has

template <int kRows>
void Rows(const TileArgs& args) {
  auto* out = static_cast<float*>(args.acc);
  __m512 acc[kRows][kAvx512Vectors];
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < kAvx512Vectors; ++v) {
      acc[r][v] = _mm512_loadu_ps(out + r * kAvx512Width + v * kAvx512Lanes);
    }
  }
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
  const auto* x = static_cast<const float*>(args.x);
  const auto* w = static_cast<const int32_t*>(args.panel);  // pairs of inputs
  const auto* next = static_cast<const uint8_t*>(args.next);
  for (int64_t g = 0; g < args.groups; ++g, x += kRows * kInputs, w += kAvx512Width) {
    Avx512Prefetch(next, args.next_step);
    next += args.next_step;
    __m512 weights[kInputs][kAvx512Vectors];
    TALON_UNROLL
    for (int v = 0; v < kAvx512Vectors; ++v) {
      const __m512i pairs = _mm512_loadu_si512(w + v * kAvx512Lanes);
      weights[0][v] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
      weights[1][v] = _mm512_castsi512_ps(_mm512_and_si512(pairs, upper));
    }
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TALON_UNROLL
      for (int i = 0; i < kInputs; ++i) {
        const __m512 row = _mm512_set1_ps(x[r * kInputs + i]);
        TALON_UNROLL
        for (int v = 0; v < kAvx512Vectors; ++v) {
          acc[r][v] = _mm512_fmadd_ps(row, weights[i][v], acc[r][v]);
        }
      }
    }
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < kAvx512Vectors; ++v) {
      _mm512_storeu_ps(out + r * kAvx512Width + v * kAvx512Lanes, acc[r][v]);
    }
  }
}

void Tile(const TileArgs& args) {
  static_assert(kAvx512MaxRows == 4);
  using TileFunction = void (*)(const TileArgs&);
  static constexpr TileFunction kByRows[kAvx512MaxRows] = {Rows<1>, Rows<2>, Rows<3>, Rows<4>};
  kByRows[args.rows - 1](args);
}

struct FloatOps {
  using Acc = __m512;
  static Acc Dot(Acc acc, __m512i x, __m512i w) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(w), acc);
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
                                      .panel_group_bytes = kAvx512Width * kInputs * 2,
                                      .max_rows = kAvx512MaxRows,
                                      .row_unit = 1,
                                      .offset_activation = false,
                                      .tile = Tile,
                                      .burn = Avx512Burn<FloatOps, 16>};
  return kernel;
}

}  // namespace talon
