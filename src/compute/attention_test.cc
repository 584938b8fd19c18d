// Attention of every backend against the reference, and the bits of a row however its keys are laid
// out, whatever is computed beside it.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compute/attention_testing.h"

namespace talon {
namespace {

using testing::AttentionTest;
using testing::BuildPass;
using testing::Chain;
using testing::DeviceKv;
using testing::DeviceMatrix;
using testing::ExpectBitsOfAnyPlace;
using testing::ExpectClose;
using testing::ExpectSameBits;
using testing::ExpectSameBitsAlone;
using testing::kKvTypes;
using testing::kLayer;
using testing::KvImage;
using testing::Layout;
using testing::MakeBackend;
using testing::MakeReferenceCases;
using testing::MaxDifference;
using testing::MixedBatch;
using testing::Outputs;
using testing::RandomTree;
using testing::RandomValues;
using testing::ReferenceCase;
using testing::RunAttention;
using testing::SequenceSpec;
using testing::ShapeFor;

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (const DType dtype : kKvTypes) {
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

// Computed once for all backends.
const std::vector<ReferenceCase>& ReferenceCases() {
  static const std::vector<ReferenceCase> cases = MakeReferenceCases(Layouts(), 5, MixedBatch);
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
  for (const DType dtype : kKvTypes) {
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
  for (const Layout& layout : Layouts()) ExpectSameBitsAlone(*backend_, layout, MixedBatch(random));
}

// The same tokens as prompt rows in one chunk, in chunks, and as staged chains over a shorter
// committed prefix, in staging or in slots.
TEST_P(AttentionTest, LayoutOfKeysDoesNotChangeBits) {
  constexpr int kTokens = 150;
  for (const DType dtype : kKvTypes) {
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
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kI8}) {
    ExpectBitsOfAnyPlace(*backend_, {.dtype = dtype, .head_dim = 8}, 2090,
                         {1024, 1025, 1030, 2048, 2090});
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

// Quantised numbers are read exactly: as bf16, they give the bits of a bf16 cache that holds them.
TEST_P(AttentionTest, QuantisedKeysHaveTheBitsOfTheSameNumbersInBf16) {
  std::mt19937 random(12);
  std::vector<SequenceSpec> batch = MixedBatch(random);
  batch.push_back({.base = 70000, .committed = 1400, .parents = RandomTree(40, random)});
  for (const DType dtype : {DType::kF8E4M3, DType::kI8}) {
    for (const int head_dim : {16, 64, 80, 96, 128, 256}) {
      Layout layout{.dtype = dtype, .head_dim = head_dim, .group = 4};
      layout.window = head_dim == 64 ? 100 : 0;
      const Outputs quantised = RunAttention(*backend_, layout, batch);
      layout.numbers = std::exchange(layout.dtype, DType::kBF16);
      ExpectSameBits(RunAttention(*backend_, layout, batch), quantised, layout.Name());
    }
  }
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
  for (const int nodes : {1, 7, 16, 40, 56, 64}) {
    const Layout layout{.dtype = nodes == 16   ? DType::kF16
                                 : nodes == 56 ? DType::kF8E4M3
                                 : nodes == 64 ? DType::kI8
                                               : DType::kBF16,
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
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kI8}) {
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

INSTANTIATE_TEST_SUITE_P(Backends, AttentionTest,
                         ::testing::ValuesIn(testing::WithDevices({"cpu1", "cpu2", "cpu3"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace talon
