#include "compute/cpu/matmul/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/math.h"

namespace talon {
namespace {

TEST(QuantizeTest, LargestElementBecomes127AndErrorIsHalfAScale) {
  for (const int count : {1, 3, 16, 67, 515}) {
    std::vector<float> row(count);
    for (int i = 0; i < count; ++i) row[i] = std::sin(1.7f * i + 0.3f) * 5;
    row[count / 2] = -9.5f;
    const RowScale scale = ChooseInt8Scale(row.data(), DType::kF32, count);
    EXPECT_FLOAT_EQ(scale.scale, 9.5f / 127);
    std::vector<int8_t> q(count);
    QuantizeInt8(row.data(), count, scale.inverse, q.data());
    EXPECT_EQ(q[count / 2], -127);
    for (int i = 0; i < count; ++i) {
      EXPECT_GE(q[i], -127);
      EXPECT_NEAR(q[i] * scale.scale, row[i], scale.scale * 0.50001f);
    }
  }
}

TEST(QuantizeTest, RoundsToNearestEven) {
  const std::vector<float> row = {0.5f,  1.5f,   2.5f,  -0.5f,  -1.5f,
                                  -2.5f, 126.5f, 0.49f, 127.0f, -127.0f};
  const std::vector<int8_t> expected = {0, 2, 2, 0, -2, -2, 126, 0, 127, -127};
  std::vector<int8_t> q(row.size());
  QuantizeInt8(row.data(), static_cast<int64_t>(row.size()), 1.0f, q.data());
  EXPECT_EQ(q, expected);
}

TEST(QuantizeTest, DegenerateRows) {
  const std::vector<float> zeros(9, 0.0f);
  EXPECT_EQ(ChooseInt8Scale(zeros.data(), DType::kF32, 9).scale, 0);
  EXPECT_EQ(ChooseInt8Scale(zeros.data(), DType::kF32, 9).inverse, 0);
  const std::vector<float> tiny(9, 1e-42f);
  EXPECT_EQ(ChooseInt8Scale(tiny.data(), DType::kF32, 9).inverse, 0);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf(""), -std::nanf("")}) {
    std::vector<float> row(9, 1.0f);
    row[8] = bad;
    EXPECT_TRUE(std::isnan(ChooseInt8Scale(row.data(), DType::kF32, 9).scale));
  }
}

TEST(ConvertTest, MatchesScalarConversions) {
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits < 0x10000; bits += 37) {
    if ((bits & 0x7C00) != 0x7C00 && (bits & 0x7F80) != 0x7F80) {  // finite in both types
      halves.push_back(static_cast<uint16_t>(bits));
    }
  }
  const auto count = static_cast<int64_t>(halves.size());
  std::vector<float> floats(halves.size());
  for (const DType type : {DType::kF16, DType::kBF16}) {
    ConvertToF32(halves.data(), type, count, floats.data());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(floats[i], LoadElement(halves.data(), type, i)) << DTypeName(type) << halves[i];
    }
    std::vector<uint16_t> back(halves.size());
    ConvertFromF32(floats.data(), count, type, back.data());
    EXPECT_EQ(back, halves) << DTypeName(type);
  }
}

