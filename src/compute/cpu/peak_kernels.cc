#include "compute/cpu/peak_kernels.h"

#include "compute/cpu/matmul/kernels_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/peak_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace talon {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kAhead = kStreamAheadBytes / sizeof(uint32_t), kLine = 64 / sizeof(uint32_t);

uint32_t SumVectors(const uint32_t* from, int64_t count) {
  const hn::ScalableTag<uint32_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = sum0;
  auto sum2 = sum0;
  auto sum3 = sum0;
  for (int64_t i = 0; i < count; i += 4 * lanes) {
    if constexpr (kAhead > 0) {  // as products read
      for (int64_t j = i; j < i + 4 * lanes; j += kLine) __builtin_prefetch(from + j + kAhead, 0, 2);
    }
    sum0 = hn::Add(sum0, hn::LoadU(d, from + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, from + i + lanes));
    sum2 = hn::Add(sum2, hn::LoadU(d, from + i + 2 * lanes));
    sum3 = hn::Add(sum3, hn::LoadU(d, from + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace talon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace talon {
namespace {

HWY_EXPORT(SumVectors);

const MatrixKernel& KernelOf(MatrixKind kind) {
  const DType type = kind == MatrixKind::kInt8   ? DType::kI8
                     : kind == MatrixKind::kBF16 ? DType::kBF16
                                                 : DType::kF32;
  const MatrixKernel* kernel = AttainableKernels(type)[0];
  return kernel->burn != nullptr ? *kernel : *AttainableKernels(DType::kF32)[0];
}

}  // namespace

uint32_t SumWords(const uint32_t* from, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(SumVectors)(from, count);
}

int64_t BurnMatrix(MatrixKind kind, int64_t iterations) { return KernelOf(kind).burn(iterations); }

}  // namespace talon
#endif  // HWY_ONCE
