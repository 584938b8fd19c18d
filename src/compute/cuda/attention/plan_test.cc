#include "compute/cuda/attention/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

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
  for (int chunk = 0; chunk < 200; ++chunk) {
    EXPECT_EQ(ChunkBegin(chunk) % kTileKeys, 0);
    EXPECT_EQ(ChunkOf(ChunkBegin(chunk)), chunk);
    EXPECT_EQ(ChunkOf(ChunkBegin(chunk + 1) - 1), chunk);
    EXPECT_EQ(NumChunks(ChunkBegin(chunk)), chunk);
    EXPECT_EQ(NumChunks(ChunkBegin(chunk) + 1), chunk + 1);
  }
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
}

TEST(AttentionPlan, EveryQuerySeesEverySharedTileOnce) {
  const PassPlan pass = MixedPass();
  for (const AttentionShape& shape : Shapes(/*deterministic=*/true)) {
    AttentionPlan plan;
    plan.Build(pass, shape);
    std::map<Seen, int> seen;
    for (const AttentionItem& item : ItemsOf(plan)) {
      EXPECT_LE(item.query_end - item.query_begin, shape.tile_queries);
      EXPECT_EQ(item.key_begin, ChunkBegin(item.chunk));
      for (int query = item.query_begin; query < item.query_end; ++query) {
        const AttentionRow& row = plan.rows[query / shape.group];
        EXPECT_EQ(pass.block_offsets[row.sequence], item.blocks);
        EXPECT_LE(std::min(item.full_end, item.key_end), row.shared_len);
        for (int key = item.key_begin; key < item.key_end; key += kTileKeys) {
          if (key >= row.shared_len) break;
          ++seen[{query / shape.group, item.kv_head, query % shape.group, key / kTileKeys}];
        }
      }
    }
    size_t expected = 0;
    for (const AttentionRow& row : plan.rows) {
      expected += static_cast<size_t>((row.shared_len + kTileKeys - 1) / kTileKeys) *
                  shape.kv_heads * shape.group;
    }
    EXPECT_EQ(seen.size(), expected);
    EXPECT_TRUE(
        std::all_of(seen.begin(), seen.end(), [](auto& entry) { return entry.second == 1; }));
  }
}

TEST(AttentionPlan, ItemsMakeThePartialsThatTheTailExpects) {
  for (const AttentionShape& shape : Shapes(/*deterministic=*/true)) {
    AttentionPlan plan;
    plan.Build(MixedPass(), shape);
    for (const AttentionItem& item : ItemsOf(plan)) {
      const AttentionRow& row = plan.rows[item.query_begin / shape.group];
      if (item.partial < row.sections) {
        EXPECT_EQ(item.chunk, item.partial * kSectionChunks);
        EXPECT_LE(item.key_end, ChunkBegin(item.chunk + kSectionChunks));
      } else {
        EXPECT_EQ(row.PartialOf(item.chunk), item.partial);
        EXPECT_LE(item.key_end, ChunkBegin(item.chunk + 1));
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

TEST(AttentionPlan, WholeSectionsWhereTheyKeepTheDeviceBusy) {
  PassPlan pass;
  AddChain(65536, 1, &pass);
  AttentionPlan plan;
  AttentionShape shape{.kv_heads = 8, .group = 4, .head_dim = 128, .multiprocessors = 132};
  plan.Build(pass, shape);
  EXPECT_EQ(plan.tile_queries, 16);
  EXPECT_EQ(plan.rows[0].sections, 0);
  EXPECT_EQ(plan.num_items, 8 * 84);
  PassPlan tree;
  AddChain(65536, 63, &tree);
  plan.Build(tree, shape);
  EXPECT_EQ(plan.tile_queries, 128);
  EXPECT_EQ(plan.rows[0].sections, 21);
  EXPECT_EQ(plan.num_items, 2 * 8 * 21);
  EXPECT_EQ(plan.items[0].key_end, 65536);  // the largest first
}

TEST(AttentionPlan, BlocksOfTheFirstRoundFindAnItem) {
  PassPlan pass;
  AddChain(10, 1, &pass);
  for (const bool deterministic : {false, true}) {
    AttentionPlan plan;
    plan.Build(pass, {.multiprocessors = 132, .deterministic = deterministic});
    EXPECT_EQ(plan.num_items, deterministic ? 0 : 1);
    ASSERT_EQ(plan.items.size(), 264u);
    EXPECT_LE(plan.items.back().key_end, plan.items.back().key_begin);
  }
}

TEST(AttentionPlan, NodesHaveTheirPlaces) {
  PassPlan pass;
  AddPrompt(3, 3, &pass);
  AddChain(64, 2, &pass);
  pass.nodes_before = {0, 3};
  pass.staging_first = {0, 40};
  AttentionPlan plan;
  plan.Build(pass, {.deterministic = false});
  EXPECT_EQ(plan.node_places, (std::vector<int32_t>{~40, ~41, ~42, ~43, ~44}));
}

TEST(AttentionWork, SetsOfKeysFollowTheMask) {
  const uint64_t mask[3] = {0x8000000000000005u, 0x3u, 0x10u};
  const auto has = [&](int node) {
    return node >= 0 && node < 192 && mask[node / 64] >> node % 64 & 1;
  };
  for (int first = -70; first < 260; ++first) {
    const uint64_t keys = NodeKeys(mask, 3, first);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(keys >> i & 1, has(first + i)) << first << " " << i;
  }
  for (int count = -3; count < 70; ++count) {
    EXPECT_EQ(std::popcount(FirstKeys(count)), std::clamp(count, 0, 64));
  }
}

TEST(AttentionPlan, TileFollowsTheRowsOfASequence) {
  AttentionShape shape{.kv_heads = 8, .group = 4, .head_dim = 128};
  EXPECT_EQ(TileQueries(1, 1, shape), 16);
  EXPECT_EQ(TileQueries(8, 8, shape), 16);
  EXPECT_EQ(TileQueries(5, 1, shape), 32);
  EXPECT_EQ(TileQueries(16, 1, shape), 64);
  EXPECT_EQ(TileQueries(64, 1, shape), 128);
  shape.shared_memory = 99 * 1024;
  EXPECT_EQ(TileQueries(1, 1, shape), 32);
  EXPECT_EQ(TileQueries(64, 1, shape), 64);
  shape.head_dim = 256;
  EXPECT_EQ(TileQueries(64, 1, shape), 0);
  shape.shared_memory = 227 * 1024;
  EXPECT_EQ(TileQueries(64, 1, shape), 64);
  shape.head_dim = 60;
  EXPECT_EQ(TileQueries(64, 1, shape), 0);
  shape.head_dim = 64;
  shape.dtype = DType::kF32;
  EXPECT_EQ(TileQueries(64, 1, shape), 0);
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
