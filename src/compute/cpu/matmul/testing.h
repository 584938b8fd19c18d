// Helpers of the matrix kernels' tests: reproducible problems, and plain loops that compute the
// expected results.
#ifndef TALON_COMPUTE_CPU_MATMUL_TESTING_H_
#define TALON_COMPUTE_CPU_MATMUL_TESTING_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compute/cpu/matmul/matmul.h"

namespace talon {

struct MatMulShape {
  int rows, outputs, inputs;
};

struct MatMulProblem {
  MatMulProblem(const MatMulShape& shape, uint32_t seed);
  MatrixView X() { return {x.data(), rows, inputs, inputs}; }
  HostMatrix W() const { return {w.data(), DType::kF32, outputs, inputs}; }

  int rows, outputs, inputs;
  std::vector<float> x, w, bias;  // in (-1, 1), some zero; rows of x are of very different size
};

// The kernels that this machine can run, of all types.
std::vector<const MatrixKernel*> AllKernels();
std::string TestNameOf(const MatrixKernel& kernel);

// `value` as an element of `type`.
float RoundedTo(float value, DType type);

std::unique_ptr<PackedWeight> PackWith(ThreadPool& pool, const HostMatrix& matrix,
                                       const MatrixKernel& kernel,
                                       std::span<const int> bounds = {});

std::vector<float> RunMatMul(ThreadPool& pool, MatrixView x, const PackedWeight& w,
                             const float* bias = nullptr);

// Expects `got`, with the bias, to equal a plain loop over the weights and activations as the
// kernel stores them: exactly for integers, else within the rounding of the sum.
void ExpectPlainLoop(const MatMulProblem& problem, const MatrixKernel& kernel,
                     const std::vector<float>& got);

}  // namespace talon

#endif  // TALON_COMPUTE_CPU_MATMUL_TESTING_H_
