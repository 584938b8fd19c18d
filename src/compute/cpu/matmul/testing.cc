#include "compute/cpu/matmul/testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "compute/cpu/matmul/quantize.h"
#include "compute/int4.h"

namespace talon {
namespace {

std::vector<float> RandomFloats(int64_t count, uint32_t seed) {
  std::vector<float> values(count);
  uint32_t state = seed * 2654435761u + 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state) >> 8) / (1 << 23);
    if ((state >> 28) == 3) value = 0;
  }
  return values;
}

WeightFormat FormatOf(DType type) {
  switch (type) {
    case DType::kF16:
      return WeightFormat::kF16;
    case DType::kBF16:
      return WeightFormat::kBF16;
    case DType::kI8:
      return WeightFormat::kInt8;
    case DType::kI4:
      return WeightFormat::kInt4;
    default:
      return WeightFormat::kF32;
  }
}

// An activation as the kernels see it. f16 ones are scaled by row; without subnormals that is the
// same as rounding to 11 bits.
float RoundedActivation(float value, DType type) {
  if (type != DType::kF16) return RoundedTo(value, type);
  int exponent;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(RoundedTo(fraction, type), exponent);
}

// Float kernels against a double loop over the weights (and activations) as they are stored.
void ExpectNearDouble(const MatMulProblem& problem, const MatrixKernel& kernel,
                      const std::vector<float>& got) {
  // Each of the K steps rounds once, or (bf16 matrix instructions) less carefully, but never by
  // more than the last bit of the largest intermediate value, which the sum of magnitudes bounds.
  const double steps = problem.inputs + 2;
  for (int r = 0; r < problem.rows; ++r) {
    for (int j = 0; j < problem.outputs; ++j) {
      double sum = problem.bias[j];
      double magnitude = std::abs(sum);
      for (int k = 0; k < problem.inputs; ++k) {
        const double x =
            RoundedActivation(problem.x[int64_t{r} * problem.inputs + k], kernel.activation_type);
        const double w = RoundedTo(problem.w[int64_t{j} * problem.inputs + k], kernel.weight_type);
        sum += x * w;
        magnitude += std::abs(x * w);
      }
      ASSERT_NEAR(got[int64_t{r} * problem.outputs + j], sum, steps * 0x1p-23 * magnitude)
          << "row " << r << " output " << j << " inputs " << problem.inputs;
    }
  }
}

// Symmetric int8 as documented, in plain integers.
struct QuantizedRow {
  QuantizedRow(const float* from, int count) : scale(ChooseInt8Scale(from, DType::kF32, count)) {
    for (int k = 0; k < count; ++k) q.push_back(std::lrint(from[k] * scale.inverse));
  }
  RowScale scale;
  std::vector<int64_t> q;
};

// An output's weight: its product with a quantised row, without the row's scale.
struct Int8Output {
  Int8Output(const float* from, int count) : row(from, count) {}
  float Times(const QuantizedRow& x) const {
    int64_t sum = 0;
    for (size_t k = 0; k < row.q.size(); ++k) sum += x.q[k] * row.q[k];
    return static_cast<float>(sum) * x.scale.scale * row.scale.scale;
  }
  QuantizedRow row;
};

struct Int4Output {
  Int4Output(const float* from, int count) {
    for (int k = 0; k < count; k += kInt4Group) {
      groups.push_back(QuantizeInt4(from + k, std::min(kInt4Group, count - k)));
    }
  }
  float Times(const QuantizedRow& x) const {
    float total = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      int64_t sum = 0;
      for (size_t i = 0; i < kInt4Group && g * kInt4Group + i < x.q.size(); ++i) {
        sum += x.q[g * kInt4Group + i] * groups[g].codes[i];
      }
      total = std::fma(static_cast<float>(sum), groups[g].scale, total);
    }
    return total * x.scale.scale;
  }
  std::vector<Int4Weights> groups;
};

template <class Output>
void ExpectExact(const MatMulProblem& problem, const std::vector<float>& got) {
  std::vector<Output> weights;
  for (int j = 0; j < problem.outputs; ++j) {
    weights.emplace_back(&problem.w[int64_t{j} * problem.inputs], problem.inputs);
  }
  for (int r = 0; r < problem.rows; ++r) {
    const QuantizedRow x(&problem.x[int64_t{r} * problem.inputs], problem.inputs);
    for (int j = 0; j < problem.outputs; ++j) {
      ASSERT_EQ(got[int64_t{r} * problem.outputs + j], weights[j].Times(x) + problem.bias[j])
          << "row " << r << " output " << j << " inputs " << problem.inputs;
    }
  }
}

}  // namespace

MatMulProblem::MatMulProblem(const MatMulShape& shape, uint32_t seed)
    : rows(shape.rows),
      outputs(shape.outputs),
      inputs(shape.inputs),
      x(RandomFloats(int64_t{shape.rows} * shape.inputs, seed)),
      w(RandomFloats(int64_t{shape.outputs} * shape.inputs, seed + 1)),
      bias(RandomFloats(shape.outputs, seed + 2)) {
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < inputs; ++k) x[r * inputs + k] *= std::ldexp(1.0f, r % 7 - 3);
  }
}

std::vector<const MatrixKernel*> AllKernels() {
  std::vector<const MatrixKernel*> all;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kI4}) {
    for (auto kernel = AttainableKernels(type); *kernel != nullptr; ++kernel) {
      all.push_back(*kernel);
    }
  }
  return all;
}

std::string TestNameOf(const MatrixKernel& kernel) {
  std::string name = kernel.name;
  for (char& c : name) c = std::isalnum(c) ? c : '_';
  return name;
}

float RoundedTo(float value, DType type) {
  uint16_t bits[2];
  StoreElement(bits, type, 0, value);
  return LoadElement(bits, type, 0);
}

std::unique_ptr<PackedWeight> PackWith(ThreadPool& pool, const HostMatrix& matrix,
                                       const MatrixKernel& kernel, std::span<const int> bounds) {
  auto packed = PackWeight(pool, {&matrix, 1}, FormatOf(kernel.weight_type), &kernel, bounds);
  EXPECT_TRUE(packed.ok()) << packed.status().message();
  return std::move(packed).value();
}

std::vector<float> RunMatMul(ThreadPool& pool, MatrixView x, const PackedWeight& w,
                             const float* bias) {
  MatMulScratch scratch;
  std::vector<float> out(int64_t{x.rows} * w.rows(), -77.0f);
  MatMul(pool, x, w, bias, {out.data(), x.rows, w.rows(), w.rows()}, false, &scratch);
  return out;
}

void ExpectPlainLoop(const MatMulProblem& problem, const MatrixKernel& kernel,
                     const std::vector<float>& got) {
  if (kernel.weight_type == DType::kI8) {
    ExpectExact<Int8Output>(problem, got);
  } else if (kernel.weight_type == DType::kI4) {
    ExpectExact<Int4Output>(problem, got);
  } else {
    ExpectNearDouble(problem, kernel, got);
  }
}

}  // namespace talon
