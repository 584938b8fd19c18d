// A weight matrix as the reference backend keeps it: every element a float32 that the format can
// represent, so that the arithmetic of all formats is the same loop.
#ifndef TALON_COMPUTE_REFERENCE_REFERENCE_WEIGHT_H_
#define TALON_COMPUTE_REFERENCE_REFERENCE_WEIGHT_H_

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "compute/matrix.h"

namespace talon {

class ReferenceWeight : public Weight {
 public:
  static Result<std::unique_ptr<Weight>> Pack(std::span<const HostMatrix> parts,
                                              WeightFormat format, std::span<const int> bounds = {},
                                              ActivationFormat activations = {});

  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  size_t bytes() const override { return bytes_; }
  const float* Row(int row) const { return values_.data() + static_cast<size_t>(row) * cols_; }
  bool quantises_activations() const { return quantised_; }
  bool fp8_activations() const { return fp8_activations_; }
  // Where segments of the inputs begin and end (compute/ranks/segments.h); empty: not summed so.
  std::span<const int> bounds() const { return bounds_; }

 private:
  static std::unique_ptr<Weight> Expanded(const HostMatrix& part);  // MXFP4 as floats

  int rows_ = 0;
  int cols_ = 0;
  size_t bytes_ = 0;
  bool quantised_ = false;
  bool fp8_activations_ = false;
  std::vector<int> bounds_;
  std::vector<float> values_;  // [rows, cols]
};

// Replaces values by the nearest multiples of max|v| / 127.
void QuantiseInPlace(std::span<float> values);

// Calls `visit` for the values of each segment; without bounds all are one.
void ForSegments(std::span<const int> bounds, std::span<float> values,
                 const std::function<void(std::span<float>)>& visit);

}  // namespace talon

#endif  // TALON_COMPUTE_REFERENCE_REFERENCE_WEIGHT_H_
