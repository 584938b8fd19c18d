// bf16 with bfmmla (FEAT_BF16): activations rounded to bf16, float accumulators.
#include "compute/cpu/matmul/kernels_arm_mmla-inl.h"

namespace talon {
namespace {

struct Bf16Ops {
  using Acc = float32x4_t;
  using Scalar = float;
  static Acc Mmla(Acc acc, int8x16_t x, int8x16_t w) {
    return vbfmmlaq_f32(acc, vreinterpretq_bf16_s8(x), vreinterpretq_bf16_s8(w));
  }
  static Acc Load(const Scalar* from) { return vld1q_f32(from); }
  static void Store(Scalar* to, Acc acc) { vst1q_f32(to, acc); }
};

}  // namespace

const MatrixKernel& ArmBf16Kernel() {
  static const MatrixKernel kernel = {.name = "bf16 bfmmla",
                                      .weight_type = DType::kBF16,
                                      .activation_type = DType::kBF16,
                                      .sum_type = DType::kF32,
                                      .width = kMmlaWidth,
                                      .group = 4,
                                      .x_group = 4,
                                      .panel_group_bytes = kMmlaWidth * 4 * 2,
                                      .max_rows = kMmlaMaxRows,
                                      .row_unit = 2,
                                      .offset_activation = false,
                                      .tile = MmlaTile<Bf16Ops>,
                                      .burn = MmlaBurn<Bf16Ops, 16>};
  return kernel;
}

}  // namespace talon
