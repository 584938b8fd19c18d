// int4 with AMX for many rows: a panel's codes are expanded to bytes, 16 times their value, once
// for all rows. An instruction multiplies 16 rows x 32 int8, the inputs of a group, with 16 outputs
// x as many. Its sums go through memory to vectors, which add them, scaled, to those of the groups
// before. Up to eight rows take vpdpbusd on the codes as they lie, where memory is nearly the
// limit.
#include <immintrin.h>

#include <cstring>

#include "compute/cpu/matmul/kernels_x86_int4-inl.h"

namespace talon {
namespace {

constexpr int kTileRows = 16;  // and outputs
constexpr int kWidth = 32;
constexpr int kMaxRows = 32;
constexpr int kFewRows = 8;
constexpr int kRowsAtOnce = 4;  // when they are few
constexpr int kLine = 64;
constexpr int kQuads = kInt4Group / 4;           // four inputs that lie together
constexpr int kTileBytes = kQuads * kLine;       // 16 outputs' weights of a group
constexpr int kExpandedScales = 2 * kTileBytes;  // behind the weights of both tiles
constexpr int kExpandedBytes = kExpandedScales + kWidth * 4;

// What ldtilecfg reads. Registers 0 and 1 are sums, 4 and 6 hold rows, 5 and 7 weights.
struct TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {kLine, kLine, kLine, kLine, kInt4Group, kLine, kInt4Group, kLine};
  uint8_t rows[16] = {kTileRows, kTileRows, kTileRows, kTileRows,
                      kTileRows, kQuads,    kTileRows, kQuads};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kConfig;

void Begin() { _tile_loadconfig(&kConfig); }
void End() { _tile_release(); }

void Expand(const void* panel, int64_t groups, void* to) {
  const auto* group = static_cast<const uint8_t*>(panel);
  auto* out = static_cast<uint8_t*>(to);
  for (int64_t g = 0; g < groups; ++g, group += Int4GroupBytes(kWidth), out += kExpandedBytes) {
    TALON_UNROLL
    for (int i = 0; i < kQuads / 2; ++i) {
      TALON_UNROLL
      for (int half = 0; half < 2; ++half) {
        const __m512i both = _mm512_loadu_si512(group + (2 * i + half) * kLine);
        uint8_t* rows = out + half * kTileBytes + 2 * i * kLine;
        _mm512_store_si512(rows, LowCodes(both));
        _mm512_store_si512(rows + kLine, HighCodes(both));
      }
    }
    TALON_UNROLL
    for (int half = 0; half < 2; ++half) {
      const uint8_t* scales = group + Int4ScalesAt(kWidth) + half * 2 * kTileRows;
      _mm512_store_ps(out + kExpandedScales + half * kLine, LoadInt4Scales(scales));
    }
  }
}

// 16 rows by 16 outputs. Sums of two groups are on their way to memory while vectors add those of a
// third.
class Quarter {
 public:
  // x: the rows' first group, `x_step` bytes from group to group.
  Quarter(const uint8_t* x, int64_t x_step, const uint8_t* weights, const uint8_t* scales)
      : x_(x), x_step_(x_step), weights_(weights), scales_(scales) {}

  void Run(int64_t groups, const float* from, float* to) {
    alignas(kLine) GroupSums sums[4];
    __m512 acc[kTileRows];
    TALON_UNROLL
    for (int r = 0; r < kTileRows; ++r) acc[r] = _mm512_loadu_ps(from + r * kWidth);
    MultiplyEven(sums[0]);
    if (groups > 1) MultiplyOdd(sums[1]);
    for (int64_t g = 0; g < groups; g += 2) {
      if (g + 2 < groups) MultiplyEven(sums[(g + 2) % 4]);
      Add(sums[g % 4], acc);
      if (g + 3 < groups) MultiplyOdd(sums[(g + 3) % 4]);
      if (g + 1 < groups) Add(sums[(g + 1) % 4], acc);
    }
    TALON_UNROLL
    for (int r = 0; r < kTileRows; ++r) _mm512_storeu_ps(to + r * kWidth, acc[r]);
  }

 private:
  using GroupSums = int32_t[kTileRows][kTileRows];

  // The next group's sums. Registers are named by literals.
  void MultiplyEven(GroupSums& sums) {
    _tile_zero(0);
    _tile_loadd(4, x_, kInt4Group);
    _tile_loadd(5, weights_, kLine);
    _tile_dpbssd(0, 4, 5);
    _tile_stored(0, sums, kLine);
    Advance();
  }
  void MultiplyOdd(GroupSums& sums) {
    _tile_zero(1);
    _tile_loadd(6, x_, kInt4Group);
    _tile_loadd(7, weights_, kLine);
    _tile_dpbssd(1, 6, 7);
    _tile_stored(1, sums, kLine);
    Advance();
  }
  void Advance() {
    x_ += x_step_;
    weights_ += kExpandedBytes;
  }

