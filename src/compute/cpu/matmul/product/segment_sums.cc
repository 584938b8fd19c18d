#include "compute/cpu/matmul/product/segment_sums.h"

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
  float row_scale;  // 1: none
  FloatRun operator()(IntRun sums, int64_t /*output*/) const {
    return Load<FloatRun>(&sums) * row_scale;
  }
};
struct FromIntegers {
  float row_scale;
  const float* scales;
  FloatRun operator()(IntRun sums, int64_t output) const {
    return __builtin_convertvector(sums, FloatRun) * row_scale * Load<FloatRun>(scales + output);
  }
};
struct FromOffsetIntegers {
  float row_scale;
  const float* scales;
  const int32_t* offsets;
  FloatRun operator()(IntRun sums, int64_t output) const {
    // Unsigned: sums wrap (kernels_x86_vnni.cc).
    const auto difference =
        reinterpret_cast<UnsignedRun>(sums) - Load<UnsignedRun>(offsets + output);
    return FromIntegers{row_scale, scales}(reinterpret_cast<IntRun>(difference), output);
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

// One row of a segment: its accumulators in the block's first panel, what it is added to, from the
// right to the left, and where the sum goes.
struct RowSum {
  const uint32_t* from;
  const float* left[3];
  float* to;
};

// The number of merges is known to the compiler, so that sums stay in registers.
template <int kUnit, int kMerges, typename Values>
TALON_VECTOR_CLONES void AddPanels(const Block& block, const MatrixKernel& kernel,
                                   const Values& values, const RowSum& row) {
  const uint32_t* from = row.from;
  int64_t at = 0;
  for (int64_t p = 0; p < block.panels; ++p, from += kernel.max_rows * kernel.width) {
    const int64_t output = block.PanelOf(p) * kernel.width;
    for (int j = 0; j < kernel.width; j += kRun, at += kRun) {
      FloatRun run = values(ReadRun<kUnit>(from + kUnit * j), output + j);
      TALON_UNROLL
      for (int m = 0; m < kMerges; ++m) run = Load<FloatRun>(row.left[m] + at) + run;
      std::memcpy(row.to + at, &run, sizeof(run));
    }
  }
}

template <int kUnit, typename Values>
void AddPanels(const Block& block, const MatrixKernel& kernel, const Values& values, int merges,
               const RowSum& row) {
  switch (merges) {
    case 0:
      return AddPanels<kUnit, 0>(block, kernel, values, row);
    case 1:
      return AddPanels<kUnit, 1>(block, kernel, values, row);
    case 2:
      return AddPanels<kUnit, 2>(block, kernel, values, row);
    default:
      return AddPanels<kUnit, 3>(block, kernel, values, row);
  }
}

}  // namespace

template <typename Values>
void SegmentSums::AddRow(int row, const uint32_t* acc, const Values& values) {
  const MatrixKernel& kernel = product_.kernel();
  const int merges = product_.w.segments()[segment_].merges;
  alignas(64) float complete[kMaxOutputsPerTask];
  const int unit = kernel.row_unit;
  const int within = row % kernel.max_rows;  // its tile
  RowSum sum;
  sum.from = acc + (row - within) * block_.panels * kernel.width +
             (within - within % unit) * kernel.width + within % unit * unit;
  for (int m = 0; m < merges; ++m) sum.left[m] = Waiting(depth_ - 1 - m, row);
  sum.to = last() ? complete : Waiting(depth_ - merges, row);
  unit == 1 ? AddPanels<1>(block_, kernel, values, merges, sum)
            : AddPanels<2>(block_, kernel, values, merges, sum);
  if (last()) Store(row, complete);
}

void SegmentSums::Add(const uint32_t* acc) {
  const MatrixKernel& kernel = product_.kernel();
  for (int row = 0; row < block_.rows; ++row) {
    const float scale =
        product_.HasRowScales() ? *product_.RowScale(segment_, block_.first_row + row) : 1;
    if (kernel.sum_type != DType::kI32) {
      AddRow(row, acc, FromFloats{scale});
    } else if (kernel.offset_activation) {
      AddRow(row, acc,
             FromOffsetIntegers{scale, product_.w.scales(segment_), product_.w.offsets(segment_)});
    } else {
      AddRow(row, acc, FromIntegers{scale, product_.w.scales(segment_)});
    }
  }
  depth_ += 1 - product_.w.segments()[segment_].merges;
  ++segment_;
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
