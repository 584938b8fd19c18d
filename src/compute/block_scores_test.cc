// Key summaries and block scores of every backend, against their definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "compute/backend.h"
#include "compute/backend_testing.h"
#include "compute/host/host_memory.h"
#include "compute/kv/kv_testing.h"

namespace talon {
namespace {

using testing::DeviceKv;
using testing::DeviceMatrix;
using testing::kInfinity;
using testing::kLayer;
using testing::KvImage;
using testing::MakeBackend;
using testing::MaxDifference;
using testing::RandomValues;
using testing::SameBits;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct ScoreLayout {
  DType dtype = DType::kF32;
  int head_dim = 64;
  int kv_heads = 2;
  int group = 2;
  int block_size = 16;
  int blocks = 9;

  int cols() const { return head_dim * kv_heads * group; }
  KvShape Shape() const {
    return {.num_layers = 2,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .block_size = block_size,
            .dtype = dtype,
            .num_blocks = blocks,
            .staging_rows = 1,
            .key_summaries = true};
  }
};

std::vector<ScoreLayout> ScoreLayouts() {
  std::vector<ScoreLayout> layouts;
  for (const DType dtype : testing::kKvTypes) {
    layouts.push_back({.dtype = dtype});
    layouts.push_back({.dtype = dtype, .head_dim = 8, .kv_heads = 1, .group = 1, .block_size = 8});
    layouts.push_back({.dtype = dtype, .head_dim = 21, .kv_heads = 3, .group = 5, .blocks = 140});
    layouts.push_back({.dtype = dtype, .head_dim = 128, .group = 4, .block_size = 64});
  }
  return layouts;
}

// Every slot of the image holds the token whose content is its own index. Made once for each
// layout.
const KvImage& FilledImage(const KvShape& shape) {
  static std::map<std::array<int, 5>, std::unique_ptr<const KvImage>> images;
  auto& known = images[{static_cast<int>(shape.dtype), shape.kv_heads, shape.head_dim,
                        shape.block_size, shape.num_blocks}];
  if (known != nullptr) return *known;
  auto image = std::make_unique<KvImage>(shape, kLayer);
  for (int slot = 0; slot < shape.num_blocks * shape.block_size; ++slot) {
    for (int head = 0; head < shape.kv_heads; ++head) image->WriteSlot(slot, head, slot);
  }
  known = std::move(image);
  return *known;
}

std::vector<int32_t> Reversed(int count) {
  std::vector<int32_t> blocks(count);
  for (int i = 0; i < count; ++i) blocks[i] = count - 1 - i;
  return blocks;
}

struct Summaries {
  std::vector<float> largest, smallest, norms;
};

Summaries ReadSummaries(Backend& backend, const DeviceKv& kv) {
  const KvShape& shape = kv.view().shape;
  const KvLayer& arrays = kv.view().layers[kLayer];
  const int64_t vectors = int64_t{shape.num_blocks} * shape.kv_heads;
  Summaries read{.largest = kv.ReadSummary(backend, arrays.key_max),
                 .smallest = kv.ReadSummary(backend, arrays.key_min),
                 .norms = std::vector<float>(vectors)};
  backend.CopyOut(read.norms.data(), arrays.key_norm, vectors * sizeof(float));
  return read;
}

class BlockScoresTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam());
};

TEST_P(BlockScoresTest, SummariesAreTheExtremesAndTheMeanNorm) {
  for (const ScoreLayout& layout : ScoreLayouts()) {
    const KvShape shape = layout.Shape();
    const KvImage& image = FilledImage(shape);
    const DeviceKv kv(*backend_, image);
    backend_->kv_ops()->SummariseBlocks(kv.view(), Reversed(shape.num_blocks));
    const Summaries read = ReadSummaries(*backend_, kv);
    for (int block = 0; block < shape.num_blocks; ++block) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        std::vector<float> largest(shape.head_dim, -kInfinity);
        std::vector<float> smallest(shape.head_dim, kInfinity);
        double norms = 0;
        for (int i = 0; i < shape.block_size; ++i) {
          const auto key = image.Values(block * shape.block_size + i, head, false);
          double squares = 0;
          for (int d = 0; d < shape.head_dim; ++d) {
            largest[d] = std::max(largest[d], key[d]);
            smallest[d] = std::min(smallest[d], key[d]);
            squares += double{key[d]} * key[d];
          }
          norms += std::sqrt(squares);
        }
        const int index = block * shape.kv_heads + head;
        EXPECT_TRUE(SameBits(testing::RowOf(read.largest, index, shape.head_dim), largest));
        EXPECT_TRUE(SameBits(testing::RowOf(read.smallest, index, shape.head_dim), smallest));
        EXPECT_NEAR(read.norms[index], norms / shape.block_size, 1e-5 * read.norms[index]);
      }
    }
  }
}

