#include "apps/bench/specpv/forced_text.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

RequestUpdate UpdateOf(int tokens, int64_t partial_passes) {
  RequestUpdate update;
  update.tokens.resize(static_cast<size_t>(tokens));
  update.stats.emplace();
  update.stats->partial_passes = partial_passes;
  return update;
}

TEST(ForcedText, ChoicesAreComparedAndReplacedAlongTheText) {
  ForcedText forced({1, 2, 3, 4, 5});
  std::vector<int32_t> choices = {1};
  forced.Edit(TokenTree(0), choices);  // a full pass, right
  forced.Update(UpdateOf(1, 0));
  EXPECT_EQ(forced.full_disagreed(), 0);

  TokenTree tree(1);  // drafts 2 and, below it, 3; and a wrong one
  tree.Add(0, 2, 0);
  tree.Add(0, 9, 0);
  tree.Add(1, 3, 0);
  choices = {2, 7, 8, 4};
  forced.Edit(tree, choices);
  EXPECT_EQ(choices, (std::vector<int32_t>{2, 3, 8, 4}));  // the wrong draft's is left alone
  forced.Update(UpdateOf(3, 1));
  EXPECT_EQ(forced.partial().checked(0), 1);    // distance 1
  EXPECT_EQ(forced.partial().checked(1), 2);    // 2 and 3
  EXPECT_EQ(forced.partial().disagreed(1), 1);  // 7 for 3

  choices = {6};
  forced.Edit(TokenTree(4), choices);
  forced.Update(UpdateOf(1, 1));  // a full pass that is wrong
  EXPECT_EQ(forced.full_disagreed(), 1);
  EXPECT_EQ(forced.partial().TotalChecked(), 3);
}

TEST(ForcedText, DistancesBeginAnewAfterAFullPass) {
  ForcedText forced({1, 2, 3});
  std::vector<int32_t> choices = {1};
  for (int step = 0; step < 3; ++step) {
    choices = {step + 1};
    forced.Edit(TokenTree(step), choices);
    forced.Update(UpdateOf(1, step == 0 ? 1 : step));  // partial, full, partial
  }
  EXPECT_EQ(forced.partial().checked(0), 2);
  EXPECT_EQ(forced.partial().checked(1), 0);
}

TEST(ForcedText, NothingIsForcedPastItsEnd) {
  ForcedText forced({1});
  TokenTree tree(0);
  tree.Add(0, 1, 0);
  std::vector<int32_t> choices = {5, 6};
  forced.Edit(tree, choices);
  EXPECT_EQ(choices, (std::vector<int32_t>{1, 6}));
  forced.Update(UpdateOf(2, 1));
  EXPECT_EQ(forced.partial().TotalChecked(), 1);
}

}  // namespace
}  // namespace talon
