// Tests of the partitioning into spans (attention/spans.cc).
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>
#include <tuple>

#include "compute/cuda/attention/plan.h"
#include "compute/cuda/attention/plan_testing.h"

namespace talon::cuda {
namespace {

using testing::AddChain;
using testing::AddPrompt;
using testing::ItemsOf;
using testing::MixedPass;
using testing::Seen;
using testing::Shapes;

// Keys per step of the plan's kernel.
int UnitOf(const AttentionPlan& plan) {
  if (plan.kernel == PrefixKernelKind::kFew) return kBoxKeys;
  return plan.kernel == PrefixKernelKind::kWarpgroups ? kStepKeys : kTileKeys;
}

// The keys of an item's tile that the prefix kernel shows to a query.
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
      if (item.query_begin == item.query_end) continue;  // second block of a pair
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

// The blocks of a cluster take neighbouring items: the same queries, consecutive keys; those of a
// pair the same keys, consecutive queries.
TEST(AttentionPlan, ClustersHaveNeighbouringItems) {
  std::set<int> clusters;
  for (AttentionShape shape : Shapes(/*deterministic=*/false)) {
    for (const int multiprocessors : {1, 40, 132}) {
      shape.multiprocessors = multiprocessors;
      AttentionPlan plan;
      plan.Build(MixedPass(), shape);
      clusters.insert(plan.cluster);
      EXPECT_LE(plan.cluster, shape.has_warpgroups ? kMostClusterBlocks : 1);
      const bool is_pair = plan.tile_queries == 256;
      ASSERT_EQ(plan.num_items % plan.cluster, 0);
      for (int i = 0; i < plan.num_items; ++i) {
        if (i % plan.cluster == 0) continue;
        const AttentionItem& before = plan.items[i - 1];
        const AttentionItem& item = plan.items[i];
        EXPECT_EQ(item.key_begin, is_pair ? before.key_begin : before.key_end);
        EXPECT_EQ(item.query_begin, is_pair ? before.query_end : before.query_begin);
        EXPECT_LE(item.query_end - item.query_begin, is_pair ? 128 : plan.tile_queries);
        EXPECT_EQ(item.partial, before.partial);
        EXPECT_EQ(item.kv_head, before.kv_head);
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
  EXPECT_LE(many.num_items, 2 * 66);
  EXPECT_GE(many.num_items, 2 * 60);
  // At a short context a cluster has all keys of few queries, and nothing is left to merge.
  for (const int nodes : {1, 8, 16}) {
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

// A row that reads keys which rows of another pass of the same CUDA graph write.
TEST(AttentionPlan, KeysThatAreWrittenJustBeforeAreNotOld) {
  PassPlan pass;
  AddPrompt(700, 1, &pass);
  AddPrompt(300, 1, &pass);
  pass.fresh_keys = {5};
  for (const bool deterministic : {false, true}) {
    AttentionPlan plan;
    plan.Build(pass, {.kv_heads = 2, .group = 4, .deterministic = deterministic});
    ASSERT_GT(plan.num_items, 0);
    for (const AttentionItem& item : ItemsOf(plan)) {
      EXPECT_EQ(item.old_end, plan.rows[item.query_begin / 4].sequence == 0 ? 695 : 299);
    }
  }
}

}  // namespace
}  // namespace talon::cuda
