// Attention of every backend against the reference, and the bits of a row however its keys are laid
// out, whatever is computed beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compute/backend.h"
#include "compute/backend_testing.h"
#include "compute/kv_testing.h"

namespace talon {
namespace {

using testing::BuildPass;
using testing::Chain;
using testing::DeviceKv;
using testing::DeviceMatrix;
using testing::KvImage;
using testing::LargestMagnitude;
using testing::MakeBackend;
using testing::MaxDifference;
using testing::RandomTree;
using testing::RandomValues;
using testing::SameBits;
using testing::SequenceSpec;

struct Layout {
  DType dtype = DType::kF32;
  int head_dim = 64;
  int kv_heads = 2;
  int group = 2;
  int block_size = 16;
  bool partial = false;  // every sequence has its own list for each (layer, kv head)
  int window = 0;
  bool sinks = false;

  int cols() const { return head_dim * kv_heads * group; }
  std::string Name() const {
    return fmt::format("{} head_dim {} kv_heads {} group {} block {}{} window {}{}",
                       DTypeName(dtype), head_dim, kv_heads, group, block_size,
                       partial ? " partial" : "", window, sinks ? " sinks" : "");
  }
};

KvShape ShapeFor(const Layout& layout, const std::vector<SequenceSpec>& sequences) {
  KvShape shape{.num_layers = 2,
                .kv_heads = layout.kv_heads,
                .head_dim = layout.head_dim,
                .block_size = layout.block_size,
                .dtype = layout.dtype};
  for (const SequenceSpec& spec : sequences) {
    const int nodes = static_cast<int>(spec.parents.size());
    shape.num_blocks += layout.kv_heads * (spec.committed / layout.block_size + 1) + nodes + 2;
    shape.staging_rows += spec.prompt_rows + nodes;
  }
  return shape;
}

// Queries are named by what their row is: the same token has the same query in every layout.
std::vector<float> QueriesOf(const PassPlan& plan, int cols) {
  std::vector<float> queries;
  for (const int32_t token : plan.tokens) {
    const std::vector<float> row = RandomValues(cols, 777777 + token);
    queries.insert(queries.end(), row.begin(), row.end());
  }
  return queries;
}

using Outputs = std::map<int32_t, std::vector<float>>;  // by the row's content

Outputs RunAttention(Backend& backend, const Layout& layout, std::vector<SequenceSpec> sequences,
                     uint32_t seed = 1) {
  constexpr int kLayer = 1;
  std::mt19937 random(seed);
  for (SequenceSpec& spec : sequences) spec.partial |= layout.partial && spec.prompt_rows == 0;
  const KvShape shape = ShapeFor(layout, sequences);
  KvImage image(shape, kLayer);
  const PassPlan plan = BuildPass(sequences, random, &image);
  const DeviceKv kv(backend, image);
  const DeviceMatrix q(backend, plan.num_rows(), layout.cols(), QueriesOf(plan, layout.cols()));
  const DeviceMatrix out(backend, plan.num_rows(), layout.cols());
  const auto pass = backend.NewPass(layout.kv_heads * layout.group);
  backend.LoadPass(plan, shape, pass.get());
  const float scale = 1.0f / std::sqrt(static_cast<float>(layout.head_dim));
  const testing::DeviceArray sinks(backend, RandomValues(layout.kv_heads * layout.group, 99, 4.0f));
  backend.layer_ops()->Attention(*pass,
                                 {.q = q.view(),
                                  .kv = kv.view(),
                                  .layer = kLayer,
                                  .scale = scale,
                                  .window = layout.window,
                                  .sinks = layout.sinks ? sinks.floats() : nullptr},
                                 out.view());
  Outputs outputs;
  const std::vector<float> values = out.Read();
  for (int r = 0; r < plan.num_rows(); ++r) {
    outputs[plan.tokens[r]] = testing::RowOf(values, r, layout.cols());
  }
  return outputs;
}

// Relative to the largest value: sums of head_dim products in float32 move a score by its magnitude
// (about |q| |k| / sqrt(head_dim), here sqrt(head_dim)) times a few epsilons; kernels that round
// queries and probabilities to 16 bits do so by 2^-9 (bf16) or 2^-12 (f16) of the same.
double Tolerance(const Layout& layout, bool rounds_to_cache_type) {
  double unit = layout.dtype == DType::kBF16 ? 1.0 / 512 : 1.0 / (1 << 22);
  if (layout.dtype == DType::kF16 && rounds_to_cache_type) unit = 1.0 / (1 << 12);
  return 4 * unit * std::sqrt(static_cast<double>(layout.head_dim));
}

void ExpectClose(const Outputs& expected, const Outputs& actual, const Layout& layout,
                 const std::string& backend) {
  for (const auto& [content, row] : expected) {
    ASSERT_TRUE(actual.contains(content));
    const double bound =
        Tolerance(layout, testing::IsDevice(backend)) * std::max(1.0, LargestMagnitude(row));
    EXPECT_LE(MaxDifference(row, actual.at(content)), bound)
        << layout.Name() << " content " << content;
  }
}

// Rows present in both must agree to the bit.
void ExpectSameBits(const Outputs& expected, const Outputs& actual, const std::string& what) {
  int compared = 0;
  for (const auto& [content, row] : actual) {
    const auto found = expected.find(content);
    if (found == expected.end()) continue;
    ++compared;
    EXPECT_TRUE(SameBits(found->second, row)) << what << ", content " << content;
  }
  EXPECT_GT(compared, 0) << what;
}

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    layouts.push_back({.dtype = dtype});
    layouts.push_back({.dtype = dtype, .head_dim = 8, .kv_heads = 1, .group = 1, .block_size = 8});
    layouts.push_back({.dtype = dtype, .head_dim = 80, .group = 3, .block_size = 64});
    layouts.push_back({.dtype = dtype, .head_dim = 128, .group = 4, .block_size = 32});
    layouts.push_back({.dtype = dtype, .head_dim = 21, .kv_heads = 3, .partial = true});
    layouts.push_back({.dtype = dtype, .head_dim = 16, .group = 70, .partial = true});
    layouts.push_back({.dtype = dtype, .head_dim = 264, .group = 1, .block_size = 8});
  }
  return layouts;
}