TEST(ConvertTest, KeepsNonFiniteF16) {
  const std::vector<uint16_t> halves = {0x7C00, 0xFC00, 0x7E00};
  std::vector<float> floats(3);
  ConvertToF32(halves.data(), DType::kF16, 3, floats.data());
  EXPECT_EQ(floats[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(floats[1], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(floats[2]));
}

TEST(ConvertTest, RoundsLikeTheScalar) {
  std::vector<float> values = {0.0f, -0.0f, std::nanf(""), -std::numeric_limits<float>::infinity()};
  for (uint32_t bits = 0; bits < 0x7F800000; bits += 0x3FFF1) {  // all magnitudes, many ties
    for (const uint32_t low : {0u, 0x1000u, 0x1001u, 0xFFFu, 0x3000u, 0x8000u}) {
      values.push_back(std::bit_cast<float>((bits & ~0xFFFFu) | low));
      values.push_back(-values.back());
    }
  }
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint16_t> got(values.size());
  ConvertFromF32(values.data(), count, DType::kBF16, got.data());
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(got[i], BF16FromF32(values[i])) << values[i];
  ConvertFromF32(values.data(), count, DType::kF16, got.data());
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(got[i], F16FromF32(values[i])) << values[i];
}

TEST(QuantizeTest, F16ScaleIsAPowerOfTwoThatFits) {
  for (const float largest : {1.0f, 1.99f, 65504.0f, 3e38f, 1e-20f}) {
    const std::vector<float> row = {largest / 3, -largest, 0};
    const RowScale scale = ChooseF16Scale(row.data(), 3);
    EXPECT_EQ(scale.scale * scale.inverse, 1.0f);
    int exponent;
    EXPECT_EQ(std::frexp(scale.scale, &exponent), 0.5f);
    EXPECT_GE(largest * scale.inverse, 0x1p14f);
    EXPECT_LT(largest * scale.inverse, 0x1p15f);
  }
  const std::vector<float> zeros(3, 0.0f);
  EXPECT_EQ(ChooseF16Scale(zeros.data(), 3).scale, 0);
  const std::vector<float> bad = {1, std::nanf(""), 2};
  EXPECT_TRUE(std::isnan(ChooseF16Scale(bad.data(), 3).scale));
}

TEST(PackRowTest, InterleavesAndFillsTheLastGroup) {
  // Two rows of 5 elements in groups of 4: [2 groups][2 rows][4].
  const std::vector<float> rows[2] = {{1, 2, 3, 4, 5}, {-1, -2, -3, -4, -5}};
  std::vector<int8_t> packed(16, 99);
  for (int r = 0; r < 2; ++r) {
    PackRow(rows[r].data(), DType::kF32, 5,
            {.to = packed.data() + 4 * r,
             .stride = 8,
             .group = 4,
             .type = DType::kI8,
             .inverse_scale = 10});
  }
  const std::vector<int8_t> expected = {10, 20, 30, 40, -10, -20, -30, -40,
                                        50, 0,  0,  0,  -50, 0,   0,   0};
  EXPECT_EQ(packed, expected);
}

// Every size of a group in bytes that a kernel has.
TEST(PackRowTest, GroupsOfEverySizeLieAStrideApart) {
  constexpr int kCount = 200;
  std::vector<float> row(kCount);
  for (int i = 0; i < kCount; ++i) row[i] = static_cast<float>(i % 100 - 50);
  for (const int group : {2, 4, 8, 32, 64}) {
    const int stride = 3 * group;
    const int groups = CeilDiv(kCount, group);
    std::vector<int8_t> packed(groups * stride, 99);
    PackRow(row.data(), DType::kF32, kCount,
            {.to = packed.data(), .stride = stride, .group = group, .type = DType::kI8});
    for (int i = 0; i < groups * stride; ++i) {
      const int element = i / stride * group + i % stride;
      const int8_t expected = i % stride >= group ? 99 : element < kCount ? row[element] : 0;
      ASSERT_EQ(packed[i], expected) << "group " << group << " byte " << i;
    }
  }
}

TEST(PackRowTest, FlipMakesUnsigned) {
  const std::vector<float> row = {-127, 0, 127};
  std::vector<uint8_t> packed(4, 99);
  PackRow(row.data(), DType::kF32, 3,
          {.to = packed.data(),
           .stride = 4,
           .group = 4,
           .type = DType::kI8,
           .inverse_scale = 1,
           .flip = 0x80});
  EXPECT_EQ(packed, (std::vector<uint8_t>{1, 128, 255, 128}));
}

}  // namespace
}  // namespace talon
