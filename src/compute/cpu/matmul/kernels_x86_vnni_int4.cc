// int4 with vpdpbusd (AVX512-VNNI), activations packed as x + 128.
#include "compute/cpu/matmul/kernels_x86_avx512-inl.h"
#include "compute/cpu/matmul/kernels_x86_int4-inl.h"

namespace talon {
namespace {

struct Ops : Avx512Floats {
  static constexpr int kWidth = kAvx512Width;
  static constexpr int kXWords = kInt4Parts;
  static constexpr int kGroupBytes = Int4GroupBytes(kWidth);

  template <int kRows>
  static __m512i Row(const void* x, int part, int row) {
    return _mm512_set1_epi32(static_cast<const int32_t*>(x)[part * kRows + row]);
  }
  template <int kRows>
  static inline __attribute__((always_inline)) void Add(const int32_t* x, const uint8_t* panel,
                                                        Avx512Sums<Avx512Floats, kRows>& sums) {
    TALON_UNROLL
    for (int v = 0; v < kAvx512Vectors; v += kInt4StepVectors) {
      AddInt4Step<Ops, kRows>(x, panel, v, sums);
    }
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
                                      .x_group = kInt4XGroup,
                                      .panel_group_bytes = Ops::kGroupBytes,
                                      .max_rows = kAvx512MaxRows,
                                      .row_unit = 1,
                                      .offset_activation = true,
                                      .tile = Avx512Tile<Ops>,
                                      .burn = nullptr};
  return kernel;
}

}  // namespace talon
