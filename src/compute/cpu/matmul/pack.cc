#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "compute/cpu/matmul/matmul.h"
#include "compute/cpu/matmul/memory.h"
#include "compute/cpu/matmul/quantize.h"
#include "compute/fp8.h"
#include "compute/int4.h"
#include "compute/weight_parts.h"

namespace talon {
namespace {

// 127 * 127 * this fits an int32, so int8 sums are exact.
constexpr int64_t kMaxInt8Cols = 1 << 17;

// Lists those of `count` segments from `first` on that are not empty. Returns whether there are
// any.
bool ListSegments(std::span<const int> bounds, int first, int count,
                  std::vector<WeightSegment>* segments) {
  if (count == 1) {
    const int cols = bounds[first + 1] - bounds[first];
    if (cols > 0) segments->push_back({.first_col = bounds[first], .cols = cols});
    return cols > 0;
  }
  const bool left = ListSegments(bounds, first, count / 2, segments);
  const bool right = ListSegments(bounds, first + count / 2, count / 2, segments);
  if (left && right) ++segments->back().merges;
  return left || right;
}

}  // namespace

// Fills one PackedWeight; every panel is packed on its own.
class WeightPacker {
 public:
  WeightPacker(std::span<const HostMatrix> parts, const MatrixKernel& kernel)
      : parts_(parts), kernel_(kernel), weight_(new PackedWeight) {}

  Status Allocate(std::span<const int> bounds, bool fp8_activations) {
    int64_t rows = 0;
    for (const HostMatrix& part : parts_) rows += part.rows;
    PackedWeight& w = *weight_;
    w.kernel_ = &kernel_;
    w.fp8_activations_ = fp8_activations;
    w.rows_ = static_cast<int>(rows);
    w.cols_ = static_cast<int>(parts_[0].cols);
    const int whole[] = {0, w.cols_};
    if (bounds.empty()) bounds = whole;
    TALON_CHECK(bounds.front() == 0 && bounds.back() == w.cols_);
    ListSegments(bounds, 0, static_cast<int>(bounds.size()) - 1, &w.segments_);
    int waiting = 0;
    for (WeightSegment& segment : w.segments_) {
      segment.waiting = waiting;
      waiting += 1 - segment.merges;
      segment.first_group = w.groups_;
      segment.groups = CeilDiv(segment.cols, kernel_.group);
      w.groups_ += segment.groups;
    }
    w.panels_ = CeilDiv(rows, kernel_.width);
    w.panel_bytes_ = w.groups_ * kernel_.panel_group_bytes;
    const size_t scales = w.segments_.size() * w.padded_rows();
    if (kernel_.weight_type == DType::kI8) w.scales_.resize(scales);
    if (kernel_.offset_activation) w.offsets_.resize(scales);
    TALON_ASSIGN_OR_RETURN(w.data_, AllocateStreamed(w.panels_ * w.panel_bytes_));
    return OkStatus();
  }

  int64_t panels() const { return weight_->panels_; }

  void PackPanel(int64_t panel) {
    const int64_t first = panel * kernel_.width;
    const int64_t last = std::min<int64_t>(first + kernel_.width, weight_->rows_);
    for (int64_t row = first; row < last; ++row) PackOutput(row);
  }

  std::unique_ptr<PackedWeight> Take() { return std::move(weight_); }

 private:
  void PackOutput(int64_t row) {
    int64_t within = row;
    size_t p = 0;
    for (; within >= parts_[p].rows; ++p) within -= parts_[p].rows;
    const HostMatrix& part = parts_[p];
    const auto element = static_cast<int64_t>(DTypeSize(part.dtype));
    const auto* source = static_cast<const uint8_t*>(part.data) + within * part.cols * element;
    for (size_t s = 0; s < weight_->segments_.size(); ++s) {
      PackSegment(row, s, source + weight_->segments_[s].first_col * element, part.dtype);
    }
  }

  // `source`: the output's weights for the inputs of the segment.
  void PackSegment(int64_t row, size_t s, const uint8_t* source, DType type) {
    PackedWeight& w = *weight_;
    const WeightSegment& segment = w.segments_[s];
    uint8_t* panel = const_cast<uint8_t*>(w.panel(row / kernel_.width)) +
                     segment.first_group * kernel_.panel_group_bytes;
    const int64_t output = row % kernel_.width;
    if (kernel_.weight_type == DType::kI4) {
      PackInt4Output(source, {.dtype = type, .cols = segment.cols}, panel,
                     static_cast<int>(output));
      return;
    }
    const int group = kernel_.w_group > 0 ? kernel_.w_group : kernel_.group;
    const int64_t groups = segment.groups * (kernel_.group / group);
    const auto group_bytes = static_cast<int64_t>(group * DTypeSize(kernel_.weight_type));
    InterleavedRow target = {.to = panel + output * group_bytes,
                             .stride = kernel_.width * group_bytes,
                             .group = group,
                             .type = kernel_.weight_type};
    const int64_t at = static_cast<int64_t>(s) * w.padded_rows() + row;
    if (kernel_.weight_type == DType::kI8) {
      const RowScale scale = ChooseInt8Scale(source, type, segment.cols);
      w.scales_[at] = scale.scale;
      target.inverse_scale = scale.inverse;
    }
    PackRow(source, type, segment.cols, target);
    if (kernel_.offset_activation) w.offsets_[at] = 128 * SumOfRow(target, groups);
  }

