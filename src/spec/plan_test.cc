#include "spec/plan.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

Sequence MakeSequence(int tokens, int committed, std::vector<int32_t> blocks) {
  Sequence sequence{.id = 1, .blocks = std::move(blocks), .committed_len = committed};
  for (int i = 0; i < tokens; ++i) sequence.tokens.push_back(100 + i);
  return sequence;
}

TEST(Plan, TreePositionsMasksAndOutputs) {
  PassBuilder builder;
  const Sequence sequence = MakeSequence(4, 3, {7});
  TokenTree tree(103);
  tree.Add(0, 1, 1);
  tree.Add(0, 2, 1);
  tree.Add(1, 3, 1);
  tree.Add(2, 4, 1);
  EXPECT_EQ(builder.AddTree(sequence, tree), 0);
  const PassPlan& plan = builder.plan();
  EXPECT_EQ(plan.positions, (std::vector<int32_t>{3, 4, 4, 5, 5}));
  EXPECT_EQ(plan.prefix_len, (std::vector<int32_t>{3, 3, 3, 3, 3}));
  EXPECT_EQ(plan.slots, (std::vector<int32_t>{-1, -1, -1, -1, -1}));
  EXPECT_EQ(plan.ancestors, (std::vector<uint64_t>{0x01, 0x03, 0x05, 0x0b, 0x15}));
  EXPECT_EQ(plan.output_rows, (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(plan.block_ids, (std::vector<int32_t>{7}));
}

TEST(Plan, PlainDecodingIsATreeOfOneNode) {
  PassBuilder builder;
  builder.AddTree(MakeSequence(21, 20, {4, 2}), TokenTree(120));
  EXPECT_EQ(builder.plan().positions, (std::vector<int32_t>{20}));
  EXPECT_EQ(builder.plan().ancestors, (std::vector<uint64_t>{1}));
}

TEST(Plan, PromptRowsSeeThemselvesInBlocks) {
  PassBuilder builder;
  const Sequence sequence = MakeSequence(40, 14, {5});
  const Reservation reservation{.slots = {94, 95, 48, 49}, .new_blocks = {3}};
  builder.AddPrompt(sequence, reservation);
  const PassPlan& plan = builder.plan();
  EXPECT_EQ(plan.tokens, (std::vector<int32_t>{114, 115, 116, 117}));
  EXPECT_EQ(plan.positions, (std::vector<int32_t>{14, 15, 16, 17}));
  EXPECT_EQ(plan.prefix_len, (std::vector<int32_t>{15, 16, 17, 18}));
  EXPECT_EQ(plan.ancestors, (std::vector<uint64_t>{0, 0, 0, 0}));
  EXPECT_EQ(plan.block_ids, (std::vector<int32_t>{5, 3}));
  EXPECT_TRUE(plan.output_rows.empty());
}

TEST(Plan, CopiedLastBlockReplacesTheSharedOne) {
  PassBuilder builder;
  const Sequence sequence = MakeSequence(40, 20, {5, 6});
  const Reservation reservation{
      .slots = {9 * 16 + 4}, .new_blocks = {9}, .replaces_last_block = true};
  builder.AddPrompt(sequence, reservation);
  EXPECT_EQ(builder.plan().block_ids, (std::vector<int32_t>{5, 9}));
}

TEST(Plan, MasksWidenWithTheLargestTree) {
  PassBuilder builder;
  builder.AddTree(MakeSequence(4, 3, {1}), TokenTree(1));
  TokenTree chain(1);
  for (int i = 0; i < 69; ++i) chain.Add(i, i, 1);
  EXPECT_EQ(builder.AddTree(MakeSequence(18, 17, {2, 3}), chain), 1);
  builder.AddPrompt(MakeSequence(9, 0, {}), {.slots = {64}, .new_blocks = {4}});
  const PassPlan& plan = builder.plan();
  EXPECT_EQ(plan.mask_words, 2);
  EXPECT_EQ(plan.ancestors.size(), 2u * 72);
  EXPECT_EQ(plan.ancestors[0], 1u);
  EXPECT_EQ(plan.ancestors[2 * 70], ~uint64_t{0});
  EXPECT_EQ(plan.ancestors[2 * 70 + 1], 0x3fu);
  EXPECT_EQ(plan.sequence_rows, (std::vector<int32_t>{0, 1, 71, 72}));
  EXPECT_EQ(plan.block_offsets, (std::vector<int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(builder.num_tree_rows(), 71);
}

}  // namespace
}  // namespace talon
