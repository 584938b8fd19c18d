// Selection against a naive float64 twin, and the lists it leads to.
#include "spec/specpv/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/math.h"

namespace talon {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int32_t> Indices(std::span<const int32_t> list) { return {list.begin(), list.end()}; }

std::vector<int32_t> Range(int first, int end) {
  std::vector<int32_t> out(end - first);
  std::iota(out.begin(), out.end(), first);
  return out;
}

// What one list must be, by sorting all candidates: unscored ones first, newest first.
std::vector<int32_t> NaiveSelection(const std::vector<double>& scores, const BlockBudget& budget,
                                    int full_blocks) {
  std::vector<int32_t> candidates;
  for (int block = 0; block < full_blocks; ++block) {
    if (block >= budget.sink && block < full_blocks - budget.window) candidates.push_back(block);
  }
  const int scored = static_cast<int>(scores.size());
  const auto better = [&](int32_t a, int32_t b) {
    if ((a >= scored) != (b >= scored)) return a >= scored;
    if (a >= scored) return a > b;
    const double score_a = std::isnan(scores[a]) ? -HUGE_VAL : scores[a];
    const double score_b = std::isnan(scores[b]) ? -HUGE_VAL : scores[b];
    return score_a > score_b || (score_a == score_b && a < b);
  };
  std::sort(candidates.begin(), candidates.end(), better);
  candidates.resize(std::min<size_t>(candidates.size(), budget.retrieval));
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

// One list's choice.
std::vector<int32_t> Select(const std::vector<float>& scores, const BlockBudget& budget,
                            int full_blocks) {
  const int count = static_cast<int>(scores.size());
  const auto selection = SelectBlocks(
      {.values = scores, .layers = 1, .kv_heads = 1, .stride = count, .end_block = count}, budget,
      full_blocks);
  EXPECT_TRUE(selection.ok()) << selection.status().message();
  return selection.ok() ? Indices(selection->List(0, 0)) : std::vector<int32_t>{};
}

TEST(SelectBlocksTest, BestOfTheCandidatesInAscendingOrder) {
  //                                sink        candidates 2..7       window
  const std::vector<float> scores = {9, 9, 1, 5, 3, -2, 8, 4, 9, 9};
  EXPECT_EQ(Select(scores, {2, 3, 2}, 10), (std::vector<int32_t>{3, 6, 7}));
  EXPECT_EQ(Select(scores, {2, 1, 2}, 10), (std::vector<int32_t>{6}));
  EXPECT_EQ(Select(scores, {2, 6, 2}, 10), Range(2, 8));
  EXPECT_EQ(Select(scores, {2, 100, 2}, 10), Range(2, 8));
}

TEST(SelectBlocksTest, TiesGoToTheLowerBlock) {
  EXPECT_EQ(Select({1, 1, 1, 1, 1, 1}, {1, 2, 1}, 6), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(Select({0, 1, 2, 2, 2, 0}, {0, 2, 0}, 6), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(Select({0, -0.0f, 0.0f, -0.0f}, {0, 2, 0}, 4), (std::vector<int32_t>{0, 1}));
}

TEST(SelectBlocksTest, NanRanksAsMinusInfinity) {
  EXPECT_EQ(Select({kNan, 1, kNan, -5, kInfinity}, {0, 3, 0}, 5), (std::vector<int32_t>{1, 3, 4}));
  // ... and ties with it: block 0 before block 1.
  EXPECT_EQ(Select({kNan, -kInfinity, 1}, {0, 2, 0}, 3), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(Select({-kInfinity, kNan, 1}, {0, 2, 0}, 3), (std::vector<int32_t>{0, 2}));
}

TEST(SelectBlocksTest, OnlyNanIsAFailureThatNamesTheList) {
  // Layer 1, head 0 has numbers in its sink and window only.
  const std::vector<float> scores = {1, 2, 3, 4, 1, 2, 3, 4, 9, kNan, kNan, 9, 1, 2, 3, kNan};
  const BlockScores view{.values = scores, .layers = 2, .kv_heads = 2, .stride = 4, .end_block = 4};
  const auto selection = SelectBlocks(view, {1, 1, 1}, 4);
  ASSERT_FALSE(selection.ok());
  EXPECT_EQ(selection.status().message(), "layer 1 kv head 0: all 2 candidates are NaN");
  EXPECT_TRUE(SelectBlocks(view, {1, 0, 1}, 4).ok());  // nothing is ranked
  std::vector<float> lowest = scores;                  // as scorers write NaN
  lowest[9] = lowest[10] = -kInfinity;
  const BlockScores other{
      .values = lowest, .layers = 2, .kv_heads = 2, .stride = 4, .end_block = 4};
  EXPECT_FALSE(SelectBlocks(other, {1, 1, 1}, 4).ok());
}

TEST(SelectBlocksTest, UnscoredBlocksAreAlwaysChosenAndCount) {
  const std::vector<float> scores = {9, 1, 5, 3, 4};
  // Blocks 5 and 6 filled in the commit and left the window of 1.
  EXPECT_EQ(Select(scores, {1, 4, 1}, 8), (std::vector<int32_t>{2, 4, 5, 6}));
  EXPECT_EQ(Select(scores, {1, 2, 1}, 8), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(Select(scores, {1, 1, 1}, 8), (std::vector<int32_t>{6}));  // the newest of them
  // New blocks within the window change nothing.
  EXPECT_EQ(Select(scores, {1, 2, 3}, 8), (std::vector<int32_t>{2, 4}));
}

TEST(SelectBlocksTest, UnscoredBlocksNeedNoNumberElsewhere) {
  EXPECT_EQ(Select({kNan, kNan, kNan}, {1, 1, 0}, 4), (std::vector<int32_t>{3}));
}

TEST(SelectBlocksTest, ShortSequencesHaveNoCandidates) {
  for (int full = 0; full <= 5; ++full) {
    EXPECT_TRUE(Select(std::vector<float>(full, 1.0f), {2, 4, 3}, full).empty()) << full;
  }
  EXPECT_EQ(Select(std::vector<float>(6, 1.0f), {2, 4, 3}, 6), (std::vector<int32_t>{2}));
}

TEST(SelectBlocksTest, NoRetrievalNeedsNoScores) {
  const auto selection = SelectBlocks({.layers = 3, .kv_heads = 2}, {2, 0, 4}, 100);
  ASSERT_TRUE(selection.ok());
  EXPECT_EQ(selection->retrieved, 0);
  EXPECT_TRUE(selection->List(2, 1).empty());
}

TEST(SelectBlocksTest, ScoresMayStartAtTheSinkAndBePartOfAWiderMatrix) {
  constexpr int kStride = 9;
  std::vector<float> matrix(2 * kStride, kNan);
  for (int block = 2; block < 8; ++block) {
    matrix[block - 2] = static_cast<float>(block);
    matrix[kStride + block - 2] = static_cast<float>(-block);
  }
  matrix.resize(kStride + 6);  // the last row need not be padded
  const auto selection = SelectBlocks({.values = matrix,
                                       .layers = 2,
                                       .kv_heads = 1,
                                       .stride = kStride,
                                       .first_block = 2,
                                       .end_block = 8},
                                      {2, 2, 1}, 8);
  ASSERT_TRUE(selection.ok());
  EXPECT_EQ(Indices(selection->List(0, 0)), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(Indices(selection->List(1, 0)), (std::vector<int32_t>{2, 3}));
}

// Keys and queries of one (layer, kv head), to score blocks as the kernels do.
class QuestCase {
 public:
  QuestCase(int blocks, std::mt19937& random) : blocks_(blocks) {
    std::normal_distribution<float> normal;
    keys_.resize(static_cast<size_t>(blocks) * kBlockSize * kDim);
    queries_.resize(static_cast<size_t>(kRows) * kGroup * kDim);
    for (float& x : keys_) x = normal(random);
    for (float& x : queries_) x = normal(random);
  }

  // Mean over query rows and the group's heads of max(q . Kmax, q . Kmin).
  template <typename Real>
  std::vector<Real> Scores() const {
    std::vector<Real> scores(blocks_);
    for (int block = 0; block < blocks_; ++block) {
      for (int query = 0; query < kRows * kGroup; ++query) {
        Real with_max = 0, with_min = 0;
        for (int d = 0; d < kDim; ++d) {
          const auto [low, high] = RangeOf(block, d);
          with_max += static_cast<Real>(queries_[query * kDim + d]) * high;
          with_min += static_cast<Real>(queries_[query * kDim + d]) * low;
        }
        scores[block] += std::max(with_max, with_min) / (kRows * kGroup);
      }
    }
    return scores;
  }

 private:
  static constexpr int kBlockSize = 8;
  static constexpr int kDim = 16;
  static constexpr int kRows = 5;
  static constexpr int kGroup = 2;

  std::pair<float, float> RangeOf(int block, int d) const {
    float low = kInfinity, high = -kInfinity;
    for (int token = 0; token < kBlockSize; ++token) {
      const float key = keys_[(static_cast<size_t>(block) * kBlockSize + token) * kDim + d];
      low = std::min(low, key);
      high = std::max(high, key);
    }
    return {low, high};
  }

  int blocks_;
  std::vector<float> keys_, queries_;
};

// Scores in float32 choose what scores in float64 choose, on data without near ties.
TEST(SelectBlocksTest, EqualsTheNaiveReferenceOnRandomKeys) {
  std::mt19937 random(17);
  for (int round = 0; round < 20; ++round) {
    const BlockBudget budget{static_cast<int>(random() % 4), static_cast<int>(random() % 24),
                             static_cast<int>(random() % 6)};
    const int scored = 4 + static_cast<int>(random() % 60);
    const int full = scored + static_cast<int>(random() % 9);
    const QuestCase quest(scored, random);
    EXPECT_EQ(Select(quest.Scores<float>(), budget, full),
              NaiveSelection(quest.Scores<double>(), budget, full))
        << "round " << round;
  }
}

// Few different values, so ties and NaN are everywhere.
TEST(SelectBlocksTest, EqualsTheNaiveReferenceOnTies) {
  std::mt19937 random(23);
  const float values[] = {-kInfinity, -1, 0, 0, 2, 2, kInfinity, kNan};
  for (int round = 0; round < 300; ++round) {
    const int layers = 1 + static_cast<int>(random() % 3);
    const int heads = 1 + static_cast<int>(random() % 3);
    const int scored = 20 + static_cast<int>(random() % 40);
    const int full = scored + static_cast<int>(random() % 5);
    const BlockBudget budget{static_cast<int>(random() % 4), static_cast<int>(random() % 24),
                             static_cast<int>(random() % 4)};
    std::vector<float> scores(static_cast<size_t>(layers) * heads * scored);
    for (float& score : scores) score = values[random() % std::size(values)];
    const auto selection = SelectBlocks({.values = scores,
                                         .layers = layers,
                                         .kv_heads = heads,
                                         .stride = scored,
                                         .end_block = scored},
                                        budget, full);
    ASSERT_TRUE(selection.ok()) << selection.status().message();
    for (int list = 0; list < layers * heads; ++list) {
      const auto first = scores.begin() + static_cast<size_t>(list) * scored;
      ASSERT_EQ(Indices(selection->List(list / heads, list % heads)),
                NaiveSelection({first, first + scored}, budget, full))
          << "round " << round << " list " << list;
    }
  }
}

// The example of the rules: C = 5005 under the default budget.
TEST(MakePartialListsTest, ExampleAt5005Tokens) {
  constexpr int kLength = 5005;
  constexpr int kFull = 312;
  const BlockBudget budget = SpecPvConfig().Budget();
  EXPECT_EQ(OmittedBlocks(budget, kFull), 46);

  std::mt19937 random(3);
  std::vector<float> scores(kFull);
  for (float& score : scores) score = std::normal_distribution<float>()(random);
  std::vector<int32_t> blocks = Range(1000, 1000 + kFull + 1);
  std::shuffle(blocks.begin(), blocks.end(), random);
  const auto selection = SelectBlocks(
      {.values = scores, .layers = 1, .kv_heads = 1, .stride = kFull, .end_block = kFull}, budget,
      kFull);
  ASSERT_TRUE(selection.ok());
  EXPECT_EQ(selection->retrieved, 256);

  const PartialLists lists = MakePartialLists(*selection, blocks, kLength, 16);
  const std::vector<int32_t> list = Indices(lists.List(0, 0));
  EXPECT_EQ(lists.list_blocks, 258 + 9);  // sink and retrieved, then window and partial block
  ASSERT_EQ(list.size(), 267u);
  EXPECT_EQ(lists.visible_tokens, 258 * 16 + 141);
  EXPECT_EQ(lists.visible_tokens, 4269);
  EXPECT_EQ(std::vector(list.begin(), list.begin() + 2),
            std::vector(blocks.begin(), blocks.begin() + 2));
  EXPECT_EQ(std::vector(list.end() - 9, list.end()), std::vector(blocks.end() - 9, blocks.end()));
  for (int i = 0; i < 256; ++i) EXPECT_EQ(list[2 + i], blocks[selection->indices[i]]);
}

// Positions never go back, no block appears twice, and no token of the end is left out.
TEST(MakePartialListsTest, ListsAreInPositionOrder) {
  std::mt19937 random(29);
  for (int round = 0; round < 200; ++round) {
    const int length = 1 + static_cast<int>(random() % 700);
    const int full = length / 16;
    const BlockBudget budget{static_cast<int>(random() % 4), static_cast<int>(random() % 20),
                             1 + static_cast<int>(random() % 5)};
    std::vector<float> scores(2 * static_cast<size_t>(full));
    for (float& score : scores) score = static_cast<float>(random() % 7);
    const auto selection = SelectBlocks(
        {.values = scores, .layers = 1, .kv_heads = 2, .stride = full, .end_block = full}, budget,
        full);
    ASSERT_TRUE(selection.ok());
    // Ids are positions, so that order can be read off them.
    const std::vector<int32_t> blocks = Range(0, CeilDiv(length, 16));
    const PartialLists lists = MakePartialLists(*selection, blocks, length, 16);
    for (int head = 0; head < 2; ++head) {
      const std::vector<int32_t> list = Indices(lists.List(0, head));
      EXPECT_TRUE(std::is_sorted(list.begin(), list.end(), std::less_equal<>()));
      EXPECT_EQ(list.back(), blocks.back());
      EXPECT_EQ(static_cast<int>(blocks.size() - list.size()), OmittedBlocks(budget, full));
    }
    EXPECT_EQ(length - lists.visible_tokens, 16 * OmittedBlocks(budget, full));
  }
}

TEST(MakePartialListsTest, WholeBlocksHaveNoPartialOne) {
  const auto selection = SelectBlocks({.layers = 1, .kv_heads = 1}, {1, 0, 2}, 10);
  ASSERT_TRUE(selection.ok());
  const PartialLists lists = MakePartialLists(*selection, Range(50, 60), 160, 16);
  EXPECT_EQ(Indices(lists.List(0, 0)), (std::vector<int32_t>{50, 58, 59}));
  EXPECT_EQ(lists.visible_tokens, 48);
}

TEST(MakePartialListsTest, LayersWithAWindowGetTheNewestBlocks) {
  const auto selection = SelectBlocks({.layers = 2, .kv_heads = 1}, {1, 0, 2}, 10);
  ASSERT_TRUE(selection.ok());
  const std::vector<int> windows = {0, 20};
  const PartialLists lists = MakePartialLists(*selection, Range(50, 61), 165, 16, windows);
  EXPECT_EQ(Indices(lists.List(0, 0)), (std::vector<int32_t>{50, 58, 59, 60}));
  EXPECT_EQ(Indices(lists.List(1, 0)), (std::vector<int32_t>{57, 58, 59, 60}));
}

TEST(MakePartialListsTest, SlidingAndStreaming) {
  SpecPvConfig config{.window_blocks = 3};
  const std::vector<int32_t> blocks = Range(0, 21);  // C = 325, 20 full blocks
  config.selector = SpecPvSelector::kStreaming;
  auto selection = SelectBlocks({.layers = 1, .kv_heads = 1}, config.Budget(), 20);
  ASSERT_TRUE(selection.ok());
  EXPECT_EQ(Indices(MakePartialLists(*selection, blocks, 325, 16).List(0, 0)),
            (std::vector<int32_t>{0, 1, 17, 18, 19, 20}));
  config.selector = SpecPvSelector::kSliding;
  selection = SelectBlocks({.layers = 1, .kv_heads = 1}, config.Budget(), 20);
  ASSERT_TRUE(selection.ok());
  const PartialLists lists = MakePartialLists(*selection, blocks, 325, 16);
  EXPECT_EQ(Indices(lists.List(0, 0)), (std::vector<int32_t>{17, 18, 19, 20}));
  EXPECT_EQ(lists.visible_tokens, 3 * 16 + 5);
}

}  // namespace
}  // namespace talon
