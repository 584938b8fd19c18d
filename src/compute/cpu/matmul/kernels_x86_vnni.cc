// int8 with vpdpbusd (AVX512-VNNI). Its first factor is unsigned, so activations come as x + 128;
// MatMul takes 128 times the sum of the weights off again. Sums wrap, so only the end must fit.
#include "compute/cpu/matmul/kernels_x86_avx512-inl.h"

namespace talon {
namespace {

struct VnniOps {
  using Acc = __m512i;
  static Acc Load(const void* from) { return _mm512_loadu_si512(from); }
  static void Store(void* to, Acc acc) { _mm512_storeu_si512(to, acc); }
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
                                      .tile = Avx512Tile<VnniOps>,
                                      .burn = Avx512Burn<VnniOps, 64>};
  return kernel;
}

}  // namespace talon
