// int8 and bf16 with AMX. Its registers are tiles of 16 rows of 64 bytes; an instruction multiplies
// 16 rows x 64 int8 (or 32 bf16) with 16 outputs x as many and adds to 16 x 16 sums of 32 bits. A
// kernel's tile is 16 rows x 64 outputs: four such sums, which hide the instruction's latency.
//
// Registers are always used whole, so that one configuration serves every number of rows. In place
// of missing rows they hold what lies behind the others (rows of later groups, within the memory of
// a full tile). A row's sums are its own, and those of such rows are not read.
//
// int8 weights and activations are as vpdpbusd wants them, which multiplies single rows: memory is
// the limit there, and vectors read it in order. bf16 single rows are AMX's too, because no other
// instruction rounds as it does: it adds the products of a group's even inputs and those of its odd
// ones, each from zero, then both, then that to the accumulator.
#include <immintrin.h>

#include <cstring>

#include "compute/cpu/matmul/kernels_table.h"

namespace talon {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileBytes = 64;  // a row has
constexpr int kWidth = 64;
constexpr int kPanelStride = kWidth * 4;  // 4 bytes of each output
constexpr int kGroupBytes = kTileBytes / 4 * kPanelStride;
constexpr int kSumStride = kWidth * 4;
constexpr int64_t kFetch = kGroupBytes / 4;  // a tile's share of a group where there are four

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

// Registers are named by literals: 0 to 3 are sums, 4 holds rows, 5 to 7 weights.
struct Int8Dots {
  static void Dot0() { _tile_dpbusd(0, 4, 5); }
  static void Dot1() { _tile_dpbusd(1, 4, 6); }
  static void Dot2() { _tile_dpbusd(2, 4, 7); }
  static void Dot3() { _tile_dpbusd(3, 4, 5); }
};

struct Bf16Dots {
  static void Dot0() { _tile_dpbf16ps(0, 4, 5); }
  static void Dot1() { _tile_dpbf16ps(1, 4, 6); }
  static void Dot2() { _tile_dpbf16ps(2, 4, 7); }
  static void Dot3() { _tile_dpbf16ps(3, 4, 5); }
};

void ZeroSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

void LoadSums(const uint8_t* sums) {
  _tile_loadd(0, sums, kSumStride);
  _tile_loadd(1, sums + kTileBytes, kSumStride);
  _tile_loadd(2, sums + 2 * kTileBytes, kSumStride);
  _tile_loadd(3, sums + 3 * kTileBytes, kSumStride);
}

template <class Dots>
void Tile(const TileArgs& args) {
  auto* sums = static_cast<uint8_t*>(args.acc);
  args.fresh ? ZeroSums() : LoadSums(sums);
  const auto* x = static_cast<const uint8_t*>(args.x);
  const auto* panel = static_cast<const uint8_t*>(args.panel);
  const auto* next = static_cast<const uint8_t*>(args.next);
  for (int64_t g = 0; g < args.groups; ++g, x += args.rows * kTileBytes, panel += kGroupBytes) {
    for (int64_t at = 0; at < args.next_step; at += kFetch) {
      TALON_UNROLL
      for (int64_t line = 0; line < kFetch; line += 64) __builtin_prefetch(next + at + line, 0, 2);
    }
    next += args.next_step;
    _tile_loadd(4, x, kTileBytes);
    _tile_loadd(5, panel, kPanelStride);
    Dots::Dot0();
    _tile_loadd(6, panel + kTileBytes, kPanelStride);
    Dots::Dot1();
    _tile_loadd(7, panel + 2 * kTileBytes, kPanelStride);
    Dots::Dot2();
    _tile_loadd(5, panel + 3 * kTileBytes, kPanelStride);
    Dots::Dot3();
  }
  _tile_stored(0, sums, kSumStride);
  _tile_stored(1, sums + kTileBytes, kSumStride);
  _tile_stored(2, sums + 2 * kTileBytes, kSumStride);
  _tile_stored(3, sums + 3 * kTileBytes, kSumStride);
}

void Int8Tile(const TileArgs& args) {
  if (args.rows > 1) return Tile<Int8Dots>(args);
  constexpr int kParts = kGroupBytes / kPanelStride;  // its groups in one of ours
  if (args.fresh) std::memset(args.acc, 0, kSumStride);
  TileArgs row = args;
  row.groups = args.groups * kParts;
  row.next_step = args.next_step / kParts;
  X86VnniKernel().tile(row);
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
    _tile_loadd(5, data, kTileBytes);
    Dots::Dot0();
    Dots::Dot1();
    Dots::Dot2();
    Dots::Dot3();
  }
  End();
  return iterations * 4 * kMultiplications * 2;
}

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
                                           .max_rows = kTileRows,
                                           .row_unit = 1,
                                           .offset_activation = true,
                                           .tile = Int8Tile,
                                           .burn = Burn<Int8Dots, 16 * 16 * 64>,
                                           .w_group = 4,
                                           .large_tiles = true,
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
                                           .max_rows = kTileRows,
                                           .row_unit = 1,
                                           .offset_activation = false,
                                           .tile = Tile<Bf16Dots>,
                                           .burn = Burn<Bf16Dots, 16 * 16 * 32>,
                                           .w_group = 2,
                                           .large_tiles = true,
                                           .begin = Begin,
                                           .end = End};
  return kKernel;
}

}  // namespace talon
