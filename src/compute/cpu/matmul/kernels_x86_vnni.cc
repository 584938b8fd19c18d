// int8 with vpdpbusd (AVX512-VNNI). Its first factor is unsigned, so activations come as x + 128;
// MatMul takes 128 times the sum of the weights off again. Sums wrap, so only the end must fit.
#include "compute/cpu/matmul/kernels_x86_avx512-inl.h"

namespace talon {
namespace {

struct VnniDots : Avx512Ints {
  static Acc Dot(Acc acc, __m512i x, __m512i w) { return _mm512_dpbusd_epi32(acc, x, w); }
};

}  // namespace

const MatrixKernel& X86VnniKernel() {
  static const MatrixKernel kernel = {.name = "int8 vpdpbusd",
                                      .weight_type = DType::kI8,
                                      .activation_type = DType::kI8,
                                      .sum_type = DType::kI32,
                                      .width = kAvx512Width,
                                      .group = 4,
                                      .x_group = 4,
                                      .panel_group_bytes = kAvx512Width * 4,
                                      .max_rows = kAvx512MaxRows,
                                      .row_unit = 1,
                                      .offset_activation = true,
                                      .tile = Avx512Tile<Avx512DotOps<VnniDots>>,
                                      .burn = Avx512Burn<VnniDots, 64>};
  return kernel;
}

}  // namespace talon
