// Draft trees that grow on a device against the plain loops of host_beams.h, given the device's own
// rankings: the same beams, the same rows of the pass that verifies the trees.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compute/backend_testing.h"
#include "compute/host/host_beams.h"
#include "compute/host/host_token_ops.h"
#include "compute/trees/tree_testing.h"

namespace talon {
namespace {

using testing::DeviceMatrix;
using testing::ExpectSameRows;
using testing::kInfinity;
using testing::kTreeShape;
using testing::kTreeVocabulary;
using testing::MakeBackend;
using testing::OutlinePlan;

constexpr int kBeamHidden = 24;

struct SearchCase {
  BeamLimits limits;
  int nodes = 8;  // nodes of the verified trees
  float min_score = -kInfinity;
};

// The pass of a level's beam: nodes are unknown, but not how deep they are.
PassPlan BeamPlan(int trees, int width, int level) {
  PassPlan plan = OutlinePlan(trees, width, (level - 1) * width);
  for (int r = 0; r < plan.num_rows(); ++r) {
    uint64_t mask[2] = {};
    for (int at = 0; at < level; ++at) {
      const int node = at * width + (at + 1 == level ? r % width : 0);
      mask[node / 64] |= uint64_t{1} << (node % 64);
    }
    std::copy_n(mask, 2, plan.ancestors.begin() + 2 * r);
  }
  return plan;
}

class BeamSearchTest : public ::testing::TestWithParam<std::string> {
 protected:
  // A device and the host's twin of its search, which takes the device's rankings.
  struct Pair {
    Pair(const std::string& name, const BeamLimits& limits)
        : backend(MakeBackend(name)), host(MakeBackend("reference")) {
      if (auto* own = dynamic_cast<HostTokenOps*>(backend->token_ops())) {
        own->GrowTreesAhead(true);
      }
      for (int i = 0; i < kTreeVocabulary / 3; ++i) ids.push_back(3 * i + 1);
      search = std::move(backend->token_ops()->NewBeamSearch(limits, ids)).value();
      twin = std::make_unique<HostBeams>(limits, ids,
                                         [this](MatrixView, int k, std::span<TopKEntry> out) {
                                           backend->token_ops()->TopK(logits->view(), k, out);
                                         });
    }
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Backend> host;
    std::vector<int32_t> ids;
    std::unique_ptr<BeamSearch> search;
    std::unique_ptr<HostBeams> twin;
    std::unique_ptr<DeviceMatrix> logits;  // logits that both rank now
  };

  // Few values, so that scores tie.
  std::vector<float> Logits(int rows) {
    std::vector<float> values(static_cast<size_t>(rows) * kTreeVocabulary / 3);
    for (float& value : values) value = 0.5f * static_cast<float>(random_() % 8);
    for (size_t i = 0; i < values.size(); i += 7) {
      if (random_() % 4 == 0) values[i] = -kInfinity;
    }
    return values;
  }
  std::vector<float> Values(int count) { return testing::RandomValues(count, random_()); }

  void Run(const SearchCase& test);
  void RunLevel(const SearchCase& test, int level, Pair& pair, DeviceMatrix& kept,
                DeviceMatrix& host_kept);
  void CheckTrees(const SearchCase& test, int above, Pair& pair);

