#include "compute/cpu/attention/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/math.h"
#include "compute/backend_testing.h"
#include "compute/cpu/attention/plan.h"
#include "compute/kv/kv_testing.h"
#include "compute/kv/kv_units.h"

namespace talon {
namespace {

using testing::RandomValues;
using testing::Rounded;

// Every kernel that can run here, with its cache type and the rounding of its operands.
struct KernelCase {
  const AttentionKernels* kernels;
  DType cache;
  DType operand;
};

std::vector<KernelCase> EveryKernel() {
  std::vector<KernelCase> cases;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    cases.push_back({&PortableAttentionKernels(dtype), dtype, DType::kF32});
  }
  for (auto native = NativeAttentionKernels(); *native != nullptr; ++native) {
    const bool wide = (*native)->operand_size == sizeof(float);
    cases.push_back({*native, DType::kBF16, wide ? DType::kF32 : DType::kBF16});
  }
  return cases;
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

// The tile as the kernels of a case read it; `units` holds what they want in another order.
KvTile TileFor(const KernelCase& c, const CacheRows& rows, KvSide side,
               std::vector<uint16_t>* units) {
  KvTile tile = rows.tile;
  if (!c.kernels->reads_units()) return tile;
  const int elements = kUnitKeys * PaddedDim(tile.head_dim);
  units->resize(kTileUnits * elements);
  for (int u = 0; u < kTileUnits; ++u) {
    uint16_t* unit = units->data() + u * elements;
    (side == KvSide::kKeys ? c.kernels->order_keys : c.kernels->order_values)(tile.units[u],
                                                                              tile.head_dim, unit);
    tile.units[u] = unit;
  }
  return tile;
}

// Arrays of kernels that work on pairs of rows have whole pairs.
int PaddedRows(int rows) { return RoundUp(rows, 2); }

// Sums [rows, cols] in plain row-major order.
std::vector<float> RowMajor(const KernelCase& c, const std::vector<float>& sums, int rows,
                            int cols) {
  std::vector<float> out(rows * cols);
  for (int r = 0; r < rows; ++r) {
    c.kernels->ReadSums(sums.data(), r, cols, out.data() + r * cols);
  }
  return out;
}

// The reverse, for scores that a test makes up.
std::vector<float> KernelOrder(const KernelCase& c, const std::vector<float>& scores, int rows) {
  if (!c.kernels->row_pairs) return scores;
  std::vector<float> out(PaddedRows(rows) * kTileKeys, 0.0f);
  for (int r = 0; r < rows; ++r) {
    for (int key = 0; key < kTileKeys; ++key) {
      out[r / 2 * 2 * kTileKeys + key / 2 * 4 + r % 2 * 2 + key % 2] = scores[r * kTileKeys + key];
    }
  }
  return out;
}

// Scores of queries [first, end) of `rows` with units of the tile; -1 where nothing was asked for.
struct ScoreCut {
  int first_row = 0;
  int end_row = 0;
  int units = kTileUnits;
  int first_col = 0;
};

std::vector<float> Scores(const KernelCase& c, const CacheRows& keys,
                          const std::vector<float>& queries, int rows, const ScoreCut& cut) {
  const int head_dim = keys.tile.head_dim;
  const int dim = PaddedDim(head_dim);
  std::vector<float> packed_queries(PaddedRows(rows) * dim);
  for (int r = 0; r < rows; ++r) {
    c.kernels->pack_query(queries.data() + r * head_dim, head_dim, 1.0f,
                          c.kernels->OperandRow(packed_queries.data(), r, dim));
  }
  std::vector<float> packed(kTileKeys * dim);
  std::vector<uint16_t> units;
  c.kernels->pack_keys(TileFor(c, keys, KvSide::kKeys, &units), packed.data());
  std::vector<float> scores(PaddedRows(rows) * kTileKeys, -1.0f);
  c.kernels->multiply({.a = packed_queries.data(),
                       .a_stride = dim,
                       .b = packed.data(),
                       .b_depth = dim,
                       .b_cols = kTileKeys,
                       .first_row = cut.first_row,
                       .rows = cut.end_row - cut.first_row,
                       .depth = dim,
                       .cols = cut.units * kUnitKeys,
                       .out = scores.data(),
                       .out_stride = kTileKeys,
                       .first_col = cut.first_col});
  return RowMajor(c, scores, rows, kTileKeys);
}

TEST(AttentionKernels, ScoresAreDotProducts) {
  for (const KernelCase& c : EveryKernel()) {
    for (const int head_dim : {8, 20, 64, 80, 264, 520}) {
      const CacheRows keys(c.cache, head_dim, 1);
      for (const int rows : {1, 2, 3, 5, 8, 13}) {
        const std::vector<float> queries = RandomValues(rows * head_dim, 2);
        const std::vector<float> scores =
            Scores(c, keys, queries, rows, {.end_row = rows, .units = 5});
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
  for (const KernelCase& c : EveryKernel()) {
    const CacheRows keys(c.cache, 72, 3);
    const std::vector<float> queries = RandomValues(kRows * 72, 4);
    const std::vector<float> together = Scores(c, keys, queries, kRows, {.end_row = kRows});
    for (int r = 0; r < kRows; ++r) {
      const std::vector<float> query(queries.begin() + r * 72, queries.begin() + (r + 1) * 72);
      for (const int units : {1, 3, 8}) {
        const std::vector<float> alone = Scores(c, keys, query, 1, {.end_row = 1, .units = units});
        for (int key = 0; key < units * kUnitKeys; ++key) {
          EXPECT_EQ(alone[key], together[r * kTileKeys + key]) << c.kernels->name << " row " << r;
        }
      }
    }
  }
}

// Rows of a pair belong to different sequences of keys when each has its own.
TEST(AttentionKernels, RowsNotAskedForStayAsTheyAre) {
  constexpr int kRows = 12;
  constexpr int kUnits = 3;
  constexpr int kFirstCol = 2 * kUnitKeys;
  for (const KernelCase& c : EveryKernel()) {
    const CacheRows keys(c.cache, 64, 5);
    const std::vector<float> queries = RandomValues(kRows * 64, 6);
    const std::vector<float> all = Scores(c, keys, queries, kRows, {.end_row = kRows});
    for (const auto& [first, end] : {std::pair(0, 1), {1, 2}, {1, 4}, {2, 5}, {3, 12}, {5, 6}}) {
      const std::vector<float> some =
          Scores(c, keys, queries, kRows,
                 {.first_row = first, .end_row = end, .units = kUnits, .first_col = kFirstCol});
      for (int r = 0; r < kRows; ++r) {
        for (int key = 0; key < kTileKeys; ++key) {
          const bool asked =
              r >= first && r < end && key >= kFirstCol && key < kFirstCol + kUnits * kUnitKeys;
          const float expected = asked ? all[r * kTileKeys + key - kFirstCol] : -1.0f;
          EXPECT_EQ(some[r * kTileKeys + key], expected)
              << c.kernels->name << " rows " << first << " to " << end << ": " << r << " " << key;
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
  for (const KernelCase& c : EveryKernel()) {
    std::vector<float> max(kRows + 1, -std::numeric_limits<float>::infinity());
    std::vector<float> sum(kRows + 1), rescale(kRows + 1), out((kRows + 1) * kHeadDim);
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
      scores = KernelOrder(c, scores, kRows);
      std::vector<float> probs((kRows + 1) * kTileKeys), packed(kTileKeys * kHeadDim);
      std::vector<int32_t> counts(kRows, keys);
      counts.push_back(0);
      const std::vector<int32_t> firsts(counts.size(), 0);
      c.kernels->softmax({.scores = scores.data(),
                          .probs = probs.data(),
                          .firsts = firsts.data(),
                          .counts = counts.data(),
                          .rows = kRows,
                          .max = max.data(),
                          .sum = sum.data(),
                          .rescale = rescale.data()});
      std::vector<uint16_t> units;
      c.kernels->pack_values(TileFor(c, values, KvSide::kValues, &units), packed.data());
      c.kernels->multiply({.a = probs.data(),
                           .a_stride = kTileKeys,
                           .b = packed.data(),
                           .b_depth = kTileKeys,
                           .b_cols = kHeadDim,
                           .rows = kRows,
                           .depth = RoundUp(keys, 8),
                           .cols = kHeadDim,
                           .out = out.data(),
                           .out_stride = kHeadDim,
                           .rescale = rescale.data()});
    }
    out = RowMajor(c, out, kRows, kHeadDim);
    const double tolerance = c.operand == DType::kBF16 ? 1.0 / 256 : 2e-6;
    for (int i = 0; i < kRows * kHeadDim; ++i) {
      EXPECT_NEAR(out[i] / sum[i / kHeadDim], sums[i] / weights[i / kHeadDim], tolerance)
          << c.kernels->name << " " << DTypeName(c.cache);
    }
  }
}

TEST(AttentionKernels, KeysNotSeenWeighExactlyNothing) {
  for (const KernelCase& c : EveryKernel()) {
    std::vector<float> scores(2 * kTileKeys, 5.0f);
    for (int key = 20; key < kTileKeys; ++key) scores[key] = std::nanf("");
    scores[3] = -200.0f;  // 2^-205 of the largest
    scores = KernelOrder(c, scores, 2);
    std::vector<float> probs(2 * kTileKeys, -1.0f);
    float max[] = {-std::numeric_limits<float>::infinity(), 7.0f};
    float sum[] = {0.0f, 2.0f};
    float rescale[] = {9.0f, 9.0f};
    const int32_t firsts[] = {0, 0};
    const int32_t counts[] = {20, 0};
    c.kernels->softmax({.scores = scores.data(),
                        .probs = probs.data(),
                        .firsts = firsts,
                        .counts = counts,
                        .rows = 2,
                        .max = max,
                        .sum = sum,
                        .rescale = rescale});
    int seen = 0;
    for (int i = 0; i < kTileKeys; ++i) {
      const int index = c.kernels->row_pairs ? i / 4 * 8 + i % 4 : i;
      const float weight = LoadElement(probs.data(), c.operand, index);
      EXPECT_TRUE(weight == 0.0f || weight == 1.0f) << c.kernels->name << " " << weight;
      seen += weight == 1.0f ? 1 : 0;
      if (i < 24) continue;  // the unit of key 20, whose keys kernels may reorder
      EXPECT_EQ(weight, 0.0f) << c.kernels->name << " " << i;
    }
    EXPECT_EQ(seen, 19) << c.kernels->name;
    EXPECT_EQ(sum[0], 19.0f);
    EXPECT_EQ(rescale[0], 0.0f);
    EXPECT_EQ(max[0], 5.0f);
    EXPECT_EQ(sum[1], 2.0f);  // a row without keys is left alone
    EXPECT_EQ(rescale[1], 9.0f);
  }
}

}  // namespace
}  // namespace talon
