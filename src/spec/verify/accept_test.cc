#include "spec/verify/accept.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

namespace talon {
namespace {

// Rows with fixed logits per node, judged by a real sampler.
class FixedRows : public TreeRows {
 public:
  FixedRows(const BoundSampler* sampler, std::vector<std::vector<float>> logits)
      : sampler_(sampler), logits_(std::move(logits)) {}
  Choice Choose(int node, std::span<const int32_t> path) override {
    ++asked_;
    return sampler_->Choose(logits_[node], path);
  }
  bool Distribution(int node, std::span<const int32_t> path, std::vector<float>* probs) override {
    ++asked_;
    return sampler_->Distribution(logits_[node], path, probs);
  }
  int asked() const { return asked_; }

 private:
  const BoundSampler* sampler_;
  std::vector<std::vector<float>> logits_;
  int asked_ = 0;
};

std::vector<float> LogitsFor(const std::vector<float>& probs) {
  std::vector<float> logits;
  for (const float p : probs) logits.push_back(p > 0 ? std::log(p) : -INFINITY);
  return logits;
}

const std::vector<int32_t> kPrompt = {0};

Sampler MakeSampler(uint64_t seed, float temperature = 1) {
  SamplingParams params;
  params.temperature = temperature;
  params.seed = seed;
  return {params, {}, kPrompt};
}

int DrawFrom(const std::vector<float>& probs, std::mt19937_64& random) {
  return std::discrete_distribution<int>(probs.begin(), probs.end())(random);
}

DraftProbs Sparse(const std::vector<float>& probs) {
  DraftProbs out;
  for (size_t i = 0; i < probs.size(); ++i) {
    if (probs[i] > 0) out.entries.emplace_back(static_cast<int32_t>(i), probs[i]);
  }
  return out;
}

double ChiSquare(const std::map<int, int>& counts, const std::vector<float>& expected, int total) {
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double mean = expected[i] * total;
    const auto at = counts.find(static_cast<int>(i));
    const double seen = at == counts.end() ? 0 : at->second;
    if (mean > 0) sum += (seen - mean) * (seen - mean) / mean;
  }
  return sum;
}

constexpr int kDraws = 20000;
constexpr double kChiSquare4Dof = 23.5;  // exceeded with probability 1e-4
const std::vector<float> kTarget = {0.4f, 0.1f, 0.3f, 0.15f, 0.05f};
const std::vector<float> kDraft = {0.1f, 0.5f, 0.1f, 0.2f, 0.1f};

using MakeDraft = std::function<TokenTree(std::mt19937_64&)>;
using Accept = std::function<Acceptance(const TokenTree&, TreeRows&, const BoundSampler&)>;

// Counts of the first emitted token over many seeds and drafts.
std::map<int, int> FirstTokens(const MakeDraft& draft, const Accept& accept) {
  std::mt19937_64 random(11);
  std::map<int, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    const Sampler unbound = MakeSampler(i);
    const BoundSampler sampler = unbound.At(kPrompt);
    const TokenTree tree = draft(random);
    FixedRows rows(&sampler, std::vector<std::vector<float>>(tree.size(), LogitsFor(kTarget)));
    ++counts[accept(tree, rows, sampler).choices[0].token];
  }
  return counts;
}

TokenTree DrawnChain(std::mt19937_64& random) {
  TokenTree tree(0);
  tree.Add(0, DrawFrom(kDraft, random), 1);
  tree.draws = {DraftProbs{}, Sparse(kDraft)};
  return tree;
}

// Three siblings drawn without replacement, each with the distribution it came from.
TokenTree DrawnSiblings(std::mt19937_64& random) {
  TokenTree tree(0);
  tree.draws.resize(1);
  std::vector<float> q = kDraft;
  for (int child = 0; child < 3; ++child) {
    const int token = DrawFrom(q, random);
    tree.draws[tree.Add(0, token, 1)] = Sparse(q);
    q[token] = 0;
    float sum = 0;
    for (const float value : q) sum += value;
    for (float& value : q) value /= sum;
  }
  return tree;
}

TokenTree TopTwo(std::mt19937_64&) {
  TokenTree tree(0);
  tree.Add(0, 2, 1);
  tree.Add(0, 0, 1);
  return tree;
}

TEST(Accept, GreedyWalkStopsAtTheFirstMiss) {
  const Sampler unbound = MakeSampler(1, 0);
  const BoundSampler sampler = unbound.At(kPrompt);
  TokenTree tree(9);
  tree.Add(0, 1, 1);
  tree.Add(0, 2, 1);
  tree.Add(2, 3, 1);
  FixedRows rows(&sampler, {{0, 0, 5, 0, 0}, {9, 0, 0, 0, 0}, {0, 0, 0, 0, 7}, {9, 0, 0, 0, 0}});
  const Acceptance result = AcceptMatch(tree, rows);
  EXPECT_EQ(result.path, (std::vector<int32_t>{0, 2}));
  ASSERT_EQ(result.choices.size(), 2u);
  EXPECT_EQ(result.choices[0].token, 2);
  EXPECT_EQ(result.choices[1].token, 4);
  EXPECT_EQ(rows.asked(), 2);
}

TEST(Accept, GreedyTiesGoToTheLowestId) {
  const Sampler unbound = MakeSampler(1, 0);
  const BoundSampler sampler = unbound.At(kPrompt);
  FixedRows rows(&sampler, {{1, 3, 3, 0, 3}});
  EXPECT_EQ(AcceptMatch(TokenTree(0), rows).choices[0].token, 1);
}