TEST_P(BlockScoresTest, OnlyTheBlocksAskedForAreSummarised) {
  const KvShape shape = ScoreLayout{}.Shape();
  const DeviceKv kv(*backend_, FilledImage(shape));
  backend_->kv_ops()->SummariseBlocks(kv.view(), std::vector<int32_t>{2, 5});
  const Summaries read = ReadSummaries(*backend_, kv);
  for (int block = 0; block < shape.num_blocks; ++block) {
    EXPECT_EQ(std::isnan(read.norms[block * shape.kv_heads]), block != 2 && block != 5) << block;
  }
}

// Every row sees the first key at least, or all of the blocks' keys.
PassPlan PlanOf(int rows, const std::vector<int32_t>& blocks, std::vector<ScoreRequest> requests,
                int keys = 1) {
  PassPlan plan;
  plan.tokens.assign(rows, 0);
  plan.positions.assign(rows, 0);
  plan.slots.assign(rows, -1);
  plan.prefix_len.assign(rows, keys);
  plan.ancestors.assign(rows, 0);
  plan.sequence_rows = {0, rows};
  plan.block_offsets = {0, static_cast<int32_t>(blocks.size())};
  plan.block_ids = blocks;
  plan.scores = std::move(requests);
  return plan;
}

// Scores [kv_heads, columns] of the requests over all blocks, which are summarised first.
// Those by attention with a window, where it is not 0.
std::vector<float> RunScores(Backend& backend, const ScoreLayout& layout, const PassPlan& plan,
                             const std::vector<float>& queries, int window = 0) {
  const KvShape shape = layout.Shape();
  const DeviceKv kv(backend, FilledImage(shape));
  backend.kv_ops()->SummariseBlocks(kv.view(), Reversed(shape.num_blocks));
  const DeviceMatrix q(backend, plan.num_rows(), layout.cols(), queries);
  const DeviceMatrix out(backend, shape.kv_heads, plan.num_scored_blocks());
  const auto pass = backend.NewPass(layout.cols() / layout.head_dim);
  backend.LoadPass(plan, shape, pass.get());
  backend.kv_ops()->ScoreBlocks(*pass, q.view(), kv.view(), kLayer, out.view());
  if (plan.AsksAttention()) {
    const DeviceMatrix attended(backend, plan.num_rows(), layout.cols());
    backend.layer_ops()->Attention(*pass,
                                   {.q = q.view(),
                                    .kv = kv.view(),
                                    .layer = kLayer,
                                    .scale = 0.1f,
                                    .window = window,
                                    .scores = out.view()},
                                   attended.view());
  }
  return out.Read();
}

TEST_P(BlockScoresTest, MatchReference) {
  constexpr int kRows = 23;
  const auto reference = MakeBackend("reference");
  for (const ScoreLayout& layout : ScoreLayouts()) {
    const std::vector<float> queries = RandomValues(int64_t{kRows} * layout.cols(), 11);
    for (const auto scorer : {BlockScorer::kQuest, BlockScorer::kQuestBound, BlockScorer::kH2o}) {
      for (const auto reduce : {ScoreReduce::kMean, ScoreReduce::kMax}) {
        const PassPlan plan = PlanOf(kRows, Reversed(layout.blocks),
                                     {{.row_begin = 2,
                                       .row_end = kRows,
                                       .num_blocks = layout.blocks - 1,
                                       .scorer = scorer,
                                       .reduce = reduce}});
        const auto expected = RunScores(*reference, layout, plan, queries);
        const auto actual = RunScores(*backend_, layout, plan, queries);
        const double bound = 1e-6 * layout.head_dim * testing::LargestMagnitude(expected);
        EXPECT_LE(MaxDifference(expected, actual), bound) << DTypeName(layout.dtype);
      }
    }
  }
}

// Only backends whose attention scores blocks.
class AttentionScoresTest : public BlockScoresTest {};

