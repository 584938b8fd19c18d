// Attention over a cache in ordered units: the kernels' order is the cache's, and the bits are
// those of a cache of vectors, packed or not, for every shape.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "compute/backend_testing.h"
#include "compute/cpu/attention/attention.h"
#include "compute/kv/kv_testing.h"
#include "compute/kv/kv_units.h"

namespace talon {
namespace {

using testing::RandomValues;
using testing::SameBits;
using testing::SequenceSpec;

// The kernels of this machine that read ordered units, all of one order.
std::vector<const AttentionKernels*> UnitKernels() {
  std::vector<const AttentionKernels*> all;
  for (auto native = NativeAttentionKernels(); *native != nullptr; ++native) {
    if ((*native)->reads_units()) all.push_back(*native);
  }
  return all;
}

std::vector<uint8_t> Bf16(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * DTypeSize(DType::kBF16));
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement(bytes.data(), DType::kBF16, static_cast<int64_t>(i), values[i]);
  }
  return bytes;
}

// Operands as the kernels take them.
std::vector<uint8_t> Operands(const AttentionKernels& kernels, const std::vector<float>& values) {
  if (kernels.operand_size == sizeof(uint16_t)) return Bf16(values);
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  return {bytes, bytes + values.size() * sizeof(float)};
}

// A tile of random keys or values, and room for it packed.
struct Tile {
  Tile(int head_dim, uint64_t seed)
      : bytes(Bf16(RandomValues(int64_t{kTileKeys} * head_dim, seed))),
        packed(int64_t{kTileKeys} * head_dim) {
    view.head_dim = head_dim;
    view.num_units = kTileUnits;
    const size_t unit = bytes.size() / kTileUnits;
    for (int u = 0; u < kTileUnits; ++u) {
      view.units[u] = bytes.data() + u * unit;
      view.ahead[u] = u % 2 == 0 ? bytes.data() : nullptr;
    }
  }
  std::vector<uint8_t> bytes;
  std::vector<float> packed;
  KvTile view;
};

constexpr int kMaxRows = 18;

// The rows and units of one product.
struct Cut {
  int first_row;
  int end_row;
  int units;
  int first_unit;
};

std::vector<Cut> Cuts() {
  std::vector<Cut> cuts;
  for (int end = 1; end <= kMaxRows; ++end) cuts.push_back({0, end, kTileUnits, 0});
  for (int units = 1; units < kTileUnits; ++units) cuts.push_back({0, 4, units, 0});
  cuts.insert(cuts.end(), {{1, 2, 5, 0}, {1, 4, 3, 2}, {3, 8, 1, 15}, {5, 18, 7, 4}, {2, 9, 2, 1}});
  return cuts;
}

std::vector<float> KeyProduct(const AttentionKernels& kernels, bool direct, Tile& keys,
                              const Cut& cut) {
  const int dim = keys.view.head_dim;
  const std::vector<uint8_t> queries = Operands(kernels, RandomValues(kMaxRows * dim, 7));
  std::vector<float> scores = RandomValues(kMaxRows * kTileKeys, 8);
  const TileProduct product{.a = queries.data(),
                            .a_stride = dim,
                            .b = keys.packed.data(),
                            .b_depth = dim,
                            .b_cols = kTileKeys,
                            .first_row = cut.first_row,
                            .rows = cut.end_row - cut.first_row,
                            .depth = dim,
                            .cols = cut.units * kUnitKeys,
                            .out = scores.data(),
                            .out_stride = kTileKeys,
                            .first_col = cut.first_unit * kUnitKeys};
  if (direct) {
    kernels.multiply_keys(keys.view, product);
  } else {
    kernels.pack_keys(keys.view, keys.packed.data());
    kernels.multiply(product);
  }
  return scores;
}

std::vector<float> ValueProduct(const AttentionKernels& kernels, bool direct, Tile& values,
                                const Cut& cut) {
  const int dim = values.view.head_dim;
  std::vector<float> weights = RandomValues(kMaxRows * kTileKeys, 9);
  for (int i = 0; i < kTileKeys; ++i) weights[i] *= 1e-39f;  // denormal
  const std::vector<uint8_t> probs = Operands(kernels, weights);
  std::vector<float> rescale = RandomValues(kMaxRows, 10);
  if (cut.end_row % 2 == 0) rescale.assign(kMaxRows, 1.0f);
  std::vector<float> out = RandomValues(kMaxRows * dim, 11);
  std::fill_n(out.begin(), dim, 0.0f);
  const TileProduct product{.a = probs.data(),
                            .a_stride = kTileKeys,
                            .first_depth = cut.first_unit * kUnitKeys,
                            .b = values.packed.data(),
                            .b_depth = kTileKeys,
                            .b_cols = dim,
                            .first_row = cut.first_row,
                            .rows = cut.end_row - cut.first_row,
                            .depth = cut.units * kUnitKeys,
                            .cols = dim,
                            .out = out.data(),
                            .out_stride = dim,
                            .rescale = rescale.data()};
  if (direct) {
    kernels.multiply_values(values.view, product);
  } else {
    kernels.pack_values(values.view, values.packed.data());
    kernels.multiply(product);
  }
  return out;
}