  // The layout is described in kernels_table.h.
  void PackInt4Output(const uint8_t* source, const HostMatrix& part, uint8_t* panel, int output) {
    for (int64_t k = 0; k < part.cols; k += kInt4Group, panel += kernel_.panel_group_bytes) {
      const int count = static_cast<int>(std::min<int64_t>(kInt4Group, part.cols - k));
      float values[kInt4Group];
      ConvertToF32(source + k * DTypeSize(part.dtype), part.dtype, count, values);
      const Int4Weights weights = QuantizeInt4(values, count);
      const int run = kernel_.w_group > 0 ? kernel_.w_group : kernel_.x_group;
      for (int i = 0; i < kInt4Group / 2; ++i) {
        const int low = i / run * 2 * run + i % run;
        const int byte = (i / run * kernel_.width + output) * run + i % run;
        panel[byte] =
            static_cast<uint8_t>((weights.codes[low] & 15) | weights.codes[low + run] * 16);
      }
      const uint16_t sixteenth = BF16FromF32(weights.scale / 16);
      std::memcpy(panel + kernel_.width * kInt4Group / 2 + output * sizeof(sixteenth), &sixteenth,
                  sizeof(sixteenth));
    }
  }

  static int32_t SumOfRow(const InterleavedRow& row, int64_t groups) {
    int32_t sum = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const auto* group = static_cast<const int8_t*>(row.to) + g * row.stride;
      for (int i = 0; i < row.group; ++i) sum += group[i];
    }
    return sum;
  }

  std::span<const HostMatrix> parts_;
  const MatrixKernel& kernel_;
  std::unique_ptr<PackedWeight> weight_;
};

namespace {

// The nearest values that FP8 can represent, each segment of an output with a scale of its own.
std::vector<float> RoundedToFp8(ThreadPool& pool, const HostMatrix& part,
                                std::span<const int> bounds) {
  std::vector<float> values(part.rows * part.cols);
  pool.Run(part.rows, [&](int64_t row, int) {
    const std::span own = std::span(values).subspan(row * part.cols, part.cols);
    for (int64_t i = 0; i < part.cols; ++i) {
      own[i] = LoadElement(part.data, part.dtype, row * part.cols + i);
    }
    if (bounds.empty()) RoundToFp8(own);
    for (size_t s = 0; s + 1 < bounds.size(); ++s) {
      RoundToFp8(own.subspan(bounds[s], bounds[s + 1] - bounds[s]));
    }
  });
  return values;
}

}  // namespace

Result<std::unique_ptr<PackedWeight>> PackWeight(ThreadPool& pool,
                                                 std::span<const HostMatrix> parts,
                                                 WeightFormat format, const MatrixKernel* kernel,
                                                 std::span<const int> bounds,
                                                 bool fp8_activations) {
  TALON_RETURN_IF_ERROR(CheckWeightParts(parts));
  if (format == WeightFormat::kFp8) {
    std::vector<std::vector<float>> values;
    std::vector<HostMatrix> rounded;
    for (const HostMatrix& part : parts) {
      values.push_back(RoundedToFp8(pool, part, bounds));
      rounded.push_back({values.back().data(), DType::kF32, part.rows, part.cols});
    }
    return PackWeight(pool, rounded, WeightFormat::kBF16, kernel, bounds, fp8_activations);
  }
  const DType type = StoredWeightType(parts, format);
  if (type == DType::kI8 && parts[0].cols > kMaxInt8Cols) {
    return InvalidArgument("weight: {} columns, at most {} as int8", parts[0].cols, kMaxInt8Cols);
  }
  if (kernel == nullptr) kernel = AttainableKernels(type)[0];
  TALON_CHECK(kernel->weight_type == type, "kernel {} for {}", kernel->name, DTypeName(type));
  WeightPacker packer(parts, *kernel);
  TALON_RETURN_IF_ERROR(packer.Allocate(bounds, fp8_activations));
  pool.Run(packer.panels(), [&](int64_t panel, int) { packer.PackPanel(panel); });
  return packer.Take();
}

size_t PackedWeight::bytes() const {
  return data_.bytes() + scales_.size() * sizeof(float) + offsets_.size() * sizeof(int32_t);
}

}  // namespace talon
