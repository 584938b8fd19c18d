// The tile loop of AVX-512's kernels. A tile is 4 rows x 64 outputs: 16 accumulators of 16 lanes,
// and a group of a row that was loaded once is multiplied four times.
//
// `Ops` is a type in the including file's anonymous namespace, so no instance is shared between
// files compiled with different flags.
#ifndef TALON_COMPUTE_CPU_MATMUL_KERNELS_X86_AVX512_INL_H_
#define TALON_COMPUTE_CPU_MATMUL_KERNELS_X86_AVX512_INL_H_

#include <immintrin.h>

#include "compute/cpu/matmul/kernels_table.h"

namespace talon {

constexpr int kAvx512Width = 64;
constexpr int kAvx512MaxRows = 4;
constexpr int kAvx512Vectors = 4;
constexpr int kAvx512Lanes = 16;

// `Sums` has the type Acc.
template <class Sums, int kRows>
using Avx512Sums = typename Sums::Acc[kRows][kAvx512Vectors];

// What a group's step is to fetch, by lines. With many tiles a step has less than one.
inline __attribute__((always_inline)) void Avx512Prefetch(const uint8_t* next, int64_t step) {
  __builtin_prefetch(next, 0, 2);
  for (int64_t line = 64; line < step; line += 64) __builtin_prefetch(next + line, 0, 2);
}

// Sums that are int32 and float.
struct Avx512Ints {
  using Acc = __m512i;
  static Acc Load(const void* from) { return _mm512_loadu_si512(from); }
  static void Store(void* to, Acc acc) { _mm512_storeu_si512(to, acc); }
};
struct Avx512Floats {
  using Acc = __m512;
  static Acc Load(const void* from) { return _mm512_loadu_ps(from); }
  static void Store(void* to, Acc acc) { _mm512_storeu_ps(to, acc); }
};

// Ops: Acc (a 512-bit vector), Load, Store; kXWords (4 bytes of a row in a group), kGroupBytes (a
// group's in a panel) and Add(x, panel, sums), which adds a group's products: x [rows, x words].
template <class Ops, int kRows>
void Avx512Rows(const TileArgs& args) {
  // Or float: only addresses are formed.
  const auto* from = static_cast<const int32_t*>(args.from);
  auto* to = static_cast<int32_t*>(args.to);
  Avx512Sums<Ops, kRows> sums;
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < kAvx512Vectors; ++v) {
      sums[r][v] = Ops::Load(from + r * kAvx512Width + v * kAvx512Lanes);
    }
  }
  const auto* x = static_cast<const int32_t*>(args.x);
  const auto* panel = static_cast<const uint8_t*>(args.panel);
  const auto* next = static_cast<const uint8_t*>(args.next);
  for (int64_t g = 0; g < args.groups; ++g, x += kRows * Ops::kXWords, panel += Ops::kGroupBytes) {
    Avx512Prefetch(next, args.next_step);
    next += args.next_step;
    Ops::template Add<kRows>(x, panel, sums);
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < kAvx512Vectors; ++v) {
      Ops::Store(to + r * kAvx512Width + v * kAvx512Lanes, sums[r][v]);
    }
  }
}

template <class Ops>
void Avx512Tile(const TileArgs& args) {
  static_assert(kAvx512MaxRows == 4);
  using TileFunction = void (*)(const TileArgs&);
  static constexpr TileFunction kByRows[kAvx512MaxRows] = {Avx512Rows<Ops, 1>, Avx512Rows<Ops, 2>,
                                                           Avx512Rows<Ops, 3>, Avx512Rows<Ops, 4>};
  kByRows[args.rows - 1](args);
}

// For vpdpbusd (4 int8 a lane) and vdpbf16ps (2 bf16 a lane): both multiply groups of 4 bytes and
// add to 16 lanes. Dots: Acc, Load, Store, Dot(acc, x, w).
template <class Dots>
struct Avx512DotOps : Dots {
  static constexpr int kXWords = 1;
  static constexpr int kGroupBytes = kAvx512Width * 4;
  template <int kRows>
  static inline __attribute__((always_inline)) void Add(const int32_t* x, const uint8_t* panel,
                                                        Avx512Sums<Dots, kRows>& sums) {
    __m512i outputs[kAvx512Vectors];
    TALON_UNROLL
    for (int v = 0; v < kAvx512Vectors; ++v) {
      outputs[v] = _mm512_loadu_si512(panel + v * kAvx512Lanes * 4);
    }
    TALON_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512i row = _mm512_set1_epi32(x[r]);
      TALON_UNROLL
      for (int v = 0; v < kAvx512Vectors; ++v) sums[r][v] = Dots::Dot(sums[r][v], row, outputs[v]);
    }
  }
};

// `kMultiplications`: by one instruction.
template <class Dots, int kMultiplications>
int64_t Avx512Burn(int64_t iterations) {
  constexpr int kChains = 16;
  static int32_t data[2 * kAvx512Lanes] = {};
  const int32_t* from = data;
  typename Dots::Acc acc[kChains] = {};
  for (int64_t n = 0; n < iterations; ++n) {
    asm volatile("" : "+r"(from));  // else the loads leave the loop
    const __m512i x[2] = {_mm512_loadu_si512(from), _mm512_loadu_si512(from + kAvx512Lanes)};
    TALON_UNROLL
    for (int i = 0; i < kChains; ++i) {
      acc[i] = Dots::Dot(acc[i], x[i % 2], x[i / 8]);
      asm volatile("" : "+v"(acc[i]));  // else chains of the same factors are computed once
    }
  }
  TALON_UNROLL
  for (int i = 0; i < kChains; ++i) asm volatile("" : : "v"(acc[i]));
  return iterations * kChains * kMultiplications * 2;
}

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_KERNELS_X86_AVX512_INL_H_
