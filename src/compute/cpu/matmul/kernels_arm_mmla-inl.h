// The tile loop shared by Arm's two matrix instructions. smmla multiplies 2 rows x 8 int8 with 2
// outputs x 8 int8, bfmmla the same bytes seen as 4 bf16; both add to a 2 x 2 block of 32-bit
// accumulators. A full tile is 8 rows x 8 outputs: 16 accumulators, 8 loads for 16 instructions.
//
// `Ops` is a type in the including file's anonymous namespace, so no instance is shared between
// files compiled with different flags.
#ifndef TALON_COMPUTE_CPU_MATMUL_KERNELS_ARM_MMLA_INL_H_
#define TALON_COMPUTE_CPU_MATMUL_KERNELS_ARM_MMLA_INL_H_

#include <arm_neon.h>
#include <stdint.h>

#include "compute/cpu/matmul/kernels_table.h"

namespace talon {

constexpr int kMmlaWidth = 8;
constexpr int kMmlaMaxRows = 8;
constexpr int kMmlaPairs = kMmlaWidth / 2;  // pairs of outputs

// Ops: Acc (a 128-bit vector), Scalar (int32_t or float), Mmla(acc, x, w), Load, Store.

// One group.
template <class Ops, int kRowPairs>
inline __attribute__((always_inline)) void MmlaStep(
    const int8_t* x, const int8_t* w, typename Ops::Acc (&acc)[kRowPairs][kMmlaPairs]) {
  int8x16_t rows[kRowPairs];
  TALON_UNROLL
  for (int p = 0; p < kRowPairs; ++p) rows[p] = vld1q_s8(x + 16 * p);
  TALON_UNROLL
  for (int q = 0; q < kMmlaPairs; ++q) {
    const int8x16_t outputs = vld1q_s8(w + 16 * q);
    TALON_UNROLL
    for (int p = 0; p < kRowPairs; ++p) acc[p][q] = Ops::Mmla(acc[p][q], rows[p], outputs);
  }
}

template <class Ops, int kRowPairs>
void MmlaRows(const TileArgs& args) {
  const auto* from = static_cast<const typename Ops::Scalar*>(args.from);
  auto* to = static_cast<typename Ops::Scalar*>(args.to);
  typename Ops::Acc acc[kRowPairs][kMmlaPairs];
  TALON_UNROLL
  for (int p = 0; p < kRowPairs; ++p) {
    TALON_UNROLL
    for (int q = 0; q < kMmlaPairs; ++q) acc[p][q] = Ops::Load(from + 4 * (p * kMmlaPairs + q));
  }
  const auto* x = static_cast<const int8_t*>(args.x);
  const auto* w = static_cast<const int8_t*>(args.panel);
  const auto* next = static_cast<const int8_t*>(args.next);
  const int64_t next_step = args.next_step;
  for (int64_t g = 0; g < args.groups; ++g, x += 16 * kRowPairs, w += 16 * kMmlaPairs) {
    __builtin_prefetch(next, 0, 2);
    next += next_step;
    MmlaStep<Ops, kRowPairs>(x, w, acc);
  }
  TALON_UNROLL
  for (int p = 0; p < kRowPairs; ++p) {
    TALON_UNROLL
    for (int q = 0; q < kMmlaPairs; ++q) Ops::Store(to + 4 * (p * kMmlaPairs + q), acc[p][q]);
  }
}

template <class Ops>
void MmlaTile(const TileArgs& args) {
  switch (args.rows) {
    case 2:
      return MmlaRows<Ops, 1>(args);
    case 4:
      return MmlaRows<Ops, 2>(args);
    case 6:
      return MmlaRows<Ops, 3>(args);
    default:
      return MmlaRows<Ops, 4>(args);
  }
}

// `kMultiplications`: by one instruction. More chains than a tile has, to hide every latency.
template <class Ops, int kMultiplications>
int64_t MmlaBurn(int64_t iterations) {
  constexpr int kRowPairs = 5;
  static int8_t data[16 * (kRowPairs + kMmlaPairs)] = {};
  const int8_t* from = data;
  typename Ops::Acc acc[kRowPairs][kMmlaPairs] = {};
  for (int64_t n = 0; n < iterations; ++n) {
    asm volatile("" : "+r"(from));  // else the loads leave the loop
    int8x16_t x[kRowPairs];
    TALON_UNROLL
    for (int p = 0; p < kRowPairs; ++p) x[p] = vld1q_s8(from + 16 * p);
    TALON_UNROLL
    for (int q = 0; q < kMmlaPairs; ++q) {
      const int8x16_t w = vld1q_s8(from + 16 * (kRowPairs + q));
      TALON_UNROLL
      for (int p = 0; p < kRowPairs; ++p) acc[p][q] = Ops::Mmla(acc[p][q], x[p], w);
    }
  }
  TALON_UNROLL
  for (int p = 0; p < kRowPairs; ++p) {
    TALON_UNROLL
    for (int q = 0; q < kMmlaPairs; ++q) asm volatile("" : : "w"(acc[p][q]));
  }
  return iterations * kRowPairs * kMmlaPairs * kMultiplications * 2;
}

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_KERNELS_ARM_MMLA_INL_H_
