// The kernels' expansion of quantised K and V against the arithmetic of kv_codes.h.
#include "compute/kv/kv_codes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "compute/cuda/cuda_backend.h"
#include "compute/cuda/testing/expand_codes.h"

namespace talon::cuda {
namespace {

// Whether quantisation makes this code with this scale: not -128, subnormal codes or NaN, nor what
// exceeds the range of bf16.
bool Exists(DType dtype, int code, int scale) {
  if (dtype == DType::kI8) {
    const auto magnitude = static_cast<unsigned>(std::abs(static_cast<int8_t>(code)));
    return magnitude < 128 && scale + std::bit_width(magnitude) <= 255;
  }
  const int magnitude = code & 0x7F;
  return magnitude == 0 || (magnitude >= 8 && magnitude < 0x7F && magnitude / 8 + scale <= 261);
}

class KvCodesTest : public ::testing::TestWithParam<DType> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KvCodesTest);  // without a device

TEST_P(KvCodesTest, EveryCodeAndScaleIsExpandedExactly) {
  for (int scale = kLeastKvScale; scale < kNanKvScale; ++scale) {
    const auto byte = static_cast<uint8_t>(scale);
    const std::vector<uint16_t> numbers = ExpandAllCodes(GetParam(), byte);
    for (int code = 0; code < 256; ++code) {
      if (!Exists(GetParam(), code, scale)) continue;
      const float value = KvValue(GetParam(), static_cast<uint8_t>(code), byte);
      EXPECT_EQ(uint32_t{numbers[code]} << 16, std::bit_cast<uint32_t>(value))
          << code << " " << scale;
    }
  }
}

TEST_P(KvCodesTest, VectorsThatAreNotFiniteAreNaN) {
  EXPECT_TRUE(
      std::isnan(std::bit_cast<float>(uint32_t{ExpandAllCodes(GetParam(), kNanKvScale)[0]} << 16)));
}

std::vector<DType> TypesOnDevice() {
  if (NumCudaDevices() == 0) return {};
  return {DType::kF8E4M3, DType::kI8};
}
INSTANTIATE_TEST_SUITE_P(KvTypes, KvCodesTest, ::testing::ValuesIn(TypesOnDevice()),
                         [](const auto& info) {
                           return "cuda_" + std::string(DTypeName(info.param));
                         });

}  // namespace
}  // namespace talon::cuda
