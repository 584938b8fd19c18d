// Helpers of the tests that run the same cases on every backend.
#ifndef TALON_COMPUTE_BACKEND_TESTING_H_
#define TALON_COMPUTE_BACKEND_TESTING_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compute/backend.h"

namespace talon::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The backends under test, by name: "reference", "cpu1", "cpu2", "cpu3" (threads), "cuda".
std::unique_ptr<Backend> MakeBackend(const std::string& name);
// These host backends and, where this build and machine have a GPU, the CUDA ones.
std::vector<std::string> WithDevices(std::vector<std::string> hosts);
// The same backend on one thread, where it has threads.
std::string OnOneThread(const std::string& name);
inline bool IsDevice(const std::string& backend) { return backend.starts_with("cuda"); }

// Values from a normal distribution; the same seed gives the same values.
std::vector<float> RandomValues(int64_t count, uint64_t seed, float deviation = 1.0f);

// A matrix in a backend's memory, with a gap between rows to catch ignored strides.
class DeviceMatrix {
 public:
  DeviceMatrix(Backend& backend, int rows, int cols);
  DeviceMatrix(Backend& backend, int rows, int cols, std::span<const float> values);

  MatrixView view() const { return view_; }
  std::vector<float> Read() const;  // [rows * cols]

 private:
  Backend& backend_;
  Buffer buffer_;
  MatrixView view_;
};

// An array in a backend's memory.
class DeviceArray {
 public:
  DeviceArray(Backend& backend, const void* data, size_t bytes);
  template <typename T>
  DeviceArray(Backend& backend, const std::vector<T>& values)
      : DeviceArray(backend, values.data(), values.size() * sizeof(T)) {}

  void* data() const { return buffer_.data(); }
  const float* floats() const { return static_cast<const float*>(buffer_.data()); }

 private:
  Buffer buffer_;
};

// Row r of a [.., cols] array.
std::vector<float> RowOf(const std::vector<float>& matrix, int row, int cols);

// max |a - b|, or infinity where one is NaN and the other is not.
double MaxDifference(const std::vector<float>& a, const std::vector<float>& b);
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

double LargestMagnitude(const std::vector<float>& values);

}  // namespace talon::testing

#endif  // TALON_COMPUTE_BACKEND_TESTING_H_