// Scores are shares: a cache in 16 bits may have its queries rounded to bf16, others not. A window
// leaves out most of the keys, or all of the scored ones.
TEST_P(AttentionScoresTest, MatchReference) {
  constexpr int kRows = 7;
  const auto reference = MakeBackend("reference");
  for (const ScoreLayout& layout : ScoreLayouts()) {
    const std::vector<float> queries = RandomValues(int64_t{kRows} * layout.cols(), 16);
    const int keys = layout.blocks * layout.block_size;
    for (const int window : {0, keys / 3, layout.block_size / 2}) {
      for (const auto reduce : {ScoreReduce::kMean, ScoreReduce::kMax}) {
        const PassPlan plan = PlanOf(kRows, Reversed(layout.blocks),
                                     {{.row_begin = 2,
                                       .row_end = kRows,
                                       .num_blocks = layout.blocks - 1,
                                       .scorer = BlockScorer::kAttention,
                                       .reduce = reduce}},
                                     keys);
        const auto expected = RunScores(*reference, layout, plan, queries, window);
        const auto actual = RunScores(*backend_, layout, plan, queries, window);
        const double error = layout.dtype == DType::kF32 ? 1e-5 : 0.02;
        EXPECT_LE(MaxDifference(expected, actual), error * testing::LargestMagnitude(expected))
            << DTypeName(layout.dtype) << " window " << window;
      }
    }
  }
}

TEST_P(BlockScoresTest, RequestsDoNotChangeEachOther) {
  const ScoreLayout layout{.dtype = DType::kBF16, .head_dim = 40, .blocks = 150};
  const std::vector<float> queries = RandomValues(int64_t{70} * layout.cols(), 12);
  // On one thread, where the backend has threads.
  const auto one = MakeBackend(testing::OnOneThread(GetParam()));
  for (const auto scorer : {BlockScorer::kQuest, BlockScorer::kAttention}) {
    if (scorer == BlockScorer::kAttention && !backend_->kv_ops()->ScoresByAttention()) continue;
    const ScoreRequest first{.row_begin = 0, .row_end = 40, .num_blocks = 149, .scorer = scorer};
    const ScoreRequest second{
        .row_begin = 41, .row_end = 42, .num_blocks = 7, .first_column = 149, .scorer = scorer};
    ScoreRequest alone = second;
    alone.first_column = 0;
    const auto run = [&](Backend& backend, std::vector<ScoreRequest> requests) {
      return RunScores(backend, layout, PlanOf(70, Reversed(150), std::move(requests), 150 * 16),
                       queries);
    };
    const auto both = run(*backend_, {first, second});
    const auto expected_first = run(*one, {first});
    const auto expected_second = run(*one, {alone});
    for (int head = 0; head < layout.kv_heads; ++head) {
      for (int i = 0; i < 149; ++i) {
        EXPECT_EQ(both[head * 156 + i], expected_first[head * 149 + i]) << i;
      }
      for (int i = 0; i < 7; ++i) {
        EXPECT_EQ(both[head * 156 + 149 + i], expected_second[head * 7 + i]) << i;
      }
    }
  }
}

// The bound is one: no key of a block has a larger product with the query.
TEST_P(BlockScoresTest, QuestBoundIsAnUpperBound) {
  const ScoreLayout layout{.group = 1};
  const KvShape shape = layout.Shape();
  const std::vector<float> queries = RandomValues(layout.cols(), 13);
  const PassPlan plan =
      PlanOf(1, Reversed(layout.blocks),
             {{.row_end = 1, .num_blocks = layout.blocks, .scorer = BlockScorer::kQuestBound}});
  const auto bounds = RunScores(*backend_, layout, plan, queries);
  const KvImage& image = FilledImage(shape);
  for (int head = 0; head < shape.kv_heads; ++head) {
    for (int i = 0; i < layout.blocks; ++i) {
      for (int t = 0; t < shape.block_size; ++t) {
        const int content = (layout.blocks - 1 - i) * shape.block_size + t;
        const std::vector<float> key = image.Values(content, head, false);
        double product = 0;
        for (int d = 0; d < shape.head_dim; ++d) {
          product += double{queries[head * shape.head_dim + d]} * key[d];
        }
        EXPECT_GE(bounds[head * layout.blocks + i], product);
      }
    }
  }
}

