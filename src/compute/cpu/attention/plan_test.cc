#include "compute/cpu/attention/plan.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "base/math.h"

namespace talon {
namespace {

PassPlan ChainPlan(int committed, int nodes) {
  PassPlan plan;
  for (int i = 0; i < nodes; ++i) {
    plan.tokens.push_back(0);
    plan.positions.push_back(committed + i);
    plan.slots.push_back(i == 1 ? 500 : -1);
    plan.prefix_len.push_back(committed);
    plan.ancestors.push_back((uint64_t{2} << i) - 1);
  }
  plan.sequence_rows = {0, nodes};
  plan.block_offsets = {0, CeilDiv(committed, 16)};
  plan.block_ids.resize(plan.block_offsets[1]);
  return plan;
}

// Every (row, kv head, split) of a plan, counted once per item that computes it.
std::multiset<std::tuple<int, int, int>> Coverage(const AttentionPlan& plan) {
  std::multiset<std::tuple<int, int, int>> covered;
  for (const AttentionItem& item : plan.items) {
    for (int i = item.row_begin; i < item.row_end; ++i) {
      for (int head = item.head_begin; head < item.head_end; ++head) {
        for (int split = 0; split < plan.rows[i].EndSplit(); ++split) {
          if (item.split_end == 0 || (item.split_begin <= split && split < item.split_end)) {
            covered.insert({plan.rows[i].row, head, split});
          }
        }
      }
    }
  }
  return covered;
}

TEST(AttentionPlan, PlacesOfAncestors) {
  AttentionPlan plan;
  plan.Build(ChainPlan(21, 3), {.kv_heads = 1, .head_dim = 8}, 1);
  ASSERT_EQ(plan.rows.size(), 3u);
  const AttentionRow& last = plan.rows[2];
  EXPECT_EQ(last.num_keys, 24);
  EXPECT_EQ(plan.tree_places[last.tree_begin], ~0);
  EXPECT_EQ(plan.tree_places[last.tree_begin + 1], 500);
  EXPECT_EQ(plan.tree_places[last.tree_begin + 2], ~2);
  EXPECT_EQ(last.PrefixUnits(0), 2);
  EXPECT_EQ(last.SharedUnits(0), 3);  // a chain is all trunk
  EXPECT_EQ(last.TileKeys(0), 24);
  EXPECT_EQ(last.TileKeys(1), 0);
}

TEST(AttentionPlan, RowsAreSortedByPrefix) {
  PassPlan pass = ChainPlan(100, 4);
  pass.prefix_len = {70, 100, 20, 70};
  AttentionPlan plan;
  plan.Build(pass, {.kv_heads = 1, .head_dim = 8}, 1);
  const int order[] = {2, 0, 3, 1};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(plan.rows[i].row, order[i]);
}

TEST(AttentionPlan, TrunkIsWhatAllLaterNodesSee) {
  // Two nodes of a tail, a node below, and two branches: 0 - 1 - 2 - {3 - 5, 4}.
  PassPlan pass = ChainPlan(40, 4);
  pass.slots = {-1, -1, -1, -1};
  pass.nodes_before = {2};
  pass.staging_first = {70};
  pass.ancestors = {0b111, 0b1111, 0b10111, 0b101111};
  AttentionPlan plan;
  plan.Build(pass, {.kv_heads = 1, .head_dim = 8}, 1);
  for (const AttentionRow& row : plan.rows) EXPECT_EQ(row.shared_len, 43) << row.row;
  EXPECT_EQ(plan.rows[3].num_keys, 45);
  const int32_t expected[] = {~70, ~71, ~72, ~73, ~75};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.tree_places[plan.rows[3].tree_begin + i], expected[i]) << i;
  }
  pass.ancestors[1] = 0b1010;  // a second root
  plan.Build(pass, {.kv_heads = 1, .head_dim = 8}, 1);
  for (const AttentionRow& row : plan.rows) EXPECT_EQ(row.shared_len, 40) << row.row;
}

TEST(AttentionPlan, EveryRowHeadAndSplitIsComputedOnce) {
  for (const int committed : {0, 63, 1023, 1024, 5000, 20000}) {
    for (const int nodes : {1, 8, 60}) {
      for (const int threads : {1, 2, 16}) {
        AttentionPlan plan;
        plan.Build(ChainPlan(committed, nodes), {.kv_heads = 3, .head_dim = 8}, threads);
        const auto covered = Coverage(plan);
        size_t expected = 0;
        for (const AttentionRow& row : plan.rows) expected += 3 * row.EndSplit();
        EXPECT_EQ(covered.size(), expected);
        EXPECT_EQ(std::set(covered.begin(), covered.end()).size(), expected);
      }
    }
  }
}

TEST(AttentionPlan, ManyRowsKeepNoPartials) {
  PassPlan pass;
  for (int i = 0; i < 600; ++i) {
    pass.tokens.push_back(0);
    pass.positions.push_back(20000 + i);
    pass.slots.push_back(i);
    pass.prefix_len.push_back(20001 + i);
    pass.ancestors.push_back(0);
  }
  pass.sequence_rows = {0, 600};
  pass.block_offsets = {0, 1300};
  pass.block_ids.resize(1300);
  AttentionPlan plan;
  plan.Build(pass, {.kv_heads = 2, .head_dim = 8}, 2);
  EXPECT_EQ(plan.num_partials, 0);
  EXPECT_TRUE(plan.merge_rows.empty());
  size_t expected = 0;
  for (const AttentionRow& row : plan.rows) expected += 2 * row.EndSplit();
  EXPECT_EQ(Coverage(plan).size(), expected);
}

TEST(AttentionPlan, LongContextsTakeAllHeadsAtOnce) {
  AttentionPlan plan;
  plan.Build(ChainPlan(16384, 8), {.kv_heads = 2, .head_dim = 64}, 2);
  ASSERT_EQ(plan.items.size(), 8u);
  EXPECT_EQ(plan.items[0].head_end, 2);
  // Each of the two threads goes on where it was.
  EXPECT_EQ(plan.items[2].split_begin, plan.items[0].split_end);
  EXPECT_EQ(plan.items[3].split_begin, plan.items[1].split_end);
  plan.Build(ChainPlan(16384, 8), {.kv_heads = 2, .head_dim = 64}, 64);
  EXPECT_EQ(plan.items.size(), 34u);
}

}  // namespace
}  // namespace talon