TEST(Accept, DeadEndEndsTheWalk) {
  const Sampler unbound = MakeSampler(1);
  const BoundSampler sampler = unbound.At(kPrompt);
  FixedRows rows(&sampler, {std::vector<float>(5, -INFINITY)});
  const Acceptance result = AcceptMatch(TokenTree(0), rows);
  EXPECT_TRUE(result.dead_end);
  EXPECT_EQ(result.path.size(), 1u);
}

TEST(Accept, MatchChiSquare) {
  const auto match = [](const TokenTree& tree, TreeRows& rows, const BoundSampler&) {
    return AcceptMatch(tree, rows);
  };
  EXPECT_LT(ChiSquare(FirstTokens(TopTwo, match), kTarget, kDraws), kChiSquare4Dof);
}

TEST(Accept, MatchDoesNotDependOnTheTree) {
  for (int seed = 0; seed < 200; ++seed) {
    const Sampler unbound = MakeSampler(seed);
    const BoundSampler sampler = unbound.At(kPrompt);
    std::mt19937_64 random(seed);
    FixedRows plain(&sampler, {LogitsFor(kTarget)});
    const TokenTree tree = DrawnSiblings(random);
    FixedRows rows(&sampler, std::vector<std::vector<float>>(tree.size(), LogitsFor(kTarget)));
    EXPECT_EQ(AcceptMatch(tree, rows).choices[0].token,
              AcceptMatch(TokenTree(0), plain).choices[0].token);
  }
}

TEST(Threshold, OneAndOneHasTheTargetsDistribution) {
  const auto accept = [](const TokenTree& tree, TreeRows& rows, const BoundSampler& sampler) {
    return AcceptThreshold(tree, rows, sampler, {});
  };
  EXPECT_LT(ChiSquare(FirstTokens(TopTwo, accept), kTarget, kDraws), kChiSquare4Dof);
}

TEST(Threshold, LowThresholdsAcceptMoreAndAreLossy) {
  const AcceptThresholds loose{.single = 0.25f, .acc = 1.0f};
  EXPECT_TRUE(loose.lossy());
  const auto accept = [&](const TokenTree& tree, TreeRows& rows, const BoundSampler& sampler) {
    return AcceptThreshold(tree, rows, sampler, loose);
  };
  const auto counts = FirstTokens(TopTwo, accept);
  EXPECT_EQ(counts.at(2), kDraws);  // p(2) = 0.3 >= single: always taken
}

TEST(Rejection, ChainChiSquare) {
  EXPECT_LT(ChiSquare(FirstTokens(DrawnChain, AcceptRejection), kTarget, kDraws), kChiSquare4Dof);
}

TEST(Rejection, TreeChiSquare) {
  EXPECT_LT(ChiSquare(FirstTokens(DrawnSiblings, AcceptRejection), kTarget, kDraws),
            kChiSquare4Dof);
}

TEST(Rejection, CertainChildrenChiSquare) {
  EXPECT_LT(ChiSquare(FirstTokens(TopTwo, AcceptRejection), kTarget, kDraws), kChiSquare4Dof);
}

TEST(Rejection, AcceptsMoreThanMatchingWhenDraftsAreDrawn) {
  int by_match = 0, by_rejection = 0;
  std::mt19937_64 random(5);
  for (int i = 0; i < 5000; ++i) {
    const Sampler unbound = MakeSampler(i);
    const BoundSampler sampler = unbound.At(kPrompt);
    const TokenTree tree = DrawnChain(random);
    FixedRows a(&sampler, {LogitsFor(kTarget), LogitsFor(kTarget)});
    FixedRows b(&sampler, {LogitsFor(kTarget), LogitsFor(kTarget)});
    by_match += static_cast<int>(AcceptMatch(tree, a).path.size()) - 1;
    by_rejection += static_cast<int>(AcceptRejection(tree, b, sampler).path.size()) - 1;
  }
  // sum p*q = 0.175, sum min(p, q) = 0.5.
  EXPECT_NEAR(by_match / 5000.0, 0.175, 0.03);
  EXPECT_NEAR(by_rejection / 5000.0, 0.5, 0.03);
}

TEST(Rejection, InvalidDrawsAreIgnored) {
  const auto bad_draw = [](std::mt19937_64&) {
    TokenTree tree(0);
    tree.Add(0, 1, 1);
    tree.draws = {DraftProbs{}, DraftProbs{{{1, 0.2f}}}};  // sums to 0.2
    return tree;
  };
  EXPECT_LT(ChiSquare(FirstTokens(bad_draw, AcceptRejection), kTarget, kDraws), kChiSquare4Dof);
}

// Children are tested in order against a shrinking residual. Against the whole distribution, token
// 0 would come 0.71 of the time; with a coin for each child and the last survivor kept, hardly
// ever.
TEST(Rejection, SecondChildKeepsTheTargetsProbability) {
  const std::vector<float> draft = {0.9f, 0.1f};
  int ours = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Sampler unbound = MakeSampler(i);
    const BoundSampler sampler = unbound.At(kPrompt);
    std::mt19937_64 order(i);
    TokenTree tree(0);
    const int first = DrawFrom(draft, order);
    tree.Add(0, first, 1);
    tree.Add(0, 1 - first, 1);
    tree.draws = {DraftProbs{}, Sparse(draft), DraftProbs{{{1 - first, 1.0f}}}};
    FixedRows rows(&sampler, std::vector<std::vector<float>>(3, LogitsFor({0.6f, 0.4f})));
    ours += AcceptRejection(tree, rows, sampler).choices[0].token;
  }
  EXPECT_NEAR(static_cast<double>(ours) / kDraws, 0.4, 0.02);
}

}  // namespace
}  // namespace talon