// A chain of `trunk` nodes with a random tree under its end.
std::vector<int> TrunkAndTree(int trunk, int nodes, std::mt19937& random) {
  std::vector<int> parents = Chain(trunk);
  for (const int parent : RandomTree(nodes, random)) parents.push_back(trunk + parent);
  return parents;
}

std::vector<SequenceSpec> MixedBatch(std::mt19937& random) {
  std::vector<SequenceSpec> batch;
  batch.push_back({.base = 0, .committed = 75, .parents = RandomTree(9, random)});
  batch.push_back({.base = 10000, .committed = 130, .prompt_rows = 70});
  batch.push_back({.base = 20000, .committed = 0, .parents = RandomTree(5, random)});
  batch.push_back({.base = 30000, .committed = 7, .prompt_rows = 7});
  batch.push_back({.base = 40000, .committed = 64, .parents = {-1}});
  batch.push_back(
      {.base = 50000, .committed = 33, .parents = RandomTree(17, random), .in_slots = true});
  batch.push_back(
      {.base = 60000, .committed = 90, .parents = TrunkAndTree(30, 12, random), .tail = 30});
  batch.push_back({.base = 61000,
                   .committed = 141,
                   .parents = TrunkAndTree(75, 20, random),
                   .tail = 75,
                   .partial = true});
  batch.push_back({.base = 62000, .committed = 90, .parents = TrunkAndTree(40, 9, random)});
  return batch;
}

class AttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam());
};

struct ReferenceCase {
  Layout layout;
  std::vector<SequenceSpec> batch;
  Outputs outputs;  // the slow twin's
};

