// int8 with sdot (FEAT_DotProd): 4 outputs x 4 inputs an instruction, one row at a time.
#include <arm_neon.h>

#include "compute/cpu/matmul/kernels_rows-inl.h"

namespace talon {
namespace {

constexpr int kVectors = kWidth / 4;

struct Rows {
  template <int kRows>
  static void Run(const TileArgs& args) {
    const auto* from = static_cast<const int32_t*>(args.from);
    auto* to = static_cast<int32_t*>(args.to);
    int32x4_t acc[kRows][kVectors];
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = vld1q_s32(from + r * kWidth + 4 * v);
    }
    const auto* x = static_cast<const int8_t*>(args.x);
    const auto* w = static_cast<const int8_t*>(args.panel);
    for (int64_t g = 0; g < args.groups; ++g, x += kRows * kXGroup, w += kWidth * kXGroup) {
      int8x16_t outputs[kVectors];
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) outputs[v] = vld1q_s8(w + 16 * v);
      TALON_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto* four = reinterpret_cast<const int32_t*>(x + r * kXGroup);
        const int8x16_t row = vreinterpretq_s8_s32(vld1q_dup_s32(four));
        TALON_UNROLL
        for (int v = 0; v < kVectors; ++v) acc[r][v] = vdotq_s32(acc[r][v], outputs[v], row);
      }
    }
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TALON_UNROLL
      for (int v = 0; v < kVectors; ++v) vst1q_s32(to + r * kWidth + 4 * v, acc[r][v]);
    }
  }
};

int64_t Burn(int64_t iterations) {
  constexpr int kChains = 16;
  static int8_t data[128] = {};
  const int8_t* from = data;
  int32x4_t acc[kChains] = {};
  for (int64_t n = 0; n < iterations; ++n) {
    asm volatile("" : "+r"(from));  // else the loads leave the loop
    int8x16_t x[8];
    TALON_UNROLL
    for (int i = 0; i < 8; ++i) x[i] = vld1q_s8(from + 16 * i);
    TALON_UNROLL
    for (int i = 0; i < kChains; ++i) acc[i] = vdotq_s32(acc[i], x[i % 4], x[4 + i / 4]);
  }
  TALON_UNROLL
  for (int i = 0; i < kChains; ++i) asm volatile("" : : "w"(acc[i]));
  return iterations * kChains * 16 * 2;
}

}  // namespace

const MatrixKernel& ArmDotprodKernel() {
  static constexpr MatrixKernel kKernel = RowsInt8Kernel("int8 sdot", RowsTile<Rows>, Burn);
  return kKernel;
}

}  // namespace talon