TEST_P(BlockScoresTest, NaNCountsAsMinusInfinity) {
  const ScoreLayout layout{.kv_heads = 1, .group = 1};
  std::vector<float> queries = RandomValues(2 * layout.cols(), 14);
  queries[layout.cols() + 3] = kNaN;
  for (const auto scorer : {BlockScorer::kQuest, BlockScorer::kQuestBound}) {
    ScoreRequest request{.row_end = 2, .num_blocks = layout.blocks, .scorer = scorer};
    for (const float score :
         RunScores(*backend_, layout, PlanOf(2, Reversed(layout.blocks), {request}), queries)) {
      EXPECT_EQ(score, -kInfinity);  // the mean with a row of -inf
    }
    request.reduce = ScoreReduce::kMax;
    for (const float score :
         RunScores(*backend_, layout, PlanOf(2, Reversed(layout.blocks), {request}), queries)) {
      EXPECT_TRUE(std::isfinite(score));  // the other row's
    }
  }
}

// Keys with NaN make the block's score -inf, whatever the place of the key in the block.
TEST_P(BlockScoresTest, NaNKeysRankLast) {
  const ScoreLayout layout{.kv_heads = 1, .group = 1, .blocks = 3};
  const KvShape shape = layout.Shape();
  const std::vector<float> queries = RandomValues(layout.cols(), 15);
  for (const int bad : {0, 7, 15}) {
    const DeviceKv kv(*backend_, FilledImage(shape));
    auto* keys = static_cast<float*>(kv.view().layers[kLayer].k_blocks);
    backend_->CopyIn(keys + SlotVector(shape, shape.block_size + bad, 0) * shape.head_dim + 5,
                     &kNaN, sizeof(kNaN));
    backend_->kv_ops()->SummariseBlocks(kv.view(), Reversed(3));
    for (const auto scorer : {BlockScorer::kQuest, BlockScorer::kQuestBound, BlockScorer::kH2o}) {
      const PassPlan plan =
          PlanOf(1, {0, 1, 2}, {{.row_end = 1, .num_blocks = 3, .scorer = scorer}});
      const DeviceMatrix q(*backend_, 1, layout.cols(), queries);
      const DeviceMatrix out(*backend_, 1, 3);
      const auto pass = backend_->NewPass(layout.cols() / layout.head_dim);
      backend_->LoadPass(plan, shape, pass.get());
      backend_->kv_ops()->ScoreBlocks(*pass, q.view(), kv.view(), kLayer, out.view());
      EXPECT_TRUE(std::isfinite(out.Read()[0]));
      EXPECT_EQ(out.Read()[1], -kInfinity);
      EXPECT_TRUE(std::isfinite(out.Read()[2]));
    }
  }
}

// Few distinct values, so that many tie, and some NaN.
TEST_P(BlockScoresTest, ChosenColumnsMatchReference) {
  const auto backend = MakeBackend(GetParam());
  const auto reference = MakeBackend("reference");
  constexpr int kRows = 5, kCols = 3000;
  std::vector<float> values = testing::RandomValues(int64_t{kRows} * kCols, 21);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i / kCols % 2 == 1) values[i] = std::round(values[i] * 4) / 4;
    if (i % 97 == 0) values[i] = std::numeric_limits<float>::quiet_NaN();
    if (i % 101 == 0) values[i] = -std::numeric_limits<float>::infinity();
  }
  for (int i = 40; i < 60; ++i) values[2 * kCols + i] = std::numeric_limits<float>::quiet_NaN();
  for (int i = 40; i < 60; ++i) values[3 * kCols + i] = -std::numeric_limits<float>::infinity();
  const std::vector<ColumnChoice> choices = {{2, 2900, 256}, {0, 3000, 3000}, {7, 8, 1},
                                             {40, 60, 5},    {10, 10, 0},     {1, 2048, 1}};
  const testing::DeviceMatrix x(*backend, kRows, kCols, values);
  const testing::DeviceMatrix host_x(*reference, kRows, kCols, values);
  backend->kv_ops()->ChooseColumns(x.view(), choices);
  reference->kv_ops()->ChooseColumns(host_x.view(), choices);
  const auto got = backend->kv_ops()->ChosenColumns();
  const auto want = reference->kv_ops()->ChosenColumns();
  ASSERT_EQ(std::vector(got.begin(), got.end()), std::vector(want.begin(), want.end()));
  const auto nan_row = kRows * (256 + 3000 + 1) + 2 * 5;  // place of the fourth choice, row 2
  EXPECT_EQ(got[nan_row], -1);
  EXPECT_EQ(got[nan_row + 5], -1);  // -inf, as scorers write NaN
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionScoresTest,
                         ::testing::Values("reference", "cpu1", "cpu3"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Backends, BlockScoresTest,
                         ::testing::ValuesIn(testing::WithDevices({"reference", "cpu1", "cpu3"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace talon