// Computed once for all backends.
const std::vector<ReferenceCase>& ReferenceCases() {
  static const std::vector<ReferenceCase> cases = [] {
    const auto reference = MakeBackend("reference");
    std::mt19937 random(5);
    std::vector<ReferenceCase> made;
    for (const Layout& layout : Layouts()) {
      const std::vector<SequenceSpec> batch = MixedBatch(random);
      made.push_back({layout, batch, RunAttention(*reference, layout, batch)});
    }
    return made;
  }();
  return cases;
}

TEST_P(AttentionTest, MatchesReferenceOnMixedBatches) {
  for (const auto& [layout, batch, expected] : ReferenceCases()) {
    ExpectClose(expected, RunAttention(*backend_, layout, batch), layout, GetParam());
  }
}

TEST_P(AttentionTest, MatchesReferenceOverManySplits) {
  const auto reference = MakeBackend("reference");
  std::mt19937 random(6);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Layout layout{.dtype = dtype, .head_dim = 16};
    const std::vector<SequenceSpec> batch = {
        {.base = 0, .committed = 3000, .parents = RandomTree(4, random)},
        {.base = 10000, .committed = 1023, .parents = RandomTree(3, random)},
        {.base = 20000, .committed = 2060, .prompt_rows = 40}};
    ExpectClose(RunAttention(*reference, layout, batch), RunAttention(*backend_, layout, batch),
                layout, GetParam());
  }
}

TEST_P(AttentionTest, RowBesideOthersHasTheBitsOfTheRowAlone) {
  std::mt19937 random(7);
  for (const Layout& layout : Layouts()) {
    const std::vector<SequenceSpec> batch = MixedBatch(random);
    const Outputs together = RunAttention(*backend_, layout, batch);
    for (const SequenceSpec& spec : batch) {
      ExpectSameBits(together, RunAttention(*backend_, layout, {spec}, 99), layout.Name());
    }
  }
}

// The same tokens as prompt rows in one chunk, in chunks, and as staged chains over a shorter
// committed prefix, in staging or in slots.
TEST_P(AttentionTest, LayoutOfKeysDoesNotChangeBits) {
  constexpr int kTokens = 150;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Layout layout{.dtype = dtype, .head_dim = 24, .group = 3};
    const Outputs whole =
        RunAttention(*backend_, layout, {{.committed = kTokens, .prompt_rows = kTokens}});
    for (const int chunk : {1, 7, 64}) {
      for (int end = kTokens; end > kTokens - 20; end -= chunk) {
        const SequenceSpec part{.committed = end, .prompt_rows = chunk};
        ExpectSameBits(whole, RunAttention(*backend_, layout, {part}, end), "chunk");
      }
    }
    for (const int staged : {1, 2, 9, 70}) {
      SequenceSpec chain{.committed = kTokens - staged, .parents = Chain(staged)};
      ExpectSameBits(whole, RunAttention(*backend_, layout, {chain}), "staged");
      chain.in_slots = true;
      ExpectSameBits(whole, RunAttention(*backend_, layout, {chain}), "staged in slots");
      chain.in_slots = false;
      chain.tail = staged - 1;
      ExpectSameBits(whole, RunAttention(*backend_, layout, {chain}), "tail");
      chain.tail = staged / 2;
      chain.partial = true;
      ExpectSameBits(whole, RunAttention(*backend_, layout, {chain}), "tail, list per head");
    }
  }
}

TEST_P(AttentionTest, LayoutOfKeysDoesNotChangeBitsAcrossSplits) {
  constexpr int kTokens = 2090;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Layout layout{.dtype = dtype, .head_dim = 8};
    const Outputs whole =
        RunAttention(*backend_, layout, {{.committed = kTokens, .prompt_rows = kTokens}});
    for (const int end : {1024, 1025, 1030, 2048, kTokens}) {
      const SequenceSpec part{.committed = end, .prompt_rows = 5};
      ExpectSameBits(whole, RunAttention(*backend_, layout, {part}, end), "chunk");
      const SequenceSpec chain{.committed = end - 8, .parents = Chain(8)};
      ExpectSameBits(whole, RunAttention(*backend_, layout, {chain}, end), "staged");
      const SequenceSpec tail{
          .committed = end - 100, .parents = Chain(100), .tail = 95, .partial = true};
      ExpectSameBits(whole, RunAttention(*backend_, layout, {tail}, end), "tail");
    }
  }
}

