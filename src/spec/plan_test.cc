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

TEST(Plan, ReadersKnowWhatIsWrittenJustBefore) {
  PassBuilder builder;
  const std::vector<int32_t> blocks = {3, 4};
  builder.AddReader({blocks, 20}, /*token=*/7, /*position=*/19, /*slot=*/67, /*fresh=*/5);
  builder.AddReader({blocks, 18}, /*token=*/8, /*position=*/17, /*slot=*/65, /*fresh=*/1);
  EXPECT_EQ(builder.plan().prefix_len, (std::vector<int32_t>{20, 18}));
  EXPECT_EQ(builder.plan().fresh_keys, (std::vector<int32_t>{5, 1}));
  builder.Reset();
  EXPECT_TRUE(builder.plan().fresh_keys.empty());
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

TEST(Plan, PartialTreeSeesItsListsTheTailAndItsAncestors) {
  PassBuilder builder;
  Sequence sequence = MakeSequence(46, 43, {7, 8, 9});
  sequence.tail_first = 100;
  sequence.tail_len = 2;
  TokenTree tree(145);
  tree.Add(0, 1, 1);
  tree.Add(0, 2, 1);
  tree.Add(2, 3, 1);
  // 2 layers x 2 kv heads, each with two of the three blocks.
  const std::vector<int32_t> ids = {7, 9, 8, 9, 7, 9, 7, 9};
  EXPECT_EQ(
      builder.AddPartialTree(sequence, tree, {.block_ids = ids, .num_lists = 4, .tokens = 27}), 0);
  const PassPlan& plan = builder.plan();
  EXPECT_EQ(plan.positions, (std::vector<int32_t>{45, 46, 46, 47}));
  EXPECT_EQ(plan.prefix_len, (std::vector<int32_t>{27, 27, 27, 27}));
  EXPECT_EQ(plan.ancestors, (std::vector<uint64_t>{0b111, 0b1111, 0b10111, 0b110111}));
  EXPECT_EQ(plan.output_rows, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(plan.NumLists(0), 4);
  EXPECT_EQ(plan.BlocksOf(0, 0, 1, 2)[0], 8);
  EXPECT_EQ(plan.BlocksOf(0, 1, 1, 2)[0], 7);
  EXPECT_EQ(plan.PlaceOf(0, 1), ~101);     // a place in the tail
  EXPECT_EQ(plan.PlaceOfRow(0, 3), ~105);  // behind it
  ASSERT_EQ(builder.staged().size(), 1u);
  EXPECT_EQ(builder.staged()[0].first, 102);
  EXPECT_EQ(builder.staged()[0].count, 4);
}

TEST(Plan, FullAndPartialSequencesMix) {
  PassBuilder builder;
  Sequence partial = MakeSequence(34, 32, {3, 4});
  partial.tail_first = 200;
  partial.tail_len = 1;
  const std::vector<int32_t> ids = {4, 3};
  builder.AddTree(MakeSequence(4, 3, {1}), TokenTree(1));
  builder.AddPartialTree(partial, TokenTree(2), {.block_ids = ids, .num_lists = 2, .tokens = 16});
  EXPECT_EQ(builder.AddTree(MakeSequence(20, 19, {5, 6}), TokenTree(3)), 2);
  builder.AddPrompt(MakeSequence(9, 0, {}), {.slots = {64}, .new_blocks = {9}});
  const PassPlan& plan = builder.plan();
  EXPECT_EQ(plan.sequence_lists, (std::vector<int32_t>{0, 1, 3, 4, 5}));
  EXPECT_EQ(plan.BlocksOf(0, 1, 0, 1)[0], 1);
  EXPECT_EQ(plan.BlocksOf(1, 0, 0, 1)[0], 4);
  EXPECT_EQ(plan.BlocksOf(1, 1, 0, 1)[0], 3);
  EXPECT_EQ(plan.BlocksOf(2, 1, 0, 1).size(), 2u);
  EXPECT_EQ(plan.BlocksOf(3, 0, 0, 1)[0], 9);
  // Full trees are staged at their rows of the pass, the partial one behind its tail.
  ASSERT_EQ(builder.staged().size(), 3u);
  EXPECT_EQ(builder.staged()[1].first, 201);
  EXPECT_EQ(builder.staged()[2].first, 2);
  EXPECT_EQ(plan.PlaceOfRow(2, 2), ~2);
}

TEST(Plan, LogitsFromANodeOnAndScoresOfTheTree) {
  PassBuilder builder;
  TokenTree tree(1);  // a trunk of three, then the tree
  for (int i = 0; i < 5; ++i) tree.Add(i, i, 1);
  builder.AddTree(MakeSequence(4, 3, {1}), TokenTree(1));
  EXPECT_EQ(builder.RequestScores(0, 1, 0, {}), 0);
  const int first = builder.AddTree(MakeSequence(40, 39, {5, 6, 7}), tree, {}, 3);
  EXPECT_EQ(builder.RequestScores(first + 3, first + 6, 2, {.reduce = ScoreReduce::kMax}), 0);
  builder.AddTree(MakeSequence(40, 39, {8, 9, 10}), TokenTree(1));
  EXPECT_EQ(builder.RequestScores(7, 8, 2, {.scorer = BlockScorer::kH2o}), 2);
  const PassPlan& plan = builder.plan();
  EXPECT_EQ(plan.output_rows, (std::vector<int32_t>{0, 4, 5, 6, 7}));
  EXPECT_EQ(plan.num_scored_blocks(), 4);
  EXPECT_EQ(plan.scores[1].sequence, 1);
  EXPECT_EQ(plan.scores[1].row_begin, 4);
  EXPECT_EQ(plan.scores[1].reduce, ScoreReduce::kMax);
  EXPECT_EQ(plan.scores[2].scorer, BlockScorer::kH2o);
  builder.Reset();
  EXPECT_EQ(builder.plan().num_scored_blocks(), 0);
  EXPECT_TRUE(builder.staged().empty());
}

}  // namespace
}  // namespace talon
