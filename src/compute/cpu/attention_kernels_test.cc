#include "compute/cpu/attention_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "compute/backend_testing.h"
#include "compute/cpu/attention_plan.h"

namespace talon {
namespace {

using testing::RandomValues;

// Every kernel that can run here, with its cache type and the rounding of its operands.
struct KernelCase {
  const AttentionKernels* kernels;
  DType cache;
  DType operand;
};

std::vector<KernelCase> AllKernels() {
  std::vector<KernelCase> cases;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    cases.push_back({&PortableAttentionKernels(dtype), dtype, DType::kF32});
  }
  if (const AttentionKernels* arm = ArmBf16AttentionKernels()) {
    cases.push_back({arm, DType::kBF16, DType::kBF16});
  }
  return cases;
}

float Rounded(float value, DType dtype) {
  uint32_t storage = 0;
  StoreElement(&storage, dtype, 0, value);
  return LoadElement(&storage, dtype, 0);
}

// Keys or values [64, head_dim] in a cache's type, as floats and as a tile.
struct CacheRows {
  CacheRows(DType dtype, int head_dim, uint64_t seed)
      : values(RandomValues(int64_t{kTileKeys} * head_dim, seed)),
        bytes(values.size() * DTypeSize(dtype)) {
    tile.head_dim = head_dim;
    tile.num_units = kTileUnits;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = Rounded(values[i], dtype);
      StoreElement(bytes.data(), dtype, static_cast<int64_t>(i), values[i]);
    }
    for (int u = 0; u < kTileUnits; ++u) {
      tile.units[u] = bytes.data() + u * kUnitKeys * head_dim * DTypeSize(dtype);
    }
  }
  std::vector<float> values;
  std::vector<uint8_t> bytes;
  KvTile tile;
};

// Scores of `rows` queries with the tile, by the kernel.
std::vector<float> Scores(const KernelCase& c, const CacheRows& keys,
                          const std::vector<float>& queries, int rows, int units) {
  const int head_dim = keys.tile.head_dim;
  const int dim = PaddedDim(head_dim);
  std::vector<float> packed_queries(rows * dim);
  for (int r = 0; r < rows; ++r) {
    auto* out =
        reinterpret_cast<uint8_t*>(packed_queries.data()) + r * dim * c.kernels->operand_size;
    c.kernels->pack_query(queries.data() + r * head_dim, head_dim, 1.0f, out);
  }
  std::vector<float> packed(kTileKeys * dim);
  c.kernels->pack_keys(keys.tile, packed.data());
  std::vector<float> scores(rows * kTileKeys, -1.0f);
  c.kernels->multiply({.a = packed_queries.data(),
                       .a_stride = dim,
                       .b = packed.data(),
                       .b_cols = kTileKeys,
                       .rows = rows,
                       .depth = dim,
                       .cols = units * kUnitKeys,
                       .out = scores.data(),
                       .out_stride = kTileKeys});
  return scores;
}

TEST(AttentionKernels, ScoresAreDotProducts) {
  for (const KernelCase& c : AllKernels()) {
    for (const int head_dim : {8, 20, 64, 80, 264, 520}) {
      const CacheRows keys(c.cache, head_dim, 1);
      for (const int rows : {1, 2, 3, 5, 8, 13}) {
        const std::vector<float> queries = RandomValues(rows * head_dim, 2);
        const std::vector<float> scores = Scores(c, keys, queries, rows, 5);
        for (int r = 0; r < rows; ++r) {
          for (int key = 0; key < 5 * kUnitKeys; ++key) {
            double dot = 0;
            double norm = 0;
            for (int d = 0; d < head_dim; ++d) {
              const double q = Rounded(queries[r * head_dim + d], c.operand);
              dot += q * keys.values[key * head_dim + d];
              norm += std::abs(q * keys.values[key * head_dim + d]);
            }
            EXPECT_NEAR(scores[r * kTileKeys + key], dot, norm * 2e-6) << c.kernels->name;
          }
          EXPECT_EQ(scores[r * kTileKeys + 5 * kUnitKeys], -1.0f) << "past the columns asked";
        }
      }
    }
  }
}