TEST_P(AttentionTest, SiblingsDoNotChangeBits) {
  const Layout layout{.dtype = DType::kBF16, .head_dim = 32};
  const Outputs chain = RunAttention(*backend_, layout, {{.committed = 61, .parents = Chain(4)}});
  // Nodes 0, 1, 3, 5 are the chain; the others hang beside it.
  const SequenceSpec tree{.committed = 61,
                          .parents = {-1, 0, 0, 1, 2, 3, 3},
                          .contents = {61, 62, 900, 63, 901, 64, 902}};
  const Outputs branched = RunAttention(*backend_, layout, {tree});
  ExpectSameBits(chain, branched, "siblings");
}

TEST_P(AttentionTest, ManyNodesUseSeveralMaskWords) {
  std::mt19937 random(8);
  const auto reference = MakeBackend("reference");
  const Layout layout{.head_dim = 16, .group = 1};
  const std::vector<SequenceSpec> batch = {{.committed = 20, .parents = RandomTree(150, random)}};
  ExpectClose(RunAttention(*reference, layout, batch), RunAttention(*backend_, layout, batch),
              layout, GetParam());
}

// So many queries that a device with kernels for them takes each of these: for a few queries, for a
// tile of many, for more than one tile.
TEST_P(AttentionTest, MatchesReferenceForAnyNumberOfQueries) {
  std::mt19937 random(11);
  const auto reference = MakeBackend("reference");
  for (const int nodes : {1, 7, 16, 40}) {
    const Layout layout{.dtype = nodes == 16 ? DType::kF16 : DType::kBF16,
                        .head_dim = nodes == 16  ? 80
                                    : nodes == 7 ? 64
                                                 : 128,
                        .kv_heads = 1,
                        .group = 4,
                        .block_size = nodes == 40 ? 32 : 16,
                        .partial = nodes == 40};
    const std::vector<SequenceSpec> batch = {
        {.base = 0, .committed = 500 + nodes, .parents = RandomTree(nodes, random)},
        {.base = 20000, .committed = 200 + nodes, .prompt_rows = nodes}};
    ExpectClose(RunAttention(*reference, layout, batch), RunAttention(*backend_, layout, batch),
                layout, GetParam());
  }
}

TEST_P(AttentionTest, ThreadCountDoesNotChangeBits) {
  std::mt19937 random(9);
  const auto one = MakeBackend(testing::OnOneThread(GetParam()));
  std::vector<SequenceSpec> batch = MixedBatch(random);
  batch.push_back({.base = 70000, .committed = 5000, .parents = RandomTree(3, random)});
  batch.push_back({.base = 80000, .committed = 1500, .parents = RandomTree(3, random)});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Layout layout{.dtype = dtype, .head_dim = 16};
    ExpectSameBits(RunAttention(*one, layout, batch), RunAttention(*backend_, layout, batch),
                   layout.Name());
  }
}

// Large scores: weights underflow to zero, sums stay finite.
TEST_P(AttentionTest, ExtremeScoresStayFinite) {
  const auto reference = MakeBackend("reference");
  const Layout layout{.head_dim = 16, .kv_heads = 1, .group = 1};
  const std::vector<SequenceSpec> batch = {{.committed = 200, .prompt_rows = 3}};
  constexpr int kLayer = 1;
  const auto run = [&](Backend& backend) {
    std::mt19937 random(10);
    const KvShape shape = ShapeFor(layout, batch);
    KvImage image(shape, kLayer);
    const PassPlan plan = BuildPass(batch, random, &image);
    const DeviceKv kv(backend, image);
    const DeviceMatrix q(backend, 3, 16, RandomValues(3 * 16, 3, 1000.0f));
    const DeviceMatrix out(backend, 3, 16);
    const auto pass = backend.NewPass(layout.kv_heads * layout.group);
    backend.LoadPass(plan, shape, pass.get());
    backend.layer_ops()->Attention(
        *pass, {.q = q.view(), .kv = kv.view(), .layer = kLayer, .scale = 1.0f}, out.view());
    return out.Read();
  };
  EXPECT_LE(MaxDifference(run(*reference), run(*backend_)), 0.02);
}