  std::mt19937 random_{3};
};

void BeamSearchTest::RunLevel(const SearchCase& test, int level, Pair& pair, DeviceMatrix& kept,
                              DeviceMatrix& host_kept) {
  const int rows = test.limits.trees * test.limits.width;
  PassPlan plan = BeamPlan(test.limits.trees, test.limits.width, level);
  auto pass = pair.backend->NewPass(1);
  pair.backend->LoadPass(plan, kTreeShape, pass.get());
  const DeviceMatrix inputs(*pair.backend, rows, kBeamHidden);
  const DeviceMatrix host_inputs(*pair.host, rows, kBeamHidden);
  pair.search->Load(pass.get(), kept.view(), inputs.view());
  pair.twin->LoadBeam(host_kept.view(), host_inputs.view(), &plan);
  EXPECT_EQ(inputs.Read(), host_inputs.Read()) << "level " << level;
  ExpectSameRows(*pair.backend, *pass, plan, test.limits.width);

  pair.logits =
      std::make_unique<DeviceMatrix>(*pair.backend, rows, kTreeVocabulary / 3, Logits(rows));
  const std::vector<float> values = Values(rows * kBeamHidden);
  const DeviceMatrix outputs(*pair.backend, rows, kBeamHidden, values);
  const DeviceMatrix host_outputs(*pair.host, rows, kBeamHidden, values);
  pair.search->Expand(pair.logits->view(), outputs.view(), kept.view());
  pair.twin->Expand({.rows = rows}, host_outputs.view(), host_kept.view());
}

void BeamSearchTest::CheckTrees(const SearchCase& test, int above, Pair& pair) {
  PassPlan plan = OutlinePlan(test.limits.trees, test.nodes, above);
  auto pass = pair.backend->NewPass(1);
  pair.backend->LoadPass(plan, kTreeShape, pass.get());
  std::vector<TreePlace> places;
  for (int t = test.limits.trees - 1; t >= 0; --t) {
    places.push_back({.tree = t,
                      .levels = std::max(1, test.limits.levels - t),
                      .root_row = t * test.nodes,
                      .nodes = test.nodes,
                      .above = above,
                      .position = 100 * t,
                      .min_score = test.min_score});
    pair.twin->LoadTree(places.back(), &plan);
  }
  pair.search->LoadTrees(pass.get(), places);
  ExpectSameRows(*pair.backend, *pass, plan, test.nodes);
}

void BeamSearchTest::Run(const SearchCase& test) {
  Pair pair(GetParam(), test.limits);
  ASSERT_NE(pair.search, nullptr);
  const int trees = test.limits.trees;
  const int most = trees * (1 + test.limits.width * test.limits.levels);
  DeviceMatrix kept(*pair.backend, most, kBeamHidden);
  DeviceMatrix host_kept(*pair.host, most, kBeamHidden);
  std::vector<int32_t> slots;
  std::vector<BeamRoot> roots;
  for (int t = 0; t < trees; ++t) {
    slots.push_back((t + 1) % trees);
    roots.push_back({.slot = t, .first_row = trees + t * test.limits.width * test.limits.levels});
  }
  pair.logits =
      std::make_unique<DeviceMatrix>(*pair.backend, trees, kTreeVocabulary / 3, Logits(trees));
  const std::vector<float> values = Values(trees * kBeamHidden);
  const DeviceMatrix outputs(*pair.backend, trees, kBeamHidden, values);
  const DeviceMatrix host_outputs(*pair.host, trees, kBeamHidden, values);
  pair.search->RankRoots(slots, pair.logits->view(), outputs.view(), kept.view());
  pair.twin->RankRoots(slots, {.rows = trees}, host_outputs.view(), host_kept.view());
  pair.search->Start(roots);
  pair.twin->Start(roots);
  for (int level = 1; level < test.limits.levels; ++level) {
    RunLevel(test, level, pair, kept, host_kept);
  }
  EXPECT_EQ(kept.Read(), host_kept.Read());
  for (const int above : {0, 5}) CheckTrees(test, above, pair);
  const std::span<const TopKEntry> got = pair.search->Read();
  const std::span<const TopKEntry> want = pair.twin->rankings();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].id, want[i].id) << i;
    EXPECT_EQ(got[i].log_prob, want[i].log_prob) << i;
  }
}

TEST_P(BeamSearchTest, OneTree) { Run({.limits = {.trees = 1, .width = 4, .levels = 5}}); }
TEST_P(BeamSearchTest, SeveralTrees) {
  Run({.limits = {.trees = 3, .width = 4, .levels = 3}, .nodes = 12});
}
TEST_P(BeamSearchTest, ALevelAlone) {
  Run({.limits = {.trees = 2, .width = 6, .levels = 1}, .nodes = 4});
}
TEST_P(BeamSearchTest, AChain) {
  Run({.limits = {.trees = 2, .width = 1, .levels = 6}, .nodes = 7});
}
TEST_P(BeamSearchTest, ManyCandidates) {
  Run({.limits = {.trees = 1, .width = 10, .levels = 6}, .nodes = 58});
}
TEST_P(BeamSearchTest, RowsThatNoDraftFills) {
  Run({.limits = {.trees = 2, .width = 3, .levels = 2}, .nodes = 20});
  Run({.limits = {.trees = 2, .width = 4, .levels = 4}, .nodes = 30, .min_score = -7});
}

INSTANTIATE_TEST_SUITE_P(Backends, BeamSearchTest,
                         ::testing::ValuesIn(testing::WithDevices({"reference", "cpu2"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace talon
