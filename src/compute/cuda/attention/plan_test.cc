#include "compute/cuda/attention/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "base/math.h"
#include "compute/cuda/attention/plan_testing.h"

namespace talon::cuda {
namespace {

using testing::AddChain;
using testing::AddPrompt;
using testing::ItemsOf;
using testing::MixedPass;
using testing::Seen;
using testing::Shapes;

TEST(AttentionWork, ChunksAreWholeTilesWithoutGaps) {
  EXPECT_EQ(ChunkBegin(0), 0);
  for (int chunk = 0; chunk < 120; ++chunk) {  // to 16 million keys
    EXPECT_EQ(ChunkBegin(chunk) % kTileKeys, 0);
    EXPECT_EQ(ChunkOf(ChunkBegin(chunk)), chunk);
    EXPECT_EQ(ChunkOf(ChunkBegin(chunk + 1) - 1), chunk);
    EXPECT_EQ(NumChunks(ChunkBegin(chunk)), chunk);
    EXPECT_EQ(NumChunks(ChunkBegin(chunk) + 1), chunk + 1);
  }
  EXPECT_EQ(ChunkBegin(8), 1024);
  EXPECT_EQ(ChunkBegin(16), 2048);
  EXPECT_EQ(ChunkBegin(17), 2304);
  EXPECT_EQ(NumChunks(65536), 56);
  EXPECT_EQ(NumSections(0), 0);
  EXPECT_EQ(NumSections(512), 1);
  EXPECT_EQ(NumSections(513), 2);
}

TEST(AttentionPlan, SharedPartIsWholeTilesOfTreesAndAllOfPrompts) {
  AttentionPlan plan;
  plan.Build(MixedPass(), {.kv_heads = 2, .group = 4});
  EXPECT_EQ(plan.rows[8].shared_len, 20000 / 64 * 64);
  EXPECT_EQ(plan.rows[8].num_keys, 20009);
  EXPECT_EQ(plan.rows[9].shared_len, 571);
  EXPECT_EQ(plan.rows[9].num_keys, 571);
  EXPECT_EQ(plan.rows[139].shared_len, 0);
  EXPECT_EQ(plan.rows[139].sequence, 2);
  EXPECT_EQ(plan.rows[141].shared_len, 1025);  // a single row shares its node with nothing else
  EXPECT_EQ(plan.rows[141].num_keys, 1025);
}

TEST(AttentionPlan, EveryQuerySeesEverySharedTileOnce) {
  const PassPlan pass = MixedPass();
  for (const AttentionShape& shape : Shapes()) {
    AttentionPlan plan;
    plan.Build(pass, shape);
    std::vector<Seen> seen;
    for (const AttentionItem& item : ItemsOf(plan)) {
      EXPECT_LE(item.query_end - item.query_begin, std::min(shape.tile_queries, 128));
      EXPECT_EQ(item.key_begin, ChunkBegin(item.chunk));
      for (int query = item.query_begin; query < item.query_end; ++query) {
        const AttentionRow& row = plan.rows[query / shape.group];
        EXPECT_EQ(pass.block_offsets[row.sequence], item.blocks);
        EXPECT_LE(std::min(item.full_end, item.key_end), row.shared_len);
        for (int key = item.key_begin; key < item.key_end; key += kTileKeys) {
          if (key >= row.shared_len) break;
          seen.emplace_back(query / shape.group, item.kv_head, query % shape.group,
                            key / kTileKeys);
        }
      }
    }
    size_t expected = 0;
    for (const AttentionRow& row : plan.rows) {
      expected +=
          static_cast<size_t>(CeilDiv(row.shared_len, kTileKeys)) * shape.kv_heads * shape.group;
    }
    EXPECT_EQ(seen.size(), expected);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  }
}

TEST(AttentionPlan, ItemsMakeThePartialsThatTheTailExpects) {
  for (const AttentionShape& shape : Shapes()) {
    AttentionPlan plan;
    plan.Build(MixedPass(), shape);
    for (const AttentionItem& item : ItemsOf(plan)) {
      if (item.query_begin == item.query_end) continue;  // a half of a pair
      const AttentionRow& row = plan.rows[item.query_begin / shape.group];
      EXPECT_EQ(item.merges, item.partial < row.sections ? 1 : 0);
      if (item.merges != 0) {
        EXPECT_EQ(item.chunk, item.partial * kSectionChunks);
        EXPECT_LE(item.key_end, ChunkBegin(row.sections * kSectionChunks));
      } else {
        EXPECT_EQ(row.PartialOf(item.chunk), item.partial);
      }
    }
    int partials = 0;
    for (const AttentionRow& row : plan.rows) {
      EXPECT_EQ(row.partial_begin, partials);
      partials += row.NumPartials();
      const bool has_tail = row.shared_len < row.num_keys;
      // The tail goes on from a chunk's state, never from a section's.
      if (has_tail) {
        EXPECT_LE(ChunkBegin(row.sections * kSectionChunks), row.shared_len);
      }
    }
    EXPECT_EQ(plan.num_partials, partials);
  }
}

constexpr AttentionShape kH200 = {
    .kv_heads = 8, .group = 4, .head_dim = 128, .multiprocessors = 132, .has_warpgroups = true};

TEST(AttentionPlan, ItemsFillTheDevice) {
  PassPlan pass;
  AddChain(1024, 1, &pass);
  AttentionPlan plan;
  plan.Build(pass, kH200);
  EXPECT_EQ(plan.num_items, 8 * 9);  // short: every chunk by itself
  PassPlan batch;
  for (int i = 0; i < 64; ++i) AddChain(1023, 1, &batch);
  plan.Build(batch, kH200);
  EXPECT_LE(plan.num_items, 64 * 8 * 2);  // many: several chunks at once
  PassPlan tree;
  AddChain(65536, 16, &tree);
  plan.Build(tree, kH200);
  EXPECT_GT(plan.num_items, 132);  // long: short items fill what long ones leave
  PassPlan prompt;
  AddPrompt(65536, 512, &prompt);
  plan.Build(prompt, kH200);
  EXPECT_GT(plan.rows[0].sections, 0);  // few partials for many rows
}

// The items that each block of WarpgroupKernel runs.
std::vector<std::vector<int>> BlocksOf(const AttentionPlan& plan, int blocks) {
  std::vector<std::vector<int>> all(std::min(blocks, plan.num_items));
  for (int block = 0; block < static_cast<int>(all.size()); ++block) {
    for (int i = block; i >= 0; i = plan.items[i].next) all[block].push_back(i);
  }
  return all;
}

TEST(AttentionPlan, EveryItemRunsInOneBlock) {
  for (const int tile : {64, 128, 256}) {
    for (const auto& [committed, nodes] : {std::pair(65536, 16), {131072, 60}, {300, 1}}) {
      PassPlan pass;
      AddChain(committed, nodes, &pass);
      AttentionShape shape = kH200;
      shape.tile_queries = tile;
      AttentionPlan plan;
      plan.Build(pass, shape);
      std::vector<int> all;
      for (const auto& block : BlocksOf(plan, shape.multiprocessors)) {
        all.insert(all.end(), block.begin(), block.end());
      }
      std::ranges::sort(all);
      std::vector<int> expected(plan.num_items);
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all, expected) << tile << " " << committed;
    }
  }
}

// One token of a long context: no block has much more than its share of the keys.
TEST(AttentionPlan, LongContextsAreSharedEvenly) {
  for (const int committed : {16384, 32768, 65536, 100000, 131072}) {
    PassPlan pass;
    AddChain(committed, 1, &pass);
    AttentionPlan plan;
    plan.Build(pass, kH200);
    ASSERT_EQ(plan.kernel, PrefixKernelKind::kWarpgroups);
    int most = 0;
    for (const auto& block : BlocksOf(plan, kH200.multiprocessors)) {
      int keys = 0;
      for (const int i : block) keys += plan.items[i].key_end - plan.items[i].key_begin;
      most = std::max(most, keys);
    }
    EXPECT_LE(most, 1.36 * committed * kH200.kv_heads / kH200.multiprocessors) << committed;
  }
}

TEST(AttentionPlan, KernelFollowsQueriesAndKeys) {
  const auto kernel = [](int committed, int nodes, AttentionShape shape) {
    PassPlan pass;
    AddChain(committed, nodes, &pass);
    AttentionPlan plan;
    plan.Build(pass, shape);
    return std::pair(plan.kernel, plan.tile_queries);
  };
  constexpr auto kTiles = PrefixKernelKind::kTiles;
  constexpr auto kWarpgroups = PrefixKernelKind::kWarpgroups;
  EXPECT_EQ(kernel(1000, 1, kH200), std::pair(kTiles, 16));
  EXPECT_EQ(kernel(3000, 1, kH200), std::pair(kTiles, 16));
  EXPECT_EQ(kernel(65536, 1, kH200), std::pair(kWarpgroups, 64));
  EXPECT_EQ(kernel(65536, 16, kH200), std::pair(kWarpgroups, 64));
  EXPECT_EQ(kernel(65536, 63, kH200), std::pair(kWarpgroups, 256));
  AttentionShape shape = kH200;
  shape.has_warpgroups = false;
  EXPECT_EQ(kernel(65536, 1, shape), std::pair(kTiles, 16));
  EXPECT_EQ(kernel(65536, 63, shape).first, kTiles);
  shape = kH200;
  shape.head_dim = 256;
  EXPECT_EQ(kernel(65536, 63, shape), std::pair(kTiles, 64));
  shape.shared_memory = 99 * 1024;
  EXPECT_EQ(kernel(65536, 63, shape).second, 0);
  for (const int head_dim : {60, 264}) {
    shape = kH200;
    shape.head_dim = head_dim;
    EXPECT_EQ(kernel(1000, 1, shape).second, 0);
  }
}

TEST(AttentionPlan, TheBlocksOfAPairHaveTheSameKeys) {
  PassPlan pass;
  AddChain(20000, 60, &pass);
  AddPrompt(4000, 10, &pass);
  AttentionShape shape = kH200;
  shape.tile_queries = 256;
  AttentionPlan plan;
  plan.Build(pass, shape);
  ASSERT_EQ(plan.num_items % 2, 0);
  for (int i = 0; i < plan.num_items; i += 2) {
    const AttentionItem& a = plan.items[i];
    const AttentionItem& b = plan.items[i + 1];
    EXPECT_EQ(std::tie(a.key_begin, a.key_end, a.kv_head, a.chunk, a.blocks),
              std::tie(b.key_begin, b.key_end, b.kv_head, b.chunk, b.blocks));
    EXPECT_EQ(a.query_end, b.query_begin);
    EXPECT_LE(a.query_end - a.query_begin, 128);
    EXPECT_LE(b.query_end - b.query_begin, 128);
  }
}

// Blocks that take items one by one get short ones, however long the sequences are.
TEST(AttentionPlan, ItemsOfABatchAreShort) {
  for (const int committed : {2048, 8192, 32768}) {
    PassPlan pass;
    for (int s = 0; s < 32; ++s) AddChain(committed, 1, &pass);
    AttentionPlan plan;
    plan.Build(pass, kH200);
    ASSERT_EQ(plan.kernel, PrefixKernelKind::kTiles);
    EXPECT_EQ(plan.num_items, kH200.kv_heads * static_cast<int>(plan.items.size()));
    for (const AttentionItem& item : plan.items) {
      const bool is_chunk = NumChunks(item.key_end) - item.chunk == 1;
      EXPECT_LE(item.key_end - item.key_begin, is_chunk ? 4096 : 1536) << committed;
    }
  }
}

TEST(AttentionPlan, TheTailKernelRunsForTreesOnly) {
  const auto has_tails = [](int nodes, bool prompt) {
    PassPlan pass;
    AddChain(1000, 1, &pass);
    if (nodes > 0) AddChain(500, nodes, &pass);
    if (prompt) AddPrompt(700, 130, &pass);
    AttentionPlan plan;
    plan.Build(pass, kH200);
    for (const AttentionRow& row : plan.rows) {
      EXPECT_TRUE(plan.has_tails || row.shared_len == row.num_keys);
    }
    return plan.has_tails;
  };
  EXPECT_FALSE(has_tails(0, false));
  EXPECT_FALSE(has_tails(1, true));
  EXPECT_TRUE(has_tails(2, false));
}

TEST(AttentionPlan, NodesHaveTheirPlaces) {
  PassPlan pass;
  AddPrompt(3, 3, &pass);
  AddChain(64, 2, &pass);
  pass.nodes_before = {0, 3};
  pass.staging_first = {0, 40};
  AttentionPlan plan;
  plan.Build(pass, {});
  EXPECT_EQ(plan.node_places, (std::vector<int32_t>{~40, ~41, ~42, ~43, ~44}));
}

TEST(AttentionWork, FirstKeysOfATile) {
  for (int count = -3; count < 70; ++count) {
    EXPECT_EQ(std::popcount(FirstKeys(count)), std::clamp(count, 0, 64));
  }
}

// Codes run on every variant of both kernels. They are loaded by 16 bytes.
TEST(AttentionPlan, CodesRunOnBothKernels) {
  for (const DType dtype : {DType::kF8E4M3, DType::kI8}) {
    AttentionPlan plan;
    for (const auto& [tile, kernel] : {std::pair(16, PrefixKernelKind::kTiles),
                                       {32, PrefixKernelKind::kTiles},
                                       {64, PrefixKernelKind::kWarpgroups},
                                       {128, PrefixKernelKind::kWarpgroups},
                                       {256, PrefixKernelKind::kWarpgroups}}) {
      AttentionShape shape = kH200;
      shape.dtype = dtype;
      shape.tile_queries = tile;
      plan.Build(MixedPass(), shape);
      EXPECT_EQ(plan.tile_queries, tile);
      EXPECT_EQ(plan.kernel, kernel) << tile;
    }
    AttentionShape shape = kH200;
    shape.dtype = dtype;
    shape.has_warpgroups = false;
    plan.Build(MixedPass(), shape);
    EXPECT_EQ(plan.kernel, PrefixKernelKind::kTiles);
    shape.head_dim = 24;
    plan.Build(MixedPass(), shape);
    EXPECT_EQ(plan.tile_queries, 0);
  }
}

TEST(AttentionPlan, NoWorkForTheGenericKernel) {
  AttentionPlan plan;
  plan.Build(MixedPass(), {.dtype = DType::kF32});
  EXPECT_TRUE(plan.items.empty());
  EXPECT_EQ(plan.num_partials, 0);
  EXPECT_EQ(plan.rows.size(), MixedPass().tokens.size());
}

}  // namespace
}  // namespace talon::cuda
