#include "compute/cpu/matmul/product/segment_sums.h"

#include <algorithm>
#include <cstring>

#include "compute/cpu/elementwise.h"
#include "compute/cpu/vector_clones.h"

namespace talon {
namespace {

// Outputs taken together; they divide every kernel's width. Vectors by name: left to itself, GCC
// loads what is added to one by one.
#if defined(__x86_64__)
constexpr int kRun = 16;
#else
constexpr int kRun = 4;
#endif
using FloatRun = float __attribute__((vector_size(kRun * sizeof(float))));
using IntRun = int32_t __attribute__((vector_size(kRun * sizeof(int32_t))));
using UnsignedRun = uint32_t __attribute__((vector_size(kRun * sizeof(uint32_t))));

template <typename Run>
Run Load(const void* from) {
  Run run;
  std::memcpy(&run, from, sizeof(run));
  return run;
}

// How accumulators become the values of a segment.
struct FromFloats {
  FloatRun operator()(IntRun sums, float row_scale, int64_t /*output*/) const {
    return Load<FloatRun>(&sums) * row_scale;
  }
};
struct FromIntegers {
  const float* scales;
  FloatRun operator()(IntRun sums, float row_scale, int64_t output) const {
    return __builtin_convertvector(sums, FloatRun) * row_scale * Load<FloatRun>(scales + output);
  }
};
struct FromOffsetIntegers {
  const float* scales;
  const int32_t* offsets;
  FloatRun operator()(IntRun sums, float row_scale, int64_t output) const {
    // Unsigned: sums wrap (kernels_x86_vnni.cc).
    const auto difference =
        reinterpret_cast<UnsignedRun>(sums) - Load<UnsignedRun>(offsets + output);
    return FromIntegers{scales}(reinterpret_cast<IntRun>(difference), row_scale, output);
  }
};

// The accumulators of kRun outputs of a row. With a unit of 2, pairs of two rows alternate.
template <int kUnit>
IntRun ReadRun(const uint32_t* from) {
  if constexpr (kUnit == 1) return Load<IntRun>(from);
  uint32_t sums[kRun];
  TALON_UNROLL
  for (int i = 0; i < kRun; ++i) sums[i] = from[i / 2 * 4 + i % 2];
  return Load<IntRun>(sums);
}

// Some rows and panels of a segment: the first of a tile's accumulators in the first panel, the
// rows' scales, if they have any, what they are added to, from the right to the left, and where the
// sums go. All but the accumulators are [rows][kMaxOutputsPerTask].
struct RowSums {
  const uint32_t* from;
  int rows;
  int64_t first_panel, panels;
  const float* scales;
  const float* left[3];
  float* to;
};

// One row of one panel of `width` outputs. The number of merges is known to the compiler, so that
// sums stay in registers.
template <int kUnit, int kMerges, typename Values>
inline void AddRow(const uint32_t* from, float scale, const Values& values, int64_t output,
                   int width, const float* const (&left)[3], float* to) {
  for (int j = 0; j < width; j += kRun) {
    FloatRun run = values(ReadRun<kUnit>(from + kUnit * j), scale, output + j);
    TALON_UNROLL
    for (int m = 0; m < kMerges; ++m) run = Load<FloatRun>(left[m] + j) + run;
    std::memcpy(to + j, &run, sizeof(run));
  }
}

template <int kUnit, int kMerges, typename Values>
TALON_VECTOR_CLONES void AddPanels(const Block& block, const MatrixKernel& kernel,
                                   const Values values, const RowSums& sums) {
  const int width = kernel.width;
  const int64_t panel_sums = int64_t{kernel.max_rows} * width;
  for (int64_t p = 0; p < sums.panels; ++p) {
    const int64_t output = block.PanelOf(sums.first_panel + p) * width;
    for (int row = 0; row < sums.rows; ++row) {
      const int64_t at = int64_t{row} * kMaxOutputsPerTask + (sums.first_panel + p) * width;
      const uint32_t* from =
          sums.from + p * panel_sums + (row - row % kUnit) * width + row % kUnit * kUnit;
      const float* left[3];
      for (int m = 0; m < kMerges; ++m) left[m] = sums.left[m] + at;
      AddRow<kUnit, kMerges>(from, sums.scales != nullptr ? sums.scales[row] : 1, values, output,
                             width, left, sums.to + at);
    }
  }
}

template <int kUnit, typename Values>
void AddPanels(const Block& block, const MatrixKernel& kernel, const Values& values, int merges,
               const RowSums& sums) {
  switch (merges) {
    case 0:
      return AddPanels<kUnit, 0>(block, kernel, values, sums);
    case 1:
      return AddPanels<kUnit, 1>(block, kernel, values, sums);
    case 2:
      return AddPanels<kUnit, 2>(block, kernel, values, sums);
    default:
      return AddPanels<kUnit, 3>(block, kernel, values, sums);
  }
}

}  // namespace

template <typename Values>
void SegmentSums::AddPart(const BlockPart& part, const uint32_t* acc, const Values& values) {
  const MatrixKernel& kernel = product_.kernel();
  const int merges = product_.w.segments()[segment_].merges;
  for (int64_t tile = 0; tile < part.tiles; ++tile) {
    const int row = static_cast<int>(part.first_tile + tile) * kernel.max_rows;
    RowSums sums = {.from = acc + tile * part.panels * kernel.max_rows * kernel.width,
                    .rows = std::min(kernel.max_rows, block_.rows - row),
                    .first_panel = part.first_panel,
                    .panels = part.panels,
                    .to = Waiting(depth_ - merges, row)};
    if (product_.HasRowScales()) sums.scales = product_.RowScale(segment_, block_.first_row + row);
    for (int m = 0; m < merges; ++m) sums.left[m] = Waiting(depth_ - 1 - m, row);
    kernel.row_unit == 1 ? AddPanels<1>(block_, kernel, values, merges, sums)
                         : AddPanels<2>(block_, kernel, values, merges, sums);
  }
}

void SegmentSums::Add(const BlockPart& part, const uint32_t* acc) {
  const MatrixKernel& kernel = product_.kernel();
  const float* scales = product_.w.scales(segment_);
  if (kernel.sum_type != DType::kI32) {
    AddPart(part, acc, FromFloats{});
  } else if (kernel.offset_activation) {
    AddPart(part, acc, FromOffsetIntegers{scales, product_.w.offsets(segment_)});
  } else {
    AddPart(part, acc, FromIntegers{scales});
  }
}

void SegmentSums::EndSegment() {
  depth_ += 1 - product_.w.segments()[segment_].merges;
  if (++segment_ < product_.num_segments()) return;
  for (int row = 0; row < block_.rows; ++row) Store(row, Waiting(0, row));
}

void SegmentSums::Store(int row, float* values) const {
  const int n = block_.outputs;
  if (product_.call.bias != nullptr) {
    for (int half = 0; half < product_.halves(); ++half) {
      const float* bias = product_.call.bias + block_.first_output + half * product_.half_outputs();
      for (int j = 0; j < n; ++j) values[half * n + j] += bias[j];
    }
  }
  const MatrixView& to = product_.call.out;
  float* out = to.data + (block_.first_row + row) * to.stride + block_.first_output;
  if (product_.call.epilogue == Epilogue::kSwiGlu) {
    SwiGluRow(values, values + n, n, out);
  } else if (product_.call.epilogue == Epilogue::kAdd) {
    for (int j = 0; j < n; ++j) out[j] += values[j];
  } else {
    std::memcpy(out, values, n * sizeof(float));
  }
}

}  // namespace talon
