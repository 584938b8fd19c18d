// Draft trees that grow on a device against the plain loops of host_beams.h, given the device's own
// rankings: the same beams, the same rows of the pass that verifies the trees.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compute/backend_testing.h"
#include "compute/host/host_beams.h"
#include "compute/host/host_token_ops.h"

namespace talon {
namespace {

using testing::DeviceArray;
using testing::DeviceMatrix;
using testing::kInfinity;
using testing::MakeBackend;

constexpr int kVocabulary = 96;  // the target's; the draft knows every third token
constexpr int kBeamHidden = 24;
constexpr int kHeadDim = 64;
constexpr KvShape kShape{.num_layers = 1,
                         .kv_heads = 1,
                         .head_dim = kHeadDim,
                         .dtype = DType::kBF16,
                         .num_blocks = 1,
                         .staging_rows = 256};

struct SearchCase {
  BeamLimits limits;
  int nodes = 8;  // nodes of the verified trees
  float min_score = -kInfinity;
};

// A pass of `trees` sequences with `rows` rows each, all unknown, below `above` nodes.
PassPlan OutlinePlan(int trees, int rows, int above) {
  PassPlan plan;
  plan.sequence_rows = {0};
  plan.block_offsets = {0};
  plan.mask_words = 2;
  for (int t = 0; t < trees; ++t) {
    for (int r = 0; r < rows; ++r) {
      plan.tokens.push_back(t + 1);
      plan.positions.push_back(100 * t + std::min(r, 9));
      plan.slots.push_back(-1);
      plan.prefix_len.push_back(0);
      // The largest possible number of ancestors.
      uint64_t mask[2] = {};
      for (int bit = 0; bit <= above + r; ++bit) mask[bit / 64] |= uint64_t{1} << (bit % 64);
      plan.ancestors.insert(plan.ancestors.end(), mask, mask + 2);
    }
    plan.nodes_before.push_back(above);
    plan.staging_first.push_back(64 * t);
    plan.sequence_rows.push_back(plan.num_rows());
    plan.block_offsets.push_back(0);
  }
  return plan;
}

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

// Tokens, positions and masks of a loaded pass, as its ops see them.
struct RowContents {
  std::vector<float> tokens;
  std::vector<float> positions;  // sines
  std::vector<float> attended;   // [rows][kHeadDim] weight of each of the pass's nodes
};

RowContents ReadRows(Backend& backend, const Pass& pass, int rows, int rows_per_tree) {
  std::vector<float> ids(kVocabulary);
  for (int i = 0; i < kVocabulary; ++i) ids[i] = static_cast<float>(i);
  const DeviceArray table(backend, ids);
  const DeviceMatrix tokens(backend, rows, 1);
  backend.Embed(pass, table.data(), DType::kF32, tokens.view());
  const DeviceArray frequency(backend, std::vector<float>{0.001f});
  const DeviceMatrix angles(backend, rows, 2);
  backend.RopeAngles(pass, frequency.floats(), 1, 1.0f, angles.view());
  Buffer k = std::move(backend.Allocate(kShape.RowBytes() * kShape.staging_rows)).value();
  Buffer v = std::move(backend.Allocate(kShape.RowBytes() * kShape.staging_rows)).value();
  Buffer block = std::move(backend.Allocate(kShape.BlockBytes())).value();  // never read
  const KvLayer layer{.k_blocks = block.data(),
                      .v_blocks = block.data(),
                      .k_staged = k.data(),
                      .v_staged = v.data()};
  const KvView kv{kShape, {&layer, 1}};
  std::vector<float> one_hot(static_cast<size_t>(rows) * kHeadDim);
  for (int r = 0; r < rows; ++r) one_hot[r * kHeadDim + r % rows_per_tree] = 1;
  const DeviceMatrix zeros(backend, rows, kHeadDim);
  const DeviceMatrix values(backend, rows, kHeadDim, one_hot);
  backend.kv_ops()->StoreKv(pass, zeros.view(), values.view(), kv, 0);
  const DeviceMatrix out(backend, rows, kHeadDim);
  backend.layer_ops()->Attention(pass, {.q = zeros.view(), .kv = kv}, out.view());
  return {tokens.Read(), angles.Read(), out.Read()};
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
      for (int i = 0; i < kVocabulary / 3; ++i) ids.push_back(3 * i + 1);
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
    std::vector<float> values(static_cast<size_t>(rows) * kVocabulary / 3);
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
  // The device's pass has the rows of the twin's plan.
  static void ExpectSameRows(Pair& pair, const Pass& pass, const PassPlan& plan, int rows_per_tree);

  std::mt19937 random_{3};
};

void BeamSearchTest::RunLevel(const SearchCase& test, int level, Pair& pair, DeviceMatrix& kept,
                              DeviceMatrix& host_kept) {
  const int rows = test.limits.trees * test.limits.width;
  PassPlan plan = BeamPlan(test.limits.trees, test.limits.width, level);
  auto pass = pair.backend->NewPass(1);
  pair.backend->LoadPass(plan, kShape, pass.get());
  const DeviceMatrix inputs(*pair.backend, rows, kBeamHidden);
  const DeviceMatrix host_inputs(*pair.host, rows, kBeamHidden);
  pair.search->Load(pass.get(), kept.view(), inputs.view());
  pair.twin->LoadBeam(host_kept.view(), host_inputs.view(), &plan);
  EXPECT_EQ(inputs.Read(), host_inputs.Read()) << "level " << level;
  ExpectSameRows(pair, *pass, plan, test.limits.width);

  pair.logits = std::make_unique<DeviceMatrix>(*pair.backend, rows, kVocabulary / 3, Logits(rows));
  const std::vector<float> values = Values(rows * kBeamHidden);
  const DeviceMatrix outputs(*pair.backend, rows, kBeamHidden, values);
  const DeviceMatrix host_outputs(*pair.host, rows, kBeamHidden, values);
  pair.search->Expand(pair.logits->view(), outputs.view(), kept.view());
  pair.twin->Expand({.rows = rows}, host_outputs.view(), host_kept.view());
}

void BeamSearchTest::ExpectSameRows(Pair& pair, const Pass& pass, const PassPlan& plan,
                                    int rows_per_tree) {
  const int rows = plan.num_rows();
  const RowContents got = ReadRows(*pair.backend, pass, rows, rows_per_tree);
  const auto wanted_pass = pair.host->NewPass(1);
  pair.host->LoadPass(plan, kShape, wanted_pass.get());
  const RowContents want = ReadRows(*pair.host, *wanted_pass, rows, rows_per_tree);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_LT(testing::MaxDifference(got.positions, want.positions), 1e-5);
  EXPECT_LT(testing::MaxDifference(got.attended, want.attended), 4e-3);
}

void BeamSearchTest::CheckTrees(const SearchCase& test, int above, Pair& pair) {
  PassPlan plan = OutlinePlan(test.limits.trees, test.nodes, above);
  auto pass = pair.backend->NewPass(1);
  pair.backend->LoadPass(plan, kShape, pass.get());
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
  ExpectSameRows(pair, *pass, plan, test.nodes);
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
      std::make_unique<DeviceMatrix>(*pair.backend, trees, kVocabulary / 3, Logits(trees));
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