TEST(AttentionKernels, CutsOfACallDoNotChangeBits) {
  constexpr int kRows = 11;
  for (const KernelCase& c : AllKernels()) {
    const CacheRows keys(c.cache, 72, 3);
    const std::vector<float> queries = RandomValues(kRows * 72, 4);
    const std::vector<float> together = Scores(c, keys, queries, kRows, kTileUnits);
    for (int r = 0; r < kRows; ++r) {
      const std::vector<float> query(queries.begin() + r * 72, queries.begin() + (r + 1) * 72);
      for (const int units : {1, 3, 8}) {
        const std::vector<float> alone = Scores(c, keys, query, 1, units);
        for (int key = 0; key < units * kUnitKeys; ++key) {
          EXPECT_EQ(alone[key], together[r * kTileKeys + key]) << c.kernels->name << " row " << r;
        }
      }
    }
  }
}

// Softmax and weighted sum of values over three tiles, the last one of 13 keys.
TEST(AttentionKernels, OnlineSoftmaxMatchesDouble) {
  constexpr int kRows = 3;
  constexpr int kHeadDim = 24;
  constexpr int kLastKeys = 13;
  for (const KernelCase& c : AllKernels()) {
    std::vector<float> max(kRows, -std::numeric_limits<float>::infinity());
    std::vector<float> sum(kRows), rescale(kRows), out(kRows * kHeadDim);
    std::vector<double> weights(kRows), sums(kRows * kHeadDim);
    for (int tile = 0; tile < 3; ++tile) {
      const int keys = tile == 2 ? kLastKeys : kTileKeys;
      const CacheRows values(c.cache, kHeadDim, 10 + tile);
      std::vector<float> scores = RandomValues(kRows * kTileKeys, 20 + tile, 3.0f);
      for (int r = 0; r < kRows; ++r) {
        for (int key = 0; key < keys; ++key) {
          const double weight = std::exp2(double{scores[r * kTileKeys + key]});
          weights[r] += weight;
          for (int d = 0; d < kHeadDim; ++d) {
            sums[r * kHeadDim + d] += weight * values.values[key * kHeadDim + d];
          }
        }
      }
      std::vector<float> probs(kRows * kTileKeys), packed(kTileKeys * kHeadDim);
      const std::vector<int32_t> counts(kRows, keys);
      c.kernels->softmax({.scores = scores.data(),
                          .probs = probs.data(),
                          .counts = counts.data(),
                          .rows = kRows,
                          .max = max.data(),
                          .sum = sum.data(),
                          .rescale = rescale.data()});
      c.kernels->pack_values(values.tile, packed.data());
      c.kernels->multiply({.a = probs.data(),
                           .a_stride = kTileKeys,
                           .b = packed.data(),
                           .b_cols = kHeadDim,
                           .rows = kRows,
                           .depth = (keys + 7) / 8 * 8,
                           .cols = kHeadDim,
                           .out = out.data(),
                           .out_stride = kHeadDim,
                           .rescale = rescale.data()});
    }
    const double tolerance = c.operand == DType::kBF16 ? 1.0 / 256 : 2e-6;
    for (int i = 0; i < kRows * kHeadDim; ++i) {
      EXPECT_NEAR(out[i] / sum[i / kHeadDim], sums[i] / weights[i / kHeadDim], tolerance)
          << c.kernels->name << " " << DTypeName(c.cache);
    }
  }
}

TEST(AttentionKernels, KeysNotSeenWeighExactlyNothing) {
  for (const KernelCase& c : AllKernels()) {
    std::vector<float> scores(2 * kTileKeys, 5.0f);
    for (int key = 20; key < kTileKeys; ++key) scores[key] = std::nanf("");
    scores[3] = -200.0f;  // 2^-205 of the largest
    std::vector<float> probs(2 * kTileKeys, -1.0f);
    float max[] = {-std::numeric_limits<float>::infinity(), 7.0f};
    float sum[] = {0.0f, 2.0f};
    float rescale[] = {9.0f, 9.0f};
    const int32_t counts[] = {20, 0};
    c.kernels->softmax({.scores = scores.data(),
                        .probs = probs.data(),
                        .counts = counts,
                        .rows = 2,
                        .max = max,
                        .sum = sum,
                        .rescale = rescale});
    for (int key = 0; key < kTileKeys; ++key) {
      const float expected = key < 20 && key != 3 ? 1.0f : 0.0f;
      EXPECT_EQ(LoadElement(probs.data(), c.operand, key), expected) << c.kernels->name << key;
    }
    EXPECT_EQ(sum[0], 19.0f);
    EXPECT_EQ(rescale[0], 0.0f);
    EXPECT_EQ(max[0], 5.0f);
    EXPECT_EQ(sum[1], 2.0f);  // a row without keys is left alone
    EXPECT_EQ(rescale[1], 9.0f);
  }
}

}  // namespace
}  // namespace talon
