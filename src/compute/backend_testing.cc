#include "compute/backend_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cuda/cuda_backend.h"
#include "compute/reference/reference_backend.h"

namespace talon::testing {
namespace {

constexpr int kRowGap = 4;

Buffer AllocateOrDie(Backend& backend, size_t bytes) {
  auto buffer = backend.Allocate(bytes);
  TALON_CHECK(buffer.ok(), "{}", buffer.status().message());
  return std::move(buffer).value();
}

// SplitMix64: most values are asked for in short rows, each with a seed of its own, and the states
// of the standard library's generators take longer to fill than such a row.
class SplitMix64 {
 public:
  using result_type = uint64_t;
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }
  uint64_t operator()() {
    uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace

std::unique_ptr<Backend> MakeBackend(const std::string& name) {
  if (name == "reference") return NewReferenceBackend();
  if (name.starts_with("cuda")) {
    auto backend = NewCudaBackend({});
    TALON_CHECK(backend.ok(), "{}", backend.status().message());
    return std::move(backend).value();
  }
  TALON_CHECK(name.size() == 4 && name.starts_with("cpu"), "backend {}", name);
  return NewCpuBackend(name.back() - '0');
}

std::string OnOneThread(const std::string& name) { return name.starts_with("cpu") ? "cpu1" : name; }

std::vector<std::string> WithDevices(std::vector<std::string> hosts) {
  if (NewCudaBackend({}).ok()) hosts.push_back("cuda");
  return hosts;
}

std::vector<float> RandomValues(int64_t count, uint64_t seed, float deviation) {
  SplitMix64 generator(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

DeviceMatrix::DeviceMatrix(Backend& backend, int rows, int cols)
    : backend_(backend),
      buffer_(AllocateOrDie(backend, sizeof(float) * rows * (cols + kRowGap))),
      view_{static_cast<float*>(buffer_.data()), rows, cols, cols + kRowGap} {}

DeviceMatrix::DeviceMatrix(Backend& backend, int rows, int cols, std::span<const float> values)
    : DeviceMatrix(backend, rows, cols) {
  TALON_CHECK(static_cast<int64_t>(values.size()) == int64_t{rows} * cols);
  for (int r = 0; r < rows; ++r) {
    backend.CopyIn(view_.data + r * view_.stride, values.data() + int64_t{r} * cols,
                   sizeof(float) * cols);
  }
}

std::vector<float> DeviceMatrix::Read() const {
  std::vector<float> values(static_cast<size_t>(view_.rows) * view_.cols);
  for (int r = 0; r < view_.rows; ++r) {
    backend_.CopyOut(values.data() + int64_t{r} * view_.cols, view_.data + r * view_.stride,
                     sizeof(float) * view_.cols);
  }
  return values;
}

DeviceArray::DeviceArray(Backend& backend, const void* data, size_t bytes)
    : buffer_(AllocateOrDie(backend, bytes)) {
  backend.CopyIn(buffer_.data(), data, bytes);
}

std::vector<float> RowOf(const std::vector<float>& matrix, int row, int cols) {
  return {matrix.begin() + int64_t{row} * cols, matrix.begin() + (int64_t{row} + 1) * cols};
}

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  TALON_CHECK(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    if (std::isnan(a[i]) || a[i] == b[i]) continue;
    largest = std::max(largest, std::abs(double{a[i]} - b[i]));
  }
  return largest;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double LargestMagnitude(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

}  // namespace talon::testing
