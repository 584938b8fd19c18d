// Device memory and the matrices in it: buffers, views of activations, and packed weights.
#ifndef TALON_COMPUTE_MATRIX_H_
#define TALON_COMPUTE_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compute/dtype.h"

namespace talon {

// Device memory, freed on destruction. Move-only.
class Buffer {
 public:
  using Deleter = std::function<void(void*)>;
  Buffer() = default;
  Buffer(void* data, size_t bytes, Deleter deleter)
      : data_(data, std::move(deleter)), bytes_(bytes) {}
  void* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, Deleter> data_{nullptr, [](void*) {}};
  size_t bytes_ = 0;
};

inline const float* Floats(const Buffer& buffer) {
  return static_cast<const float*>(buffer.data());
}

// A float32 matrix in device memory, not owned. Row r starts at data + r * stride.
struct MatrixView {
  float* data = nullptr;
  int rows = 0;
  int cols = 0;
  int64_t stride = 0;  // elements

  MatrixView Rows(int first, int count) const {
    return {data + first * stride, count, cols, stride};
  }
  MatrixView Cols(int first, int count) const { return {data + first, rows, count, stride}; }
};

// The grid that the values of a quantised file lie on: value = scale * (code - zero).
struct QuantGrid {
  DType dtype = DType::kI8;   // the codes': kI8, kF8E4M3, or kI4 with codes in [0, 15]
  int64_t group = 0;          // inputs that share a scale; cols where an output has one
  std::vector<float> scales;  // [rows][groups]
  std::vector<float> zeros;   // kI4: [rows][groups], or empty: 8
};

// A row-major matrix in host memory (usually a mapped file), not owned.
struct HostMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;  // kF32, kF16, kBF16, kMxfp4
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* scales = nullptr;  // kMxfp4: [rows, cols / 32] exponents
  // The values were expanded from a quantised file: kept as bf16, or on their grid where there is
  // one and the device can, unless another type is asked for.
  bool expanded = false;
  std::shared_ptr<const QuantGrid> grid;
  // Where given, keeps `data` and `scales` in place: a weight may refer to them instead of copying.
  std::shared_ptr<const void> owner;
};

// How a weight matrix is kept. kAsStored keeps the file's type. int8 and FP8 (e4m3): symmetric, one
// scale per output row. int4: as int4.h says. The CPU quantises activations per row for int8 and
// int4, and keeps the values of FP8 in bf16; CUDA has activations in bf16, and in int8 experts one
// scale per 128 inputs.
// MXFP4 weights stay as they are stored unless a float type is asked for.
enum class WeightFormat { kAsStored, kF32, kF16, kBF16, kFp8, kInt8, kInt4 };
const char* WeightFormatName(WeightFormat format);
bool ParseWeightFormat(std::string_view name, WeightFormat* format);
std::string WeightFormatNames();  // for error texts: "auto, f32, ... or int4"

// How rows of activations are multiplied by FP8 weights. kAuto: as WeightFormat says. kFp8: rounded
// to FP8 (e4m3) with one scale for kFp8Group inputs of a row (fp8.h).
enum class ActivationFormat { kAuto, kFp8 };
bool ParseActivationFormat(std::string_view name, ActivationFormat* format);  // "auto", "fp8"

// A weight matrix [rows = outputs, cols = inputs] in the backend's own layout.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual int rows() const = 0;
  virtual int cols() const = 0;
  virtual size_t bytes() const = 0;  // as kept, what one full read of it moves
};

}  // namespace talon

#endif  // TALON_COMPUTE_MATRIX_H_
