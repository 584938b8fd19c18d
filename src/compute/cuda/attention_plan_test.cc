#include "compute/cuda/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>

namespace talon::cuda {
namespace {

void EndSequence(int keys, PassPlan* plan) {
  plan->sequence_rows.push_back(plan->num_rows());
  plan->block_ids.resize(plan->block_ids.size() + (keys + 15) / 16);
  plan->block_offsets.push_back(static_cast<int32_t>(plan->block_ids.size()));
}

void BeginSequence(PassPlan* plan) {
  if (!plan->sequence_rows.empty()) return;
  plan->sequence_rows.push_back(0);
  plan->block_offsets.push_back(0);
}

// Adds a sequence of `nodes` chained tree rows over `committed` tokens.
void AddChain(int committed, int nodes, PassPlan* plan) {
  BeginSequence(plan);
  for (int i = 0; i < nodes; ++i) {
    plan->tokens.push_back(0);
    plan->slots.push_back(-1);
    plan->prefix_len.push_back(committed);
    plan->ancestors.push_back((uint64_t{2} << i) - 1);
  }
  EndSequence(committed, plan);
}

// Adds the last `rows` of `tokens` prompt tokens.
void AddPrompt(int tokens, int rows, PassPlan* plan) {
  BeginSequence(plan);
  for (int i = 0; i < rows; ++i) {
    plan->tokens.push_back(0);
    plan->slots.push_back(i);
    plan->prefix_len.push_back(tokens - rows + i + 1);
    plan->ancestors.push_back(0);
  }
  EndSequence(tokens, plan);
}

PassPlan MixedPass() {
  PassPlan pass;
  AddChain(20000, 9, &pass);
  AddPrompt(700, 130, &pass);
  AddChain(30, 2, &pass);  // no whole tile
  AddChain(1024, 1, &pass);
  AddPrompt(5000, 40, &pass);
  AddPrompt(3, 3, &pass);
  AddChain(64, 5, &pass);
  return pass;
}

// Those with work.
std::vector<AttentionItem> ItemsOf(const AttentionPlan& plan) {
  return {plan.items.begin(), plan.items.begin() + plan.num_items};
}

std::vector<AttentionShape> Shapes(bool deterministic) {
  std::vector<AttentionShape> shapes;
  for (const int group : {1, 4, 20}) {
    for (const int tile : {16, 32, 128, 256}) {
      for (const int multiprocessors : {1, 10000}) {  // few long items, or many
        for (const bool has_warpgroups : {false, true}) {
          if (has_warpgroups && deterministic) continue;
          if (tile == 256 && !has_warpgroups) continue;
          shapes.push_back({.kv_heads = 2,
                            .group = group,
                            .head_dim = 128,
                            .multiprocessors = multiprocessors,
                            .deterministic = deterministic,
                            .has_warpgroups = has_warpgroups,
                            .tile_queries = tile});
        }
      }
    }
  }
  return shapes;
}

// Keys that the kernel which a plan is for takes at once.
int UnitOf(const AttentionPlan& plan) {
  if (plan.kernel == PrefixKernelKind::kFew) return kBoxKeys;
  return plan.kernel == PrefixKernelKind::kWarpgroups ? kStepKeys : kTileKeys;
}

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

// A key of the shared part, as a row's query head sees it.
using Seen = std::tuple<int, int, int, int>;  // row, kv head, head of the group, tile

TEST(AttentionPlan, EveryQueryMeetsEverySharedTileOnce) {
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

// What the prefix kernel lets a query see of an item's tile.
uint64_t SeenOf(const PassPlan& pass, const AttentionPlan& plan, const AttentionItem& item,
                int row_index, int tile) {
  const AttentionRow& row = plan.rows[row_index];
  return FirstKeys(row.prefix_len - tile) |
         NodeKeys(&pass.ancestors[row_index], 1, tile - item.prefix_end);
}

TEST(AttentionPlan, SpansShowEveryQueryItsKeysOnce) {
  const PassPlan pass = MixedPass();
  for (const AttentionShape& shape : Shapes(/*deterministic=*/false)) {
    AttentionPlan plan;
    plan.Build(pass, shape);
    EXPECT_TRUE(plan.spans);
    std::map<Seen, int> seen;  // how many keys from one on
    for (const AttentionItem& item : ItemsOf(plan)) {
      const bool has_keys = item.key_begin < item.key_end;
      EXPECT_EQ(has_keys ? item.key_begin % UnitOf(plan) : 0, 0);
      EXPECT_LT(item.chunk, 0);
      for (int query = item.query_begin; query < item.query_end; ++query) {
        const int row = query / shape.group;
        EXPECT_LE(item.full_end, plan.rows[row].prefix_len);
        for (int key = item.key_begin; key < item.key_end; key += kTileKeys) {
          const uint64_t keys = SeenOf(pass, plan, item, row, key) & FirstKeys(item.key_end - key);
          seen[{row, item.kv_head, query % shape.group, key}] += std::popcount(keys);
        }
      }
    }
    std::map<std::tuple<int, int, int>, int> keys;
    for (const auto& [at, count] : seen) {
      const auto& [row, head, query, tile] = at;
      EXPECT_LE(count, kTileKeys);  // no key twice: items of a query begin a span apart
      keys[{row, head, query}] += count;
    }
    EXPECT_EQ(keys.size(), plan.rows.size() * shape.kv_heads * shape.group);
    for (const auto& [at, count] : keys) EXPECT_EQ(count, plan.rows[std::get<0>(at)].num_keys);
  }
}

TEST(AttentionPlan, SpansMakeThePartialsThatAreMerged) {
  for (const AttentionShape& shape : Shapes(/*deterministic=*/false)) {
    AttentionPlan plan;
    plan.Build(MixedPass(), shape);
    if (shape.tile_queries == 16) {
      EXPECT_TRUE(plan.merges_in_place);
    } else if (!shape.has_warpgroups) {
      EXPECT_FALSE(plan.merges_in_place);
    }
    std::map<int, std::set<int>> partials_of;  // by counter
    std::map<int, int> expected;
    for (const AttentionItem& item : ItemsOf(plan)) {
      const AttentionRow& row = plan.rows[item.query_begin / shape.group];
      EXPECT_GE(item.key_begin, item.partial * row.span);
      EXPECT_LE(item.key_end, (item.partial + 1) * row.span);
      EXPECT_GE(item.counter, 0);
      EXPECT_LT(item.counter, kMaxMergeCounters);
      EXPECT_EQ(item.arrivals > 0, plan.merges_in_place);
      if (item.arrivals == 0) continue;
      partials_of[item.counter].insert(item.partial);
      expected[item.counter] = item.arrivals;
    }
    for (const auto& [counter, partials] : partials_of) {
      EXPECT_EQ(static_cast<int>(partials.size()), expected[counter]);
    }
    int partials = 0;
    for (const AttentionRow& row : plan.rows) {
      EXPECT_EQ(row.partial_begin, partials);
      partials += row.NumPartials();
    }
    EXPECT_EQ(plan.num_partials, partials);
  }
}

// The blocks of a cluster take neighbouring items: the same queries, keys one after the other.
TEST(AttentionPlan, ClustersHaveNeighbouringRunsOfKeys) {
  std::set<int> clusters;
  for (AttentionShape shape : Shapes(/*deterministic=*/false)) {
    for (const int multiprocessors : {1, 40, 132}) {
      shape.multiprocessors = multiprocessors;
      AttentionPlan plan;
      plan.Build(MixedPass(), shape);
      clusters.insert(plan.cluster);
      EXPECT_LE(plan.cluster, shape.has_warpgroups ? kMostClusterBlocks : 1);
      if (plan.tile_queries == 256) continue;  // its blocks have the same keys
      ASSERT_EQ(plan.num_items % plan.cluster, 0);
      for (int i = 0; i < plan.num_items; ++i) {
        if (i % plan.cluster == 0) continue;
        const AttentionItem& before = plan.items[i - 1];
        const AttentionItem& item = plan.items[i];
        EXPECT_EQ(item.key_begin, before.key_end);
        EXPECT_EQ(item.partial, before.partial);
        EXPECT_EQ(item.kv_head, before.kv_head);
        EXPECT_EQ(item.query_begin, before.query_begin);
        EXPECT_EQ(item.arrivals, before.arrivals);
        EXPECT_EQ(item.counter, before.counter);
      }
    }
  }
  EXPECT_GT(clusters.size(), 1u);
}

TEST(AttentionPlan, SpansKeepEveryMultiprocessorBusy) {
  AttentionShape shape{
      .kv_heads = 8, .group = 4, .head_dim = 128, .multiprocessors = 132, .deterministic = false};
  PassPlan token;
  AddChain(65536, 1, &token);
  AttentionPlan plan;
  plan.Build(token, shape);
  EXPECT_EQ(plan.tile_queries, 16);
  EXPECT_LE(plan.num_items, 264);
  EXPECT_GE(plan.num_items, 250);
  PassPlan short_token;
  AddChain(1024, 1, &short_token);
  plan.Build(short_token, shape);
  EXPECT_EQ(plan.num_items, 8 * 17);
  PassPlan tree;
  AddChain(65536, 63, &tree);
  plan.Build(tree, shape);
  EXPECT_GE(plan.tile_queries, 64);
  EXPECT_GE(plan.num_items, 250);
}

TEST(AttentionPlan, HopperHasKernelsForFewAndForManyQueries) {
  AttentionShape shape{.kv_heads = 8,
                       .group = 4,
                       .head_dim = 128,
                       .multiprocessors = 132,
                       .deterministic = false,
                       .has_warpgroups = true,
                       .clusters = {132, 66, 30, 14}};
  const auto plan_of = [&](int committed, int nodes) {
    PassPlan pass;
    AddChain(committed, nodes, &pass);
    AttentionPlan plan;
    plan.Build(pass, shape);
    return plan;
  };
  EXPECT_EQ(plan_of(65536, 1).kernel, PrefixKernelKind::kFew);
  EXPECT_EQ(plan_of(65536, 16).kernel, PrefixKernelKind::kWarpgroups);
  const AttentionPlan many = plan_of(65536, 63);
  EXPECT_EQ(many.kernel, PrefixKernelKind::kWarpgroups);
  EXPECT_EQ(many.tile_queries, 256);  // a pair of blocks shares each key
  EXPECT_EQ(many.cluster, 2);
  EXPECT_LE(many.num_items, 66);
  EXPECT_GE(many.num_items, 60);
  // At a short context a cluster has all keys, and nothing is left to merge.
  for (const int nodes : {1, 8, 63}) {
    const AttentionPlan plan = plan_of(1024, nodes);
    EXPECT_EQ(plan.rows[0].NumPartials(), 1) << nodes;
    EXPECT_TRUE(plan.merges_in_place) << nodes;
    EXPECT_LE(plan.num_items / plan.cluster,
              shape.clusters[std::countr_zero(static_cast<unsigned>(plan.cluster))]);
  }
  shape.deterministic = true;
  EXPECT_EQ(plan_of(65536, 63).kernel, PrefixKernelKind::kTiles);
  shape.deterministic = false;
  shape.head_dim = 256;
  EXPECT_EQ(plan_of(65536, 63).kernel, PrefixKernelKind::kTiles);
}

TEST(AttentionPlan, KeysThatPromptRowsWriteAreNotOld) {
  PassPlan pass;
  AddPrompt(700, 130, &pass);
  AddChain(1000, 3, &pass);
  AttentionPlan plan;
  plan.Build(pass, {.kv_heads = 2, .group = 4, .deterministic = false});
  for (const AttentionItem& item : ItemsOf(plan)) {
    EXPECT_EQ(item.old_end, plan.rows[item.query_begin / 4].sequence == 0 ? 570 : 1000);
  }
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
