// Matrix products on the CPU: out = x * w^T, with w packed once in the order its kernel reads it.
//
// Row independence: a row of the result has the same bits whatever the other rows, their number and
// the number of threads (kernels_table.h says why).
#ifndef TALON_COMPUTE_CPU_MATMUL_MATMUL_H_
#define TALON_COMPUTE_CPU_MATMUL_MATMUL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "compute/cpu/matmul/kernels_table.h"
#include "compute/matrix.h"

namespace talon {

// A run of inputs that are summed on their own (compute/ranks/segments.h).
struct WeightSegment {
  int first_col = 0, cols = 0;
  int64_t first_group = 0, groups = 0;  // in the packed panels
  // Sums left of it that wait for it or for a later one, and how many of them it completes: each is
  // added, the last first.
  int waiting = 0, merges = 0;
};

// A weight matrix [rows = outputs, cols = inputs] cut into panels of kernel().width outputs, padded
// with zeros: [ceil(rows / width)][groups()][panel_group_bytes]. Every segment begins with a group.
// Immutable.
class PackedWeight : public Weight {
 public:
  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  size_t bytes() const override;

  const MatrixKernel& kernel() const { return *kernel_; }
  bool fp8_activations() const { return fp8_activations_; }
  int64_t groups() const { return groups_; }
  int64_t panels() const { return panels_; }
  size_t panel_bytes() const { return panel_bytes_; }
  const uint8_t* panel(int64_t index) const {
    return static_cast<const uint8_t*>(data_.data()) + index * panel_bytes_;
  }
  // Those that are not empty, ascending; at least one.
  const std::vector<WeightSegment>& segments() const { return segments_; }
  // int8 only, [panels * width]: the scale of each output in a segment, and 128 times the sum of
  // its weights where the kernel wants activations offset by 128 (else empty).
  const float* scales(int segment) const { return scales_.data() + segment * padded_rows(); }
  const int32_t* offsets(int segment) const { return offsets_.data() + segment * padded_rows(); }

 private:
  friend class WeightPacker;
  PackedWeight() = default;
  int64_t padded_rows() const { return panels_ * kernel_->width; }
  const MatrixKernel* kernel_ = nullptr;
  bool fp8_activations_ = false;
  int rows_ = 0;
  int cols_ = 0;
  int64_t groups_ = 0;
  int64_t panels_ = 0;
  size_t panel_bytes_ = 0;
  Buffer data_;
  std::vector<WeightSegment> segments_;
  std::vector<float> scales_;     // [segments][padded_rows()]
  std::vector<int32_t> offsets_;  // the same
};

// Stacks the parts' rows. The parts must agree in cols; types may differ (kAsStored then means
// f32). `kernel`, for tests: one of AttainableKernels() for the resulting type; null takes the
// best. `bounds`: where segments begin and end, 1, 2, 4 or 8 of them; empty: all is one.
// `fp8_activations`: each segment of a row is rounded to FP8 before the product.
Result<std::unique_ptr<PackedWeight>> PackWeight(ThreadPool& pool,
                                                 std::span<const HostMatrix> parts,
                                                 WeightFormat format,
                                                 const MatrixKernel* kernel = nullptr,
                                                 std::span<const int> bounds = {},
                                                 bool fp8_activations = false);

// Memory of MatMul that is kept from call to call, so that a steady state allocates nothing. Used
// by one MatMul at a time.
class MatMulScratch {
 public:
  // At least `bytes`, 64-byte aligned; contents undefined.
  uint8_t* Activations(size_t bytes);
  // [rows], the scale of each row.
  float* RowScales(int rows);
  // [cols] for each thread, 64-byte aligned.
  float* ThreadRows(int threads, int cols);
  // At least `bytes`, 64-byte aligned, for the sums of all threads.
  uint8_t* Sums(size_t bytes);
  size_t bytes() const {
    return activations_.bytes() + thread_rows_.bytes() + sums_.bytes() +
           row_scales_.size() * sizeof(float);
  }

 private:
  Buffer activations_;
  Buffer thread_rows_;
  Buffer sums_;
  std::vector<float> row_scales_;
};

// How a product's accumulators reach `out`: stored, added, or gated by SwiGLU. The latter's
// weights stack the gate's rows and as many of up; `out` is SwiGlu of both, half as wide.
enum class Epilogue { kStore, kAdd, kSwiGlu };

// x * w^T (+ bias [w.rows()], may be null). Where `norm` [x.cols] is given, rows of x are
// normed first, and rounded to FP8 where `w` says so, while they are brought into the form that the
// kernel wants.
// REQUIRES: x is [rows, w.cols()], out as wide as the epilogue says, not overlapping.
struct ProductCall {
  MatrixView x;
  const float* norm = nullptr;
  float epsilon = 0;
  const PackedWeight* w = nullptr;
  const float* bias = nullptr;
  MatrixView out;
  Epilogue epilogue = Epilogue::kStore;
};
void RunProduct(ThreadPool& pool, const ProductCall& call, MatMulScratch* scratch);
// Whether `w` supports Epilogue::kSwiGlu: gate and up must begin with a panel each.
bool CanGate(const PackedWeight& w);

// out = x * w^T (+ bias) or, with `accumulate`, out += that.
inline void MatMul(ThreadPool& pool, MatrixView x, const PackedWeight& w, const float* bias,
                   MatrixView out, bool accumulate, MatMulScratch* scratch) {
  const Epilogue epilogue = accumulate ? Epilogue::kAdd : Epilogue::kStore;
  RunProduct(pool, {.x = x, .w = &w, .bias = bias, .out = out, .epilogue = epilogue}, scratch);
}

// The kernels in use for each weight type, readable: "f32 fma, f16 fmlal, bf16 bfmmla, int8/int4
// smmla".
std::string MatMulKernelNames();

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_MATMUL_H_
