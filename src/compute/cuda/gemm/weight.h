// Weight matrices in device memory: row-major, each row padded with zeros to padded_cols().
#ifndef TALON_COMPUTE_CUDA_GEMM_WEIGHT_H_
#define TALON_COMPUTE_CUDA_GEMM_WEIGHT_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/dtype.h"
#include "compute/matrix.h"

namespace talon::cuda {

// int8 weights are symmetric, with one float scale per (output, group of kScaleGroup inputs);
// activations stay bf16.
class CudaWeight : public Weight {
 public:
  // Allocates zeros, to be filled by PackWeight or a test. `dtype`: kF32, kF16, kBF16 or kI8.
  static Result<std::unique_ptr<CudaWeight>> Allocate(const Stream& stream, int rows, int cols,
                                                      DType dtype);

  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  size_t bytes() const override { return data_.bytes() + scales_.bytes(); }

  DType dtype() const { return dtype_; }
  // Requirements on the left operand of a GEMM: its type, and its columns, zero from cols() on.
  DType operand_dtype() const { return dtype_ == DType::kI8 ? DType::kBF16 : dtype_; }
  int padded_cols() const { return padded_cols_; }

  int64_t row_bytes() const { return padded_cols_ * static_cast<int64_t>(DTypeSize(dtype_)); }
  void* data() const { return data_.data(); }  // [rows, padded_cols]
  // int8: [padded_cols / kScaleGroup, scale_stride]
  float* scales() const { return static_cast<float*>(scales_.data()); }
  int64_t scale_stride() const { return scale_stride_; }

 private:
  CudaWeight() = default;

  int rows_ = 0;
  int cols_ = 0;
  int padded_cols_ = 0;
  int64_t scale_stride_ = 0;
  DType dtype_ = DType::kF32;
  Buffer data_;
  Buffer scales_;
};

// Backend::PackWeight: stacks the parts' rows, converting on the device. Synchronises, because
// GEMMs read weights before their PdlWait.
Result<std::unique_ptr<CudaWeight>> PackWeight(const Stream& stream,
                                               std::span<const HostMatrix> parts,
                                               WeightFormat format);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WEIGHT_H_
