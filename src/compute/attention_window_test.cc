// Attention with sliding windows and sinks: every backend against the reference, and the bits of a
// row.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compute/attention_testing.h"

namespace talon {
namespace {

using testing::AttentionTest;
using testing::ExpectBitsOfAnyPlace;
using testing::ExpectClose;
using testing::ExpectSameBitsAlone;
using testing::Layout;
using testing::MakeReferenceCases;
using testing::MixedBatch;
using testing::RandomTree;
using testing::ReferenceCase;
using testing::RunAttention;
using testing::SequenceSpec;

class WindowTest : public AttentionTest {};

std::vector<Layout> WindowLayouts() {
  std::vector<Layout> layouts;
  for (const DType dtype : testing::kKvTypes) {
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

// With sequences longer than every window.
std::vector<SequenceSpec> LongBatch(std::mt19937& random) {
  std::vector<SequenceSpec> batch = MixedBatch(random);
  batch.push_back({.base = 70000, .committed = 2500, .parents = RandomTree(9, random)});
  batch.push_back({.base = 80000, .committed = 1300, .prompt_rows = 40});
  return batch;
}

// Computed once for all backends.
const std::vector<ReferenceCase>& WindowCases() {
  static const std::vector<ReferenceCase> cases =
      MakeReferenceCases(WindowLayouts(), 21, LongBatch);
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
    ExpectSameBitsAlone(*backend_, layout, LongBatch(random));
  }
}

TEST_P(WindowTest, LayoutOfKeysDoesNotChangeBits) {
  for (const int window : {1, 50, 128, 1100}) {
    const Layout layout{.dtype = DType::kBF16, .head_dim = 8, .window = window, .sinks = true};
    ExpectBitsOfAnyPlace(*backend_, layout, 2090, {130, 1024, 1025, 1030, 2048, 2090});
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, WindowTest,
                         ::testing::ValuesIn(testing::WithDevices({"cpu1", "cpu2", "cpu3"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace talon