  void Add(const GroupSums& sums, __m512 (&acc)[kTileRows]) {
    const __m512 scale = _mm512_load_ps(scales_);
    scales_ += kExpandedBytes;
    TALON_UNROLL
    for (int r = 0; r < kTileRows; ++r) {
      acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[r])), scale, acc[r]);
    }
  }

  const uint8_t* x_;
  const int64_t x_step_;
  const uint8_t* weights_;
  const uint8_t* scales_;
};

void ManyRows(const TileArgs& args) {
  const int64_t x_step = args.rows * kInt4Group;
  for (int row = 0; row < args.rows; row += kTileRows) {
    const auto* x = static_cast<const uint8_t*>(args.x) + row * kInt4Group;
    for (int half = 0; half < 2; ++half) {
      const auto* weights = static_cast<const uint8_t*>(args.panel);
      const int at = row * kWidth + half * kTileRows;
      Quarter(x, x_step, weights + half * kTileBytes, weights + kExpandedScales + half * kLine)
          .Run(args.groups, static_cast<const float*>(args.from) + at,
               static_cast<float*>(args.to) + at);
    }
  }
}

struct FewLayout {
  static constexpr int kWidth = talon::kWidth;
  template <int kRows>
  static __m512i Row(const void* x, int part, int row) {
    int32_t four;
    std::memcpy(&four, static_cast<const uint8_t*>(x) + row * kInt4Group + part * 4, 4);
    return _mm512_set1_epi32(four ^ static_cast<int32_t>(0x80808080));
  }
};

// kRows of few rows, from row `first` on.
template <int kRows>
void FewRows(const TileArgs& args, int first) {
  const auto* from = static_cast<const float*>(args.from) + first * kWidth;
  auto* to = static_cast<float*>(args.to) + first * kWidth;
  __m512 sums[kRows][kInt4StepVectors];
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < kInt4StepVectors; ++v) {
      sums[r][v] = _mm512_loadu_ps(from + r * kWidth + v * kInt4Lanes);
    }
  }
  const auto* x = static_cast<const uint8_t*>(args.x) + first * kInt4Group;
  const auto* group = static_cast<const uint8_t*>(args.panel);
  const auto* next = static_cast<const uint8_t*>(args.next);
  for (int64_t g = 0; g < args.groups; ++g) {
    for (int64_t line = 0; line < args.next_step; line += kLine) {
      __builtin_prefetch(next + line, 0, 2);
    }
    AddInt4Step<FewLayout, kRows>(x, group, 0, sums);
    next += args.next_step;
    x += args.rows * kInt4Group;
    group += Int4GroupBytes(kWidth);
  }
  TALON_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TALON_UNROLL
    for (int v = 0; v < kInt4StepVectors; ++v) {
      _mm512_storeu_ps(to + r * kWidth + v * kInt4Lanes, sums[r][v]);
    }
  }
}

void Tile(const TileArgs& args) {
  if (args.expanded) return ManyRows(args);
  using RowsFunction = void (*)(const TileArgs&, int);
  static constexpr RowsFunction kRows[kRowsAtOnce] = {FewRows<1>, FewRows<2>, FewRows<3>,
                                                      FewRows<4>};
  for (int first = 0; first < args.rows; first += kRowsAtOnce) {
    const int left = args.rows - first;
    kRows[(left < kRowsAtOnce ? left : kRowsAtOnce) - 1](args, first);
  }
}

}  // namespace

const MatrixKernel& X86AmxInt4Kernel() {
  static constexpr MatrixKernel kKernel = {.name = "int4 amx",
                                           .weight_type = DType::kI4,
                                           .activation_type = DType::kI8,
                                           .sum_type = DType::kF32,
                                           .width = kWidth,
                                           .group = kInt4Group,
                                           .x_group = kInt4Group,
                                           .panel_group_bytes = Int4GroupBytes(kWidth),
                                           .max_rows = kMaxRows,
                                           .row_unit = 1,
                                           .offset_activation = false,
                                           .tile = Tile,
                                           .burn = nullptr,
                                           .w_group = kInt4XGroup,
                                           .limits = {.rows = 256,
                                                      .outputs = 128,
                                                      .few_rows = kFewRows,
                                                      .packed_rows = kFewRows,
                                                      .slice_bytes = 16 * Int4GroupBytes(kWidth),
                                                      .streamed_bytes = 1 << 20},
                                           .expand = Expand,
                                           .expanded_group_bytes = kExpandedBytes,
                                           .begin = Begin,
                                           .end = End};
  return kKernel;
}

}  // namespace talon
