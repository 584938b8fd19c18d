#include <array>
#include <numeric>

#include "compute/cpu/peak_kernels.h"

namespace talon {

uint32_t SumWords(const uint32_t* from, int64_t count) {
  return std::accumulate(from, from + count, uint32_t{0});
}

// The portable backend multiplies in double, whatever the weights are.
int64_t BurnMatrix(MatrixKind /*kind*/, int64_t iterations) {
  constexpr int kSums = 16;  // enough of them to hide an addition's latency
  std::array<double, kSums> sums{};
  volatile double factor = 0.999;
  const double x = factor;
  for (int64_t i = 0; i < iterations; ++i) {
    for (double& sum : sums) sum = sum * x + x;
  }
  factor = std::accumulate(sums.begin(), sums.end(), 0.0);  // so that the loop is not dropped
  return 2 * kSums * iterations;
}

}  // namespace talon
