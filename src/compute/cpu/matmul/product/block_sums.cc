#include "compute/cpu/matmul/product/block_sums.h"

#include <algorithm>
#include <cstring>

#include "compute/cpu/elementwise.h"
#include "compute/cpu/matmul/product/store_rows.h"
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
  static FromFloats Of(const PackedWeight& /*w*/, int /*segment*/) { return {}; }
  FloatRun operator()(IntRun sums, float row_scale, int64_t /*output*/) const {
    return Load<FloatRun>(&sums) * row_scale;
  }
};
struct FromIntegers {
  const float* scales;
  static FromIntegers Of(const PackedWeight& w, int segment) { return {w.scales(segment)}; }
  FloatRun operator()(IntRun sums, float row_scale, int64_t output) const {
    return __builtin_convertvector(sums, FloatRun) * row_scale * Load<FloatRun>(scales + output);
  }
};
struct FromOffsetIntegers {
  const float* scales;
  const int32_t* offsets;
  static FromOffsetIntegers Of(const PackedWeight& w, int segment) {
    return {w.scales(segment), w.offsets(segment)};
  }
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

// Where the sums of a tile's rows come from and go to.
struct RowSums {
  const uint32_t* from;  // accumulators, [max_rows * width]
  int rows;
  int64_t output;        // the panel's first in the weights
  const float* scales;   // [rows] or null
  const float* left[3];  // what is added, from the right to the left
  int64_t left_stride;   // from row to row
  float* to;
  int64_t to_stride;
};

// One row of `width` outputs. The number of merges is known to the compiler, so that sums stay in
// registers.
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
TALON_VECTOR_CLONES void AddTile(const MatrixKernel& kernel, const Values values,
                                 const RowSums& sums) {
  const int width = kernel.width;
  for (int row = 0; row < sums.rows; ++row) {
    const uint32_t* from = sums.from + (row - row % kUnit) * width + row % kUnit * kUnit;
    const float* left[3];
    for (int m = 0; m < kMerges; ++m) left[m] = sums.left[m] + row * sums.left_stride;
    AddRow<kUnit, kMerges>(from, sums.scales != nullptr ? sums.scales[row] : 1, values, sums.output,
                           width, left, sums.to + row * sums.to_stride);
  }
}

template <int kUnit, typename Values>
void AddTile(const MatrixKernel& kernel, const Values& values, int merges, const RowSums& sums) {
  switch (merges) {
    case 0:
      return AddTile<kUnit, 0>(kernel, values, sums);
    case 1:
      return AddTile<kUnit, 1>(kernel, values, sums);
    case 2:
      return AddTile<kUnit, 2>(kernel, values, sums);
    default:
      return AddTile<kUnit, 3>(kernel, values, sums);
  }
}

}  // namespace

int64_t BlockSums::Bytes(const Product& product, const Block& block) {
  const auto& segments = product.w.segments();
  int depths = product.gated() ? 1 : 0;
  for (size_t s = 0; s + 1 < segments.size(); ++s) {
    depths = std::max(depths, segments[s].waiting - segments[s].merges + 1);
  }
  return depths * block.rows * block.panels * product.kernel().width *
         static_cast<int64_t>(sizeof(float));
}

BlockSums::BlockSums(const Product& product, const Block& block, void* memory)
    : product_(product),
      block_(block),
      waiting_(static_cast<float*>(memory)),
      stride_(block.panels * product.kernel().width) {
  const MatrixKernel& kernel = product.kernel();
  add_rows_ = kernel.sum_type != DType::kI32 ? &BlockSums::AddRows<FromFloats>
              : kernel.offset_activation     ? &BlockSums::AddRows<FromOffsetIntegers>
                                             : &BlockSums::AddRows<FromIntegers>;
}

void BlockSums::Add(int segment, int64_t p, const TileRun& tiles, const uint32_t* acc) {
  for (int64_t t = 0; t < tiles.count; ++t) {
    const auto row = static_cast<int>(tiles.first + t) * product_.kernel().max_rows;
    (this->*add_rows_)(segment, p, row, acc + t * product_.TileSums());
  }
}

