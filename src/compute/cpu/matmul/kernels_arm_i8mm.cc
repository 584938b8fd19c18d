// int8 with smmla (FEAT_I8MM).
#include "compute/cpu/matmul/kernels_arm_mmla-inl.h"

namespace talon {
namespace {

struct Int8Ops {
  using Acc = int32x4_t;
  using Scalar = int32_t;
  static Acc Mmla(Acc acc, int8x16_t x, int8x16_t w) { return vmmlaq_s32(acc, x, w); }
  static Acc Load(const Scalar* from) { return vld1q_s32(from); }
  static void Store(Scalar* to, Acc acc) { vst1q_s32(to, acc); }
};

}  // namespace

const MatrixKernel& ArmI8mmKernel() {
  static const MatrixKernel kernel = {.name = "int8 smmla",
                                      .weight_type = DType::kI8,
                                      .activation_type = DType::kI8,
                                      .sum_type = DType::kI32,
                                      .width = kMmlaWidth,
                                      .group = 8,
                                      .x_group = 8,
                                      .panel_group_bytes = kMmlaWidth * 8,
                                      .max_rows = kMmlaMaxRows,
                                      .row_unit = 2,
                                      .offset_activation = false,
                                      .tile = MmlaTile<Int8Ops>,
                                      .burn = MmlaBurn<Int8Ops, 32>};
  return kernel;
}

}  // namespace talon
