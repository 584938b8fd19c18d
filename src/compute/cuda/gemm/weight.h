// Weight matrices in device memory: row-major, each row padded with zeros to padded_cols(), or in
// tiles.
#ifndef TALON_COMPUTE_CUDA_GEMM_WEIGHT_H_
#define TALON_COMPUTE_CUDA_GEMM_WEIGHT_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compute/cuda/gemm/quantised/layout.h"
#include "compute/cuda/runtime/launch.h"
#include "compute/dtype.h"
#include "compute/matrix.h"

namespace talon::cuda {

// What a weight is a part of, if it is one.
struct WeightShare {
  int whole_rows = 0;             // 0: this is the whole
  std::vector<int> input_bounds;  // [ranks + 1], or empty
};

// Codes of quantised weights (kI8, kF8E4M3, kI4) lie in tiles (quantised/layout.h). int8 weights of
// experts, and of GPUs before Hopper, are row-major with one float scale per (output, group of
// kScaleGroup inputs). MXFP4 weights, which only experts have, lie in tiles of their own
// (mxfp4_tiles.h). Activations stay bf16, but for FP8 codes in slices, which take rows of FP8.
class CudaWeight : public Weight {
 public:
  // Allocates zeros, to be filled by PackWeight or a test. `dtype`: kF32, kF16, kBF16, kI8
  // or kMxfp4.
  static Result<std::unique_ptr<CudaWeight>> Allocate(const Stream& stream, int rows, int cols,
                                                      DType dtype);
  static Result<std::unique_ptr<CudaWeight>> AllocateCodes(const Stream& stream, int rows, int cols,
                                                           DType dtype, const CodeTiles& tiles);
  // FP8 codes in slices; `groups`: each output has a scale for every kFp8Group inputs.
  static Result<std::unique_ptr<CudaWeight>> AllocateFp8Slices(const Stream& stream, int rows,
                                                               int cols, bool groups);

  int rows() const override { return rows_; }
  // Outputs of all ranks, where this weight has some of them: what the order of additions follows.
  int whole_rows() const { return std::max(rows_, share_.whole_rows); }
  // Where the ranks' inputs of a product begin and end that all ranks have some outputs of.
  std::span<const int> input_bounds() const { return share_.input_bounds; }
  int cols() const override { return cols_; }
  size_t bytes() const override { return data_.bytes() + scales_.bytes(); }

  DType dtype() const { return dtype_; }
  // Requirements on the left operand of a GEMM: its type, and its columns, zero from cols() on.
  DType operand_dtype() const { return fp8_activations_ ? DType::kF8E4M3 : rows_dtype(); }
  // The type of rows that become the left operand, or are it unless it is FP8.
  DType rows_dtype() const {
    return dtype_ == DType::kF32 || dtype_ == DType::kF16 ? dtype_ : DType::kBF16;
  }
  bool fp8_activations() const { return fp8_activations_; }
  void SetShare(WeightShare share) { share_ = std::move(share); }
  bool has_codes() const { return has_codes_; }
  const CodeTiles& code_tiles() const { return code_tiles_; }
  int code_cols() const { return padded_cols_ / kCodeTileCols; }  // tiles along the inputs
  int padded_cols() const { return padded_cols_; }

  int64_t row_bytes() const { return row_bytes_; }  // 0 for tiles and slices
  // [rows, padded_cols], or tiles, or slices: [padded_cols / kFp8Group, rows, kFp8Group].
  void* data() const { return data_.data(); }
  // Codes without scales in their tiles: [rows]. Row-major int8, and slices with a scale_stride:
  // [padded_cols / kScaleGroup, scale_stride] floats. MXFP4: the tiles' exponents.
  float* scales() const { return static_cast<float*>(scales_.data()); }
  int64_t scale_stride() const { return scale_stride_; }

 private:
  CudaWeight() = default;
  Status AllocateTiles(const Stream& stream);

  int rows_ = 0;
  int cols_ = 0;
  int padded_cols_ = 0;
  int64_t row_bytes_ = 0;
  int64_t scale_stride_ = 0;
  DType dtype_ = DType::kF32;
  bool fp8_activations_ = false;
  bool has_codes_ = false;
  CodeTiles code_tiles_;
  WeightShare share_;
  Buffer data_;
  Buffer scales_;
};

// Backend::PackWeight: stacks the parts' rows, converting on the device. Keeps pinned memory for
// the uploads of the weights to come.
class WeightPacker {
 public:
  explicit WeightPacker(const Stream* stream);
  ~WeightPacker();

  // Where quantised weights are kept as codes: kNone: nowhere, int8 stands for FP8 and int4, too;
  // kFp8Slices: FP8 that HasFp8Activations.
  enum class Codes { kNone, kTiles, kFp8Slices };
  // Synchronises, because GEMMs read weights before their PdlWait.
  Result<std::unique_ptr<CudaWeight>> Pack(std::span<const HostMatrix> parts, WeightFormat format,
                                           Codes codes);

 private:
  class Upload;

  // A weight of `outputs` outputs, of zeros.
  Result<std::unique_ptr<CudaWeight>> Allocate(std::span<const HostMatrix> parts,
                                               WeightFormat format, Codes codes, int outputs);

  const Stream* stream_;
  std::unique_ptr<Upload> upload_;
};

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_GEMM_WEIGHT_H_
