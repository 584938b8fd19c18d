// Tensors of a source to device memory: vectors as float32, matrices in the backend's layout.
#ifndef TALON_MODEL_FILES_WEIGHT_LOADER_H_
#define TALON_MODEL_FILES_WEIGHT_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/files/tensor_layout.h"
#include "model/files/weight_source.h"

namespace talon {

// A row look-up table [rows, cols] in the source's type. A copy in device memory, not the file's
// mapping: it must work on every device, and the mapping's pages are given back once packed.
struct WeightTable {
  Buffer data;
  DType dtype = DType::kF32;
};

// Releases the source's memory after each call, so at most one group of tensors exists twice.
class WeightLoader {
 public:
  // `activations`: of the products of layers (LayerMatrix).
  WeightLoader(WeightSource* source, Backend* backend, WeightFormat format,
               ActivationFormat activations = ActivationFormat::kAuto)
      : source_(source), backend_(backend), format_(format), activations_(activations) {}

  Backend* backend() const { return backend_; }
  size_t matrix_bytes() const { return matrix_bytes_; }
  size_t other_bytes() const { return other_bytes_; }
  // Products of layers that round their rows to FP8.
  int fp8_products() const { return fp8_products_; }

  // The parts, vectors or matrices, stacked into one float32 buffer, times `scale`; empty if there
  // are none.
  Result<Buffer> Vector(const TensorParts& parts, float scale = 1);
  Result<std::unique_ptr<Weight>> Matrix(const TensorParts& parts, const WeightUse& use = {});
  // One of a layer's products, whose rows may be FP8.
  Result<std::unique_ptr<Weight>> LayerMatrix(const TensorParts& parts, WeightUse use = {});
  // The same in float32 whatever the format.
  Result<std::unique_ptr<Weight>> ExactMatrix(const TensorParts& parts);
  // Columns [first, first + count) of a matrix.
  Result<std::unique_ptr<Weight>> Columns(const TensorSpec& spec, int first, int count);
  Result<WeightTable> Table(const TensorParts& parts);
  // The table and the matrix made from what `head` takes of the same tensor.
  Result<WeightTable> TiedTable(const TensorParts& parts, const TensorSpec& head,
                                std::unique_ptr<Weight>* tied);

 private:
  // The part that is taken of a tensor, until Release.
  Result<HostMatrix> Take(const TensorSpec& spec);
  HostMatrix Cut(const HostMatrix& matrix, const TensorSpec& spec);
  void Release();

  Result<Buffer> Upload(const void* data, size_t bytes);
  Result<std::unique_ptr<Weight>> Load(const TensorParts& parts, WeightFormat format,
                                       const WeightUse& use = {});
  Result<std::unique_ptr<Weight>> Pack(std::span<const HostMatrix> parts, WeightFormat format,
                                       const WeightUse& use = {});

  WeightSource* source_;
  Backend* backend_;
  WeightFormat format_;
  ActivationFormat activations_;
  std::vector<std::vector<uint64_t>> copies_;  // copies of columns
  size_t matrix_bytes_ = 0;
  size_t other_bytes_ = 0;
  int fp8_products_ = 0;
};

}  // namespace talon

#endif  // TALON_MODEL_FILES_WEIGHT_LOADER_H_