// Sliding windows and sinks.
class WindowTest : public AttentionTest {};

std::vector<Layout> WindowLayouts() {
  std::vector<Layout> layouts;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    layouts.push_back({.dtype = dtype, .window = 1, .sinks = true});
    layouts.push_back({.dtype = dtype, .head_dim = 8, .kv_heads = 1, .block_size = 8, .window = 3});
    layouts.push_back({.dtype = dtype, .head_dim = 16, .group = 3, .window = 24, .sinks = true});
    layouts.push_back({.dtype = dtype, .group = 8, .window = 128, .sinks = true});
    layouts.push_back({.dtype = dtype, .head_dim = 16, .window = 1100});
    layouts.push_back({.dtype = dtype, .head_dim = 16, .sinks = true});
    layouts.push_back({.dtype = dtype, .head_dim = 16, .partial = true, .window = 20});
  }
  return layouts;
}

// Computed once for all backends.
const std::vector<ReferenceCase>& WindowCases() {
  static const std::vector<ReferenceCase> cases = [] {
    const auto reference = MakeBackend("reference");
    std::mt19937 random(21);
    std::vector<ReferenceCase> made;
    for (const Layout& layout : WindowLayouts()) {
      std::vector<SequenceSpec> batch = MixedBatch(random);
      batch.push_back({.base = 70000, .committed = 2500, .parents = RandomTree(9, random)});
      batch.push_back({.base = 80000, .committed = 1300, .prompt_rows = 40});
      made.push_back({layout, batch, RunAttention(*reference, layout, batch)});
    }
    return made;
  }();
  return cases;
}

TEST_P(WindowTest, MatchesReference) {
  for (const auto& [layout, batch, expected] : WindowCases()) {
    ExpectClose(expected, RunAttention(*backend_, layout, batch), layout, GetParam());
  }
}

TEST_P(WindowTest, RowBesideOthersHasTheBitsOfTheRowAlone) {
  std::mt19937 random(22);
  for (const Layout& layout : WindowLayouts()) {
    std::vector<SequenceSpec> batch = MixedBatch(random);
    batch.push_back({.base = 70000, .committed = 2500, .parents = RandomTree(9, random)});
    const Outputs together = RunAttention(*backend_, layout, batch);
    for (const SequenceSpec& spec : batch) {
      ExpectSameBits(together, RunAttention(*backend_, layout, {spec}, 99), layout.Name());
    }
  }
}

TEST_P(WindowTest, LayoutOfKeysDoesNotChangeBits) {
  constexpr int kTokens = 2090;
  for (const int window : {1, 50, 128, 1100}) {
    const Layout layout{.dtype = DType::kBF16, .head_dim = 8, .window = window, .sinks = true};
    const Outputs whole =
        RunAttention(*backend_, layout, {{.committed = kTokens, .prompt_rows = kTokens}});
    for (const int end : {130, 1024, 1025, 1030, 2048, kTokens}) {
      const SequenceSpec part{.committed = end, .prompt_rows = 5};
      ExpectSameBits(whole, RunAttention(*backend_, layout, {part}, end), "chunk");
      const SequenceSpec chain{.committed = end - 8, .parents = Chain(8)};
      ExpectSameBits(whole, RunAttention(*backend_, layout, {chain}, end), "staged");
      const SequenceSpec tail{
          .committed = end - 100, .parents = Chain(100), .tail = 95, .partial = true};
      ExpectSameBits(whole, RunAttention(*backend_, layout, {tail}, end), "tail");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, WindowTest,
                         ::testing::ValuesIn(testing::WithDevices({"cpu1", "cpu2", "cpu3"})),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Backends, AttentionTest,
                         ::testing::ValuesIn(testing::WithDevices({"cpu1", "cpu2", "cpu3"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace talon
