// Best-first trees that grow on a device against the plain loops of host_best_first.h, given the
// device's own rankings: the same rows of the pass that verifies the trees.
#include <gtest/gtest.h>

#include <random>

#include "compute/backend_testing.h"
#include "compute/host/host_best_first.h"
#include "compute/host/host_token_ops.h"
#include "compute/trees/tree_testing.h"

namespace talon {
namespace {

using testing::DeviceMatrix;
using testing::ExpectSameRows;
using testing::kInfinity;
using testing::kTreeShape;
using testing::MakeBackend;
using testing::OutlinePlan;

constexpr int kDraftTokens = 32;  // every third of the target's

struct BlockCase {
  BestFirstLimits limits;
  float min_score = -kInfinity;
  bool has_nan = false;
};

class BestFirstSearchTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Run(const BlockCase& test);
  // Few values, so that scores tie.
  std::vector<float> Logits(const BlockCase& test, int rows) {
    std::vector<float> values(static_cast<size_t>(rows) * kDraftTokens);
    for (float& value : values) value = 0.5f * static_cast<float>(random_() % 8);
    for (size_t i = 0; i < values.size(); i += 7) {
      if (random_() % 4 == 0) values[i] = -kInfinity;
    }
    if (test.has_nan) values[kDraftTokens + 3] = std::nanf("");
    return values;
  }
  std::mt19937 random_{5};
};

void BestFirstSearchTest::Run(const BlockCase& test) {
  const auto backend = MakeBackend(GetParam());
  if (auto* own = dynamic_cast<HostTokenOps*>(backend->token_ops())) own->GrowTreesAhead(true);
  std::vector<int32_t> ids;
  for (int i = 0; i < kDraftTokens; ++i) ids.push_back(3 * i + 1);
  const auto search = std::move(backend->token_ops()->NewBestFirstSearch(test.limits, ids)).value();
  ASSERT_NE(search, nullptr);
  const auto& [trees, nodes, depth, width] = test.limits;
  for (const int above : {0, 5}) {  // the second time over what the first left
    // A pass for every two trees, the last of which is shorter.
    std::vector<TreePlace> places;
    for (int first = 0; first < trees; first += 2) {
      std::vector<BlockRows> blocks;
      int rows = 0;
      for (int tree = std::min(first + 1, trees - 1); tree >= first; --tree) {
        const int levels = std::max(1, depth - tree);
        blocks.push_back({.tree = tree, .first = rows, .depth = levels});
        rows += levels;
        places.push_back({.tree = tree,
                          .levels = levels,
                          .root_row = tree * nodes,
                          .nodes = nodes,
                          .above = above,
                          .position = 100 * tree,
                          .min_score = test.min_score});
      }
      const DeviceMatrix logits(*backend, rows, kDraftTokens, Logits(test, rows));
      search->Rank(blocks, logits.view());
    }
    PassPlan plan = OutlinePlan(trees, nodes, above);
    const auto pass = backend->NewPass(1);
    backend->LoadPass(plan, kTreeShape, pass.get());
    search->LoadTrees(pass.get(), places);
    const std::span<const TopKEntry> rankings = search->Read();
    const auto each = static_cast<size_t>(depth) * width;
    ASSERT_EQ(rankings.size(), each * trees);
    for (const TreePlace& place : places) {
      PlaceBestFirstTree(rankings.subspan(place.tree * each, each), width, ids, place, &plan);
    }
    ExpectSameRows(*backend, *pass, plan, nodes);
  }
}

TEST_P(BestFirstSearchTest, OneTree) {
  Run({.limits = {.trees = 1, .nodes = 16, .depth = 7, .width = 4}});
}
TEST_P(BestFirstSearchTest, SeveralTrees) {
  Run({.limits = {.trees = 3, .nodes = 12, .depth = 5, .width = 6}});
}
TEST_P(BestFirstSearchTest, AChain) {
  Run({.limits = {.trees = 2, .nodes = 6, .depth = 5, .width = 1}});
}
TEST_P(BestFirstSearchTest, ManyNodes) {
  Run({.limits = {.trees = 1, .nodes = 58, .depth = 15, .width = 8}});
}
TEST_P(BestFirstSearchTest, RowsThatNoDraftFills) {
  Run({.limits = {.trees = 2, .nodes = 20, .depth = 2, .width = 3}});
  Run({.limits = {.trees = 2, .nodes = 30, .depth = 6, .width = 4}, .min_score = -6});
  Run({.limits = {.trees = 1, .nodes = 10, .depth = 3, .width = 3}, .has_nan = true});
}

INSTANTIATE_TEST_SUITE_P(Backends, BestFirstSearchTest,
                         ::testing::ValuesIn(testing::WithDevices({"reference", "cpu2"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace talon