TEST(AttentionUnitsNeedNativeKernels, KernelsOrderUnitsAsTheCacheDoes) {
  if (UnitKernels().empty()) GTEST_SKIP() << "no kernels for units on this machine";
  for (const AttentionKernels* kernels : UnitKernels()) {
    for (const int head_dim : {8, 64, 80, 128}) {
      const std::vector<uint8_t> bytes = Bf16(RandomValues(int64_t{kUnitKeys} * head_dim, 4));
      const auto* vectors = reinterpret_cast<const uint16_t*>(bytes.data());
      const KvShape shape{
          .head_dim = head_dim, .dtype = DType::kBF16, .layout = kernels->unit_layout};
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        std::vector<uint16_t> expected(kUnitKeys * head_dim), unit(expected.size());
        for (int token = 0; token < kUnitTokens; ++token) {
          WriteToUnit(shape, side, vectors + token * head_dim, token, expected.data());
        }
        const auto order = side == KvSide::kKeys ? kernels->order_keys : kernels->order_values;
        order(vectors, head_dim, unit.data());
        EXPECT_EQ(unit, expected) << head_dim;
      }
    }
  }
}

TEST(AttentionUnitsNeedNativeKernels, ProductsHaveTheBitsOfPackedOnes) {
  if (UnitKernels().empty()) GTEST_SKIP() << "no kernels for units on this machine";
  for (const AttentionKernels* kernels : UnitKernels()) {
    for (const int head_dim : {8, 64, 80, 96, 128}) {
      Tile keys(head_dim, 1);
      Tile values(head_dim, 2);
      for (const Cut& cut : Cuts()) {
        EXPECT_TRUE(
            SameBits(KeyProduct(*kernels, false, keys, cut), KeyProduct(*kernels, true, keys, cut)))
            << head_dim << ": rows " << cut.first_row << " to " << cut.end_row;
        EXPECT_TRUE(SameBits(ValueProduct(*kernels, false, values, cut),
                             ValueProduct(*kernels, true, values, cut)))
            << head_dim << ": rows " << cut.first_row << " to " << cut.end_row;
      }
    }
  }
}

struct Shape {
  int head_dim;
  int group;
  int rows;
  bool partial;
};

// Attention of a tree of `rows` nodes over 1100 tokens, so over two splits, in a cache of ordered
// units or of vectors.
std::vector<float> TreeAttention(const AttentionKernels& kernels, const Shape& s,
                                 bool units = true) {
  constexpr int kKvHeads = 2;
  constexpr int kCommitted = 1100;
  std::mt19937 random(5);
  const SequenceSpec sequence{.committed = kCommitted,
                              .parents = testing::RandomTree(s.rows, random),
                              .partial = s.partial};
  const KvShape shape{.num_layers = 1,
                      .kv_heads = kKvHeads,
                      .head_dim = s.head_dim,
                      .block_size = 16,
                      .dtype = DType::kBF16,
                      .num_blocks = kKvHeads * (kCommitted / 16 + 2) + s.rows,
                      .staging_rows = s.rows};
  testing::KvImage image(shape, 0);
  const PassPlan pass = testing::BuildPass({sequence}, random, &image);
  const auto backend = testing::MakeBackend(units ? "cpu2" : "reference");  // host memory both
  const testing::DeviceKv kv(*backend, image);
  EXPECT_EQ(kv.view().shape.layout, units ? kernels.unit_layout : KvLayout::kVectors);
  ThreadPool pool(2);
  AttentionPlan plan;
  plan.Build(pass, shape, pool.num_threads());
  const int cols = kKvHeads * s.group * s.head_dim;
  std::vector<float> q = RandomValues(int64_t{s.rows} * cols, 3);
  std::vector<float> out(q.size());
  const AttentionCall call{.pass = &pass,
                           .plan = &plan,
                           .kernels = &kernels,
                           .q = {q.data(), s.rows, cols, cols},
                           .out = {out.data(), s.rows, cols, cols},
                           .shape = kv.view().shape,
                           .layer = kv.view().layers[0],
                           .scale = 0.1f};
  AttentionScratch scratch;
  RunAttention(pool, call, &scratch);
  return out;
}

TEST(AttentionUnitsNeedNativeKernels, TreesOverAPrefixHaveTheBitsOfPackedVectors) {
  if (UnitKernels().empty()) GTEST_SKIP() << "no kernels for units on this machine";
  for (const AttentionKernels* kernels : UnitKernels()) {
    AttentionKernels packed = *kernels;
    packed.direct_rows = 0;
    AttentionKernels direct = *kernels;
    direct.direct_rows = kMaxTileRows;
    for (const int head_dim : {64, 80, 96, 128}) {
      for (const Shape& s : {Shape{head_dim, 2, 1, false},
                             {head_dim, 1, 1, false},
                             {head_dim, 3, 5, false},
                             {head_dim, 1, 7, true},
                             {head_dim, 4, 2, true},
                             {head_dim, 3, 6, true}}) {
        const std::vector<float> expected = TreeAttention(packed, s, /*units=*/false);
        for (const AttentionKernels& some : {packed, direct}) {
          EXPECT_TRUE(SameBits(expected, TreeAttention(some, s)))
              << head_dim << " group " << s.group << " rows " << s.rows;
        }
        EXPECT_TRUE(SameBits(expected, TreeAttention(direct, s, /*units=*/false)));
      }
    }
  }
}

}  // namespace
}  // namespace talon
