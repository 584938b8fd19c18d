// int8 and bf16 with AMX. Its registers are tiles of 16 rows of 64 bytes; an instruction multiplies
// 16 rows x 64 int8 (or 32 bf16) with 16 outputs x as many and adds to 16 x 16 sums of 32 bits. A
// kernel's tile is 32 rows x 32 outputs: four such sums, which hide the instruction's latency, for
// four loads.
//
// The instruction takes 16 cycles, a load of a tile from the first-level cache 8, from the second
// about 14. So of rows and weights one must stay in the first-level cache: a slice of the weights
// where rows are many. Rows are then loaded with the hint that they are read once; without it they
// push a slice of more than a third of that cache out.
//
// Registers are always used whole, so that one configuration serves every number of rows. In place
// of missing rows they hold what lies behind the others (rows of later groups, within the memory of
// a full tile). A row's sums are its own, and those of such rows are not read.
//
// A bf16 instruction adds the products of a group's even inputs and those of its odd ones, each
// from zero, then both, then that to the accumulator. No other instruction rounds so.
#include <immintrin.h>

#include "compute/cpu/matmul/kernels_table.h"

namespace talon {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileBytes = 64;  // a row has
constexpr int kWidth = 32;
constexpr int kMaxRows = 32;
constexpr int kStride = kWidth * 4;  // 4 bytes of each output
constexpr int kHalfSums = kTileRows * kStride;
constexpr int kGroupBytes = kTileBytes / 4 * kStride;

// What ldtilecfg reads: all eight registers as large as they come.
struct TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {kTileBytes, kTileBytes, kTileBytes, kTileBytes,
                            kTileBytes, kTileBytes, kTileBytes, kTileBytes};
  uint8_t rows[16] = {kTileRows, kTileRows, kTileRows, kTileRows,
                      kTileRows, kTileRows, kTileRows, kTileRows};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kConfig;

void Begin() { _tile_loadconfig(&kConfig); }
void End() { _tile_release(); }

// Registers are named by literals: 0 to 3 are sums (rows 0 to 15 by both halves of the outputs,
// then rows 16 to 31), 4 and 5 hold rows, 6 and 7 weights.
struct Int8Dots {
  static void Dot0() { _tile_dpbssd(0, 4, 6); }
  static void Dot1() { _tile_dpbssd(1, 4, 7); }
  static void Dot2() { _tile_dpbssd(2, 5, 6); }
  static void Dot3() { _tile_dpbssd(3, 5, 7); }
};

struct Bf16Dots {
  static void Dot0() { _tile_dpbf16ps(0, 4, 6); }
  static void Dot1() { _tile_dpbf16ps(1, 4, 7); }
  static void Dot2() { _tile_dpbf16ps(2, 5, 6); }
  static void Dot3() { _tile_dpbf16ps(3, 5, 7); }
};

// Loads the sums, or makes them zero.
template <bool kBothHalves>
void StartSums(const TileArgs& args) {
  const auto* from = static_cast<const uint8_t*>(args.from);
  if (args.fresh) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kBothHalves) {
      _tile_zero(2);
      _tile_zero(3);
    }
    return;
  }
  _tile_stream_loadd(0, from, kStride);
  _tile_stream_loadd(1, from + kTileBytes, kStride);
  if constexpr (kBothHalves) {
    _tile_stream_loadd(2, from + kHalfSums, kStride);
    _tile_stream_loadd(3, from + kHalfSums + kTileBytes, kStride);
  }
}

template <bool kBothHalves>
void StoreSums(const TileArgs& args) {
  auto* to = static_cast<uint8_t*>(args.to);
  _tile_stored(0, to, kStride);
  _tile_stored(1, to + kTileBytes, kStride);
  if constexpr (kBothHalves) {
    _tile_stored(2, to + kHalfSums, kStride);
    _tile_stored(3, to + kHalfSums + kTileBytes, kStride);
  }
}

