// int4 with vpdpbusd (AVX512-VNNI). Its first factor is unsigned, so activations come as x + 128; a
// group's sums start at -128 times the sum of its weights, which takes that off again. A byte
// shifted left, or masked, is 16 times a code.
#include "compute/cpu/matmul/kernels_x86_avx512-inl.h"
#include "compute/int4.h"

namespace talon {
namespace {

constexpr int kXGroup = 4;
constexpr int kParts = kInt4Group / kXGroup;
constexpr int kPartBytes = kAvx512Width * kXGroup;  // holds two parts
constexpr int kScalesAt = kAvx512Width * kInt4Group / 2;
constexpr int kGroupBytes = kScalesAt + 2 * kAvx512Width;

inline __m512 LoadScales(const uint8_t* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

// 16 times the codes of sixteen outputs, kXGroup inputs each.
inline __attribute__((always_inline)) void Unpack(const uint8_t* codes, __m512i (&parts)[kParts]) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xF0F0F0F0));
  TALON_UNROLL
  for (int i = 0; i < kParts; i += 2) {
    const __m512i both = _mm512_loadu_si512(codes + i / 2 * kPartBytes);
    parts[i] = _mm512_and_si512(_mm512_slli_epi32(both, 4), mask);
    parts[i + 1] = _mm512_and_si512(both, mask);
  }
}

// One group of sixteen outputs.
template <int kRows>
inline __attribute__((always_inline)) void Step(const int32_t* x, const uint8_t* codes,
                                                __m512 scales, __m512 (&acc)[kRows]) {
  __m512i parts[kParts];
  Unpack(codes, parts);
  __m512i offset = _mm512_setzero_si512();
  TALON_UNROLL
  for (int i = 0; i < kParts; ++i) {
    const __m512i unit = _mm512_set1_epi32(static_cast<int>(0x80808080));
    offset = _mm512_dpbusd_epi32(offset, unit, parts[i]);
  }
  const __m512i start = _mm512_sub_epi32(_mm512_setzero_si512(), offset);
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    __m512i sum = start;
    TALON_UNROLL
    for (int i = 0; i < kParts; ++i) {
      sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(x[i * kRows + r]), parts[i]);
    }
    acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scales, acc[r]);
  }
}

template <int kRows>
void Rows(const TileArgs& args) {
  auto* out = static_cast<float*>(args.acc);
  __m512 acc[kAvx512Vectors][kRows];
  TALON_UNROLL
  for (int v = 0; v < kAvx512Vectors; ++v) {
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      acc[v][r] = _mm512_loadu_ps(out + r * kAvx512Width + v * kAvx512Lanes);
    }
  }
  const auto* x = static_cast<const int32_t*>(args.x);  // 4 inputs each
  const auto* group = static_cast<const uint8_t*>(args.panel);
  for (int64_t g = 0; g < args.groups; ++g, x += kRows * kParts, group += kGroupBytes) {
    TALON_UNROLL
    for (int v = 0; v < kAvx512Vectors; ++v) {
      const __m512 scales = LoadScales(group + kScalesAt + 2 * v * kAvx512Lanes);
      Step<kRows>(x, group + v * kAvx512Lanes * kXGroup, scales, acc[v]);
    }
  }
  TALON_UNROLL
  for (int v = 0; v < kAvx512Vectors; ++v) {
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      _mm512_storeu_ps(out + r * kAvx512Width + v * kAvx512Lanes, acc[v][r]);
    }
  }
}

void Tile(const TileArgs& args) {
  static_assert(kAvx512MaxRows == 8);
  using TileFunction = void (*)(const TileArgs&);
  static constexpr TileFunction kByRows[kAvx512MaxRows] = {Rows<1>, Rows<2>, Rows<3>, Rows<4>,
                                                           Rows<5>, Rows<6>, Rows<7>, Rows<8>};
  kByRows[args.rows - 1](args);
}

}  // namespace

const MatrixKernel& X86VnniInt4Kernel() {
  static const MatrixKernel kernel = {.name = "int4 vpdpbusd",
                                      .weight_type = DType::kI4,
                                      .activation_type = DType::kI8,
                                      .sum_type = DType::kF32,
                                      .width = kAvx512Width,
                                      .group = kInt4Group,
                                      .x_group = kXGroup,
                                      .panel_group_bytes = kGroupBytes,
                                      .max_rows = kAvx512MaxRows,
                                      .row_unit = 1,
                                      .offset_activation = true,
                                      .tile = Tile,
                                      .burn = nullptr};
  return kernel;
}

}  // namespace talon
