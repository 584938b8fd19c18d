#include "apps/bench/acceptance.h"

#include <gtest/gtest.h>

#include <cmath>

namespace talon {
namespace {

// A chain of tokens 10, 11, 12 below a root, and a sibling of each.
TokenTree BushyChain() {
  TokenTree tree(9);
  tree.Add(0, 10, 1);
  tree.Add(0, 20, 0);
  tree.Add(1, 11, 1);
  tree.Add(1, 21, 0);
  tree.Add(3, 12, 1);
  tree.Add(3, 22, 0);
  return tree;
}

// Nodes that a walk along the choices accepts.
int Accepted(const TokenTree& tree, const std::vector<int32_t>& choices) {
  int accepted = 0;
  for (int node = 0; (node = tree.FindChild(node, choices[node])) >= 0;) ++accepted;
  return accepted;
}

TEST(DrawnAcceptance, TauIsThatOfTheTable) {
  const TokenTree tree = BushyChain();
  DrawnAcceptance acceptance({0.8, 0.5, 0.25}, {}, 7);
  EXPECT_DOUBLE_EQ(acceptance.ExpectedTau(), 1 + 0.8 + 0.4 + 0.1);
  constexpr int kSteps = 20000;
  int tokens = 0;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<int32_t> choices(tree.size(), 11);  // what the target would say
    acceptance.Edit(tree, 0, choices);
    tokens += 1 + Accepted(tree, choices);
  }
  const double deviation = 1.0 / std::sqrt(kSteps);  // for the mean; a step's is below one token
  EXPECT_NEAR(static_cast<double>(tokens) / kSteps, acceptance.ExpectedTau(), 4 * deviation);
  EXPECT_EQ(acceptance.cut_short(), 0);
}

TEST(DrawnAcceptance, NothingOrEverything) {
  const TokenTree tree = BushyChain();
  for (const int32_t said : {0, 1, 10, 20, 11}) {
    std::vector<int32_t> choices(tree.size(), said);
    DrawnAcceptance({0, 1, 1}, {}, 1).Edit(tree, 0, choices);
    EXPECT_EQ(Accepted(tree, choices), 0);
    DrawnAcceptance({1, 1, 1}, {}, 1).Edit(tree, 0, choices);
    EXPECT_EQ(Accepted(tree, choices), 3);
  }
}

TEST(DrawnAcceptance, ATreeThatIsNotDeepEnoughCutsShort) {
  const TokenTree tree = BushyChain();
  std::vector<int32_t> choices(tree.size(), 0);
  DrawnAcceptance acceptance({1, 1, 1, 1}, {}, 1);
  acceptance.Edit(tree, 0, choices);
  EXPECT_EQ(Accepted(tree, choices), 3);
  EXPECT_EQ(acceptance.cut_short(), 1);
}

// Two provisional tokens and the drafts' root below the first root, then a draft.
TEST(DrawnAcceptance, ATrunkIsConfirmedByItsDistance) {
  TokenTree tree(9);
  for (int i = 0; i < 4; ++i) tree.Add(i, 10 + i, 1);
  constexpr int kTrunk = 3;
  const auto accepted = [&](const std::vector<double>& agreement, double draft) {
    std::vector<int32_t> choices(tree.size(), 12);
    DrawnAcceptance({draft}, agreement, 1).Edit(tree, kTrunk, choices);
    return Accepted(tree, choices);
  };
  EXPECT_EQ(accepted({0}, 1), 0);
  EXPECT_EQ(accepted({1, 0}, 1), 1);  // distances 2 and 3
  EXPECT_EQ(accepted({1}, 0), 3);
  EXPECT_EQ(accepted({1}, 1), 4);
  EXPECT_EQ(accepted({}, 1), 4);
  std::vector<int32_t> choices(tree.size(), 12);
  DrawnAcceptance rejects({1}, {0}, 1);
  rejects.Edit(tree, kTrunk, choices);
  EXPECT_EQ(rejects.cut_short(), 0);
}

TEST(DrawnAcceptance, PlainStepsAreLeftAlone) {
  std::vector<int32_t> choices = {5};
  DrawnAcceptance acceptance({1}, {}, 1);
  acceptance.Edit(TokenTree(9), 0, choices);
  EXPECT_EQ(choices[0], 5);
  EXPECT_EQ(acceptance.cut_short(), 0);
}

}  // namespace
}  // namespace talon