// A group of one or two halves of the rows.
template <class Dots, bool kBothHalves>
inline __attribute__((always_inline)) void AddGroup(const uint8_t* x, const uint8_t* panel) {
  _tile_stream_loadd(4, x, kTileBytes);
  _tile_loadd(6, panel, kStride);
  Dots::Dot0();
  if constexpr (kBothHalves) {
    _tile_stream_loadd(5, x + kTileRows * kTileBytes, kTileBytes);
    Dots::Dot2();
  }
  _tile_loadd(7, panel + kTileBytes, kStride);
  Dots::Dot1();
  if constexpr (kBothHalves) Dots::Dot3();
}

template <class Dots, bool kBothHalves>
void Rows(const TileArgs& args) {
  StartSums<kBothHalves>(args);
  const auto* x = static_cast<const uint8_t*>(args.x);
  const auto* panel = static_cast<const uint8_t*>(args.panel);
  const auto* next = static_cast<const uint8_t*>(args.next);
  for (int64_t g = 0; g < args.groups; ++g, x += args.rows * kTileBytes, panel += kGroupBytes) {
    for (int64_t line = 0; line < args.next_step; line += 64) __builtin_prefetch(next + line, 0, 2);
    next += args.next_step;
    AddGroup<Dots, kBothHalves>(x, panel);
  }
  StoreSums<kBothHalves>(args);
}

template <class Dots>
void Tile(const TileArgs& args) {
  args.rows > kTileRows ? Rows<Dots, true>(args) : Rows<Dots, false>(args);
}

// What Burn multiplies: bf16 numbers from 1 to 2 of both signs, or as bytes anything. Products of
// zeros take less power, so that they stay fast where the processor slows others down.
struct BurnData {
  alignas(64) uint16_t values[kTileRows * kTileBytes / 2] = {};

  constexpr BurnData() {
    uint32_t random = 1;
    for (uint16_t& value : values) {
      random = random * 1664525 + 1013904223;
      value = 0x3F80 | (random >> 16 & 0x807F);
    }
  }
};

// `kMultiplications`: by one instruction. Fewer loads than in Tile, so that only the instruction
// limits it.
template <class Dots, int kMultiplications>
int64_t Burn(int64_t iterations) {
  static constexpr BurnData kData;
  const uint16_t* data = kData.values;
  Begin();  // all registers are zero
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_loadd(4, data, kTileBytes);
    _tile_loadd(6, data, kTileBytes);
    Dots::Dot0();
    Dots::Dot1();
    Dots::Dot2();
    Dots::Dot3();
  }
  End();
  return iterations * 4 * kMultiplications * 2;
}

// Rows and outputs whose sums fill a quarter of the second-level cache.
constexpr BlockLimits kLimits = {
    .rows = 256, .outputs = 128, .slice_bytes = 32 << 10, .streamed_bytes = 1 << 20};

}  // namespace

const MatrixKernel& X86AmxInt8Kernel() {
  static constexpr MatrixKernel kKernel = {.name = "int8 amx",
                                           .weight_type = DType::kI8,
                                           .activation_type = DType::kI8,
                                           .sum_type = DType::kI32,
                                           .width = kWidth,
                                           .group = kTileBytes,
                                           .x_group = kTileBytes,
                                           .panel_group_bytes = kGroupBytes,
                                           .max_rows = kMaxRows,
                                           .row_unit = 1,
                                           .offset_activation = false,
                                           .tile = Tile<Int8Dots>,
                                           .burn = Burn<Int8Dots, 16 * 16 * 64>,
                                           .w_group = 4,
                                           .limits = kLimits,
                                           .begin = Begin,
                                           .end = End};
  return kKernel;
}

const MatrixKernel& X86AmxBf16Kernel() {
  static constexpr MatrixKernel kKernel = {.name = "bf16 amx",
                                           .weight_type = DType::kBF16,
                                           .activation_type = DType::kBF16,
                                           .sum_type = DType::kF32,
                                           .width = kWidth,
                                           .group = kTileBytes / 2,
                                           .x_group = kTileBytes / 2,
                                           .panel_group_bytes = kGroupBytes,
                                           .max_rows = kMaxRows,
                                           .row_unit = 1,
                                           .offset_activation = false,
                                           .tile = Tile<Bf16Dots>,
                                           .burn = Burn<Bf16Dots, 16 * 16 * 32>,
                                           .w_group = 2,
                                           .limits = kLimits,
                                           .begin = Begin,
                                           .end = End};
  return kKernel;
}

}  // namespace talon