// What goes to the output as it is needs no stop on its way.
BlockSums::Target BlockSums::TargetOf(int segment, int64_t p) const {
  const ProductCall& call = product_.call;
  if (segment + 1 < product_.num_segments()) return Target::kWaiting;
  if (product_.gated()) return p < block_.gate_panels ? Target::kWaiting : Target::kBuffer;
  const bool whole = (p + 1) * product_.kernel().width <= block_.outputs;
  const bool direct =
      whole && call.epilogue == Epilogue::kStore && call.bias == nullptr && !product_.streams;
  return direct ? Target::kOutput : Target::kBuffer;
}

template <typename Values>
void BlockSums::AddRows(int segment, int64_t p, int row, const uint32_t* acc) {
  const MatrixKernel& kernel = product_.kernel();
  const WeightSegment& part = product_.w.segments()[segment];
  const int64_t col = p * kernel.width;
  RowSums sums = {.from = acc,
                  .rows = std::min(kernel.max_rows, block_.rows - row),
                  .output = block_.PanelOf(p) * kernel.width,
                  .left_stride = stride_,
                  .to = buffer_,
                  .to_stride = kernel.width};
  const Target target = TargetOf(segment, p);
  if (target == Target::kWaiting) {
    sums.to = Waiting(part.waiting - part.merges, row) + col;
    sums.to_stride = stride_;
  } else if (target == Target::kOutput) {
    sums.to = OutputOf(row) + col;
    sums.to_stride = product_.call.out.stride;
  }
  if (product_.HasRowScales()) sums.scales = product_.RowScale(segment, block_.first_row + row);
  for (int m = 0; m < part.merges; ++m) sums.left[m] = Waiting(part.waiting - 1 - m, row) + col;
  const auto values = Values::Of(product_.w, segment);
  kernel.row_unit == 1 ? AddTile<1>(kernel, values, part.merges, sums)
                       : AddTile<2>(kernel, values, part.merges, sums);
  if (target != Target::kBuffer) return;
  product_.gated() ? GateBuffer(p, row, sums.rows) : StoreBuffer(p, row, sums.rows);
}

void BlockSums::StoreBuffer(int64_t p, int row, int rows) const {
  const ProductCall& call = product_.call;
  const int width = product_.kernel().width;
  const int64_t col = p * width;
  StoreRows({.from = buffer_,
             .from_stride = width,
             .rows = rows,
             .cols = static_cast<int>(std::min<int64_t>(width, block_.outputs - col)),
             .bias = call.bias != nullptr ? call.bias + block_.first_output + col : nullptr,
             .add = call.epilogue == Epilogue::kAdd,
             .stream = product_.streams,
             .to = OutputOf(row) + col,
             .to_stride = call.out.stride});
}

// The buffer holds up; its gate waits.
void BlockSums::GateBuffer(int64_t p, int row, int rows) {
  const int width = product_.kernel().width;
  const int64_t col = (p - block_.gate_panels) * width;
  const auto n = static_cast<int>(std::min<int64_t>(width, block_.outputs - col));
  const float* bias = product_.call.bias;
  if (bias != nullptr) bias += block_.first_output + col;
  for (int r = 0; r < rows; ++r) {
    float* gate = Waiting(0, row + r) + col;
    float* up = buffer_ + r * width;
    if (bias != nullptr) {
      for (int j = 0; j < n; ++j) gate[j] += bias[j];
      for (int j = 0; j < n; ++j) up[j] += bias[product_.half_outputs() + j];
    }
    SwiGluRow(gate, up, n, up);
  }
  StoreRows({.from = buffer_,
             .from_stride = width,
             .rows = rows,
             .cols = n,
             .stream = product_.streams,
             .to = OutputOf(row) + col,
             .to_stride = product_.call.out.stride});
}

}  // namespace talon
