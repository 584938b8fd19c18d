// bf16 with vdpbf16ps (AVX512-BF16): activations rounded to bf16, float accumulators.
#include "compute/cpu/matmul/kernels_x86_avx512-inl.h"

namespace talon {
namespace {

struct Bf16Dots : Avx512Floats {
  static Acc Dot(Acc acc, __m512i x, __m512i w) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
};

}  // namespace

const MatrixKernel& X86Bf16Kernel() {
  static const MatrixKernel kernel = {.name = "bf16 vdpbf16ps",
                                      .weight_type = DType::kBF16,
                                      .activation_type = DType::kBF16,
                                      .sum_type = DType::kF32,
                                      .width = kAvx512Width,
                                      .group = 2,
                                      .x_group = 2,
                                      .panel_group_bytes = kAvx512Width * 2 * 2,
                                      .max_rows = kAvx512MaxRows,
                                      .row_unit = 1,
                                      .offset_activation = false,
                                      .tile = Avx512Tile<Avx512DotOps<Bf16Dots>>,
                                      .burn = Avx512Burn<Bf16Dots, 32>};
  return kernel;
}

}  // namespace talon
