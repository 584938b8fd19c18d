#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "compute/cpu/matmul/matmul.h"
#include "compute/cpu/matmul/memory.h"
#include "compute/cpu/matmul/quantize.h"
#include "compute/int4.h"
#include "compute/weight_parts.h"

namespace talon {
namespace {

// 127 * 127 * this fits an int32, so int8 sums are exact.
constexpr int64_t kMaxInt8Cols = 1 << 17;

}  // namespace

// Fills one PackedWeight; every panel is packed on its own.
class WeightPacker {
 public:
  WeightPacker(std::span<const HostMatrix> parts, const MatrixKernel& kernel)
      : parts_(parts), kernel_(kernel), weight_(new PackedWeight) {}

  Status Allocate() {
    int64_t rows = 0;
    for (const HostMatrix& part : parts_) rows += part.rows;
    PackedWeight& w = *weight_;
    w.kernel_ = &kernel_;
    w.rows_ = static_cast<int>(rows);
    w.cols_ = static_cast<int>(parts_[0].cols);
    w.groups_ = (w.cols_ + kernel_.group - 1) / kernel_.group;
    w.panels_ = (rows + kernel_.width - 1) / kernel_.width;
    w.panel_bytes_ = w.groups_ * kernel_.panel_group_bytes;
    const size_t padded_rows = w.panels_ * kernel_.width;
    if (kernel_.weight_type == DType::kI8) w.scales_.resize(padded_rows);
    if (kernel_.offset_activation) w.offsets_.resize(padded_rows);
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
    PackedWeight& w = *weight_;
    int64_t within = row;
    size_t p = 0;
    for (; within >= parts_[p].rows; ++p) within -= parts_[p].rows;
    const HostMatrix& part = parts_[p];
    const auto* source = static_cast<const uint8_t*>(part.data) +
                         within * part.cols * static_cast<int64_t>(DTypeSize(part.dtype));
    uint8_t* panel = const_cast<uint8_t*>(w.panel(row / kernel_.width));
    if (kernel_.weight_type == DType::kI4) {
      PackInt4Output(source, part, panel, static_cast<int>(row % kernel_.width));
      return;
    }
    const int64_t group_bytes = kernel_.panel_group_bytes / kernel_.width;
    InterleavedRow target = {.to = panel + row % kernel_.width * group_bytes,
                             .stride = kernel_.panel_group_bytes,
                             .group = kernel_.group,
                             .type = kernel_.weight_type};
    if (kernel_.weight_type == DType::kI8) {
      const RowScale scale = ChooseInt8Scale(source, part.dtype, part.cols);
      w.scales_[row] = scale.scale;
      target.inverse_scale = scale.inverse;
    }
    PackRow(source, part.dtype, part.cols, target);
    if (kernel_.offset_activation) w.offsets_[row] = 128 * SumOfRow(target, w.groups_);
  }

  // The layout is described in kernels_table.h.
  void PackInt4Output(const uint8_t* source, const HostMatrix& part, uint8_t* panel, int output) {
    for (int64_t k = 0; k < part.cols; k += kInt4Group, panel += kernel_.panel_group_bytes) {
      const int count = static_cast<int>(std::min<int64_t>(kInt4Group, part.cols - k));
      float values[kInt4Group];
      ConvertToF32(source + k * DTypeSize(part.dtype), part.dtype, count, values);
      const Int4Weights weights = QuantizeInt4(values, count);
      const int run = kernel_.x_group;
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

Result<std::unique_ptr<PackedWeight>> PackWeight(ThreadPool& pool,
                                                 std::span<const HostMatrix> parts,
                                                 WeightFormat format, const MatrixKernel* kernel) {
  TALON_RETURN_IF_ERROR(CheckWeightParts(parts));
  const DType type = StoredWeightType(parts, format);
  if (type == DType::kI8 && parts[0].cols > kMaxInt8Cols) {
    return InvalidArgument("weight: {} columns, at most {} as int8", parts[0].cols, kMaxInt8Cols);
  }
  if (kernel == nullptr) kernel = AttainableKernels(type)[0];
  TALON_CHECK(kernel->weight_type == type, "kernel {} for {}", kernel->name, DTypeName(type));
  WeightPacker packer(parts, *kernel);
  TALON_RETURN_IF_ERROR(packer.Allocate());
  pool.Run(packer.panels(), [&](int64_t panel, int) { packer.PackPanel(panel); });
  return packer.Take();
}

size_t PackedWeight::bytes() const {
  return data_.bytes() + scales_.size() * sizeof(float) + offsets_.size() * sizeof(int32_t);
}

}  // namespace talon
