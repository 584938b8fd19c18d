#include "spec/drafters/ngram_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "spec/drafters/test_drafts.h"

namespace talon {
namespace {

using Tokens = std::vector<int32_t>;

TEST(NgramDrafter, CorpusIsASource) {
  const std::vector<Tokens> corpus = {{1, 2, 3, 4}, {5, 6}};
  NgramDrafter drafter({}, corpus);
  EXPECT_EQ(Propose(&drafter, {9, 1, 2}).tokens, (Tokens{2, 3, 4}));
  EXPECT_EQ(Propose(&drafter, {3, 4}).size(), 1) << "documents do not run into each other";
}

// Frequencies of all runs of up to `depth` tokens, counted one by one.
std::map<Tokens, uint32_t> CountRuns(const Tokens& text, size_t depth) {
  std::map<Tokens, uint32_t> counts;
  for (size_t start = 0; start < text.size(); ++start) {
    for (size_t length = 1; length <= depth && start + length <= text.size(); ++length) {
      ++counts[Tokens(text.begin() + start, text.begin() + start + length)];
    }
  }
  return counts;
}

void ExpectCounts(const NgramTrie& trie, const std::map<Tokens, uint32_t>& counts) {
  ASSERT_EQ(trie.size(), counts.size());
  for (const auto& [run, count] : counts) {
    const NgramTrie::NodeId node = trie.Find(run);
    ASSERT_NE(node, NgramTrie::kNone);
    ASSERT_EQ(trie.Frequency(node), count);
  }
}

TEST(NgramTrie, CountsEveryRunHoweverTheTextGrows) {
  std::mt19937 generator(2);
  const Tokens text = RandomTokens(300, 4, 3);
  NgramTrie trie(5, 10000);
  for (size_t size = 0; size < text.size();) {
    const size_t grown = std::min(text.size(), size + 1 + generator() % 9);
    trie.Insert(std::span(text).first(grown), size);
    size = grown;
  }
  ExpectCounts(trie, CountRuns(text, 5));
}

TEST(NgramTrie, RemoveUndoesInsert) {
  const Tokens text = RandomTokens(200, 4, 4);
  for (const size_t kept : {0, 3, 100, 199}) {
    NgramTrie trie(6, 10000);
    trie.Insert(text, 0);
    trie.Remove(text, kept);
    ExpectCounts(trie, CountRuns(Tokens(text.begin(), text.begin() + kept), 6));
  }
}

TEST(NgramTrie, StaysWithinCapacity) {
  NgramTrie trie(6, 50);
  const Tokens text = RandomTokens(2000, 50, 5);
  for (size_t i = 0; i < text.size(); ++i) {
    trie.Insert(std::span(text).first(i + 1), i);
    ASSERT_LE(trie.size(), 50u);
  }
  EXPECT_NE(trie.Find(std::span(text).last(6)), NgramTrie::kNone) << "the newest run is there";
}

TEST(NgramTrie, EvictsLeastRecentlyUsedLeavesFirst) {
  NgramTrie trie(2, 8);
  const Tokens old_run = {1, 2}, used_run = {3, 4};
  trie.Insert(old_run, 0);   // nodes 1, 1-2, 2
  trie.Insert(used_run, 0);  // nodes 3, 3-4, 4
  trie.Insert(old_run, 1);   // 1, 1-2 and 2 are used again
  trie.Insert(Tokens{5, 6}, 0);
  EXPECT_EQ(trie.Find(used_run), NgramTrie::kNone);
  EXPECT_NE(trie.Find(old_run), NgramTrie::kNone);
  EXPECT_NE(trie.Find(Tokens{5, 6}), NgramTrie::kNone);
}

TEST(NgramDrafter, BreadthFormula) {
  const NgramOptions options;
  for (int match = 1; match <= 17; ++match) {
    for (int level = 0; level < 17; ++level) {
      const double breadth = 1 + (17 - match) * 9.0 / 17 - level * 9.0 / 17;
      EXPECT_EQ(options.Breadth(match, level), std::max(1, static_cast<int>(breadth)));
    }
  }
  EXPECT_EQ(options.Breadth(17, 0), 1);
  EXPECT_EQ(options.Breadth(1, 0), 9);
}

// "1" is followed by 2, and "2" and "1 2" by twenty others.
TEST(NgramDrafter, DeeperLevelsAreNarrower) {
  Tokens text;
  for (int32_t i = 0; i < 20; ++i) text.insert(text.end(), {1, 2, 100 + i, 200 + i});
  NgramDrafter drafter;
  ASSERT_TRUE(drafter.Begin(1, text).ok());
  const TokenTree tree = Propose(&drafter, {99, 1}, {.max_nodes = 60, .max_depth = 2});
  const int first = tree.FindChild(0, 2);
  ASSERT_GT(first, 0);
  const NgramOptions options;
  EXPECT_LT(options.Breadth(1, 1), options.Breadth(1, 0));
  EXPECT_EQ(std::count(tree.parents.begin(), tree.parents.end(), first), options.Breadth(1, 1));
  const TokenTree flat = Propose(&drafter, {99, 2}, {.max_nodes = 60, .max_depth = 1});
  EXPECT_EQ(std::ranges::count(flat.parents, 0), options.Breadth(1, 0));
}

TEST(NgramDrafter, CopiesWhatFollowedTheLongestMatch) {
  NgramDrafter drafter;
  const Tokens prompt = {7, 1, 2, 3, 4, 5, 8, 2, 3, 9, 1, 2, 3};
  ASSERT_TRUE(drafter.Begin(1, prompt).ok());
  const TokenTree tree = Propose(&drafter, prompt);
  // "1 2 3" was followed by 4 5 8 2 .., "2 3" most recently by 9.
  EXPECT_EQ(tree.tokens[0], 3);
  EXPECT_EQ(tree.tokens[1], 4) << "the longer match is preferred";
  EXPECT_EQ(tree.FindChild(0, 9), 2);
  EXPECT_EQ(tree.tokens[tree.FindChild(tree.FindChild(0, 4), 5)], 5);
}

TEST(NgramDrafter, ChildrenByRecencyInBfsByFrequencyInProb) {
  const Tokens text = {1, 5, 0, 1, 5, 0, 1, 6, 0, 1};
  NgramDrafter bfs;
  ASSERT_TRUE(bfs.Begin(1, text).ok());
  const Tokens context = {99, 1};
  const TokenTree recent = Propose(&bfs, context, {.max_nodes = 3, .max_depth = 1});
  EXPECT_EQ(recent.tokens, (Tokens{1, 6, 5}));

  NgramDrafter prob({.growth = NgramOptions::Growth::kProb});
  ASSERT_TRUE(prob.Begin(1, text).ok());
  const TokenTree frequent = Propose(&prob, context, {.max_nodes = 3, .max_depth = 1});
  EXPECT_EQ(frequent.tokens, (Tokens{1, 5, 6}));
  EXPECT_FLOAT_EQ(frequent.probs[1], 2.0f / 3);
  EXPECT_FLOAT_EQ(frequent.probs[2], 1.0f / 3);
}

// After 1 come 2 (4 of 6) and 3 (2 of 6); after 2 come 4 (3 of 4) and 5 (1 of 4). Products: 2 .67,
// 2-4 .5, 3 .33, 2-5 .17.
TEST(NgramDrafter, ProbGrowsBestFirst) {
  NgramDrafter drafter({.growth = NgramOptions::Growth::kProb, .max_trie_depth = 3});
  const std::vector<Tokens> texts = {{1, 2, 4}, {1, 2, 4}, {1, 2, 4}, {1, 2, 5}, {1, 3}, {1, 3}};
  for (SequenceId i = 0; const Tokens& text : texts) {
    ASSERT_TRUE(drafter.Begin(++i, text).ok());
  }
  const auto drafted = [&](int nodes) {
    return Propose(&drafter, {1}, {.max_nodes = nodes, .max_depth = 8}).tokens;
  };
  EXPECT_EQ(drafted(2), (Tokens{1, 2}));
  EXPECT_EQ(drafted(3), (Tokens{1, 2, 4}));
  EXPECT_EQ(drafted(4), (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(drafted(5), (Tokens{1, 2, 3, 4, 5}));
}

TEST(NgramDrafter, LearnsFromObserveAndEarlierRequestsOnly) {
  NgramDrafter drafter;
  ASSERT_TRUE(drafter.Begin(1, Tokens{1, 2}).ok());
  const Tokens context = {8, 9, 10};
  EXPECT_EQ(Propose(&drafter, context).size(), 1);
  EXPECT_EQ(Propose(&drafter, context).size(), 1) << "proposing teaches nothing";
  drafter.Observe(1, Tokens{9, 10, 11});
  drafter.End(1);
  ASSERT_TRUE(drafter.Begin(2, context).ok());
  EXPECT_EQ(Propose(&drafter, context).tokens, (Tokens{10, 11}));
}

TEST(NgramDrafter, RewindForgets) {
  NgramDrafter drafter;
  const Tokens prompt = RandomTokens(50, 5, 8);
  ASSERT_TRUE(drafter.Begin(1, prompt).ok());
  const size_t size = drafter.trie().size();
  drafter.Observe(1, RandomTokens(40, 5, 9));
  EXPECT_GT(drafter.trie().size(), size);
  drafter.Rewind(1, 50);
  EXPECT_EQ(drafter.trie().size(), size);
  ExpectCounts(drafter.trie(), CountRuns(prompt, 18));
}

TEST(NgramDrafter, MinimaCutContinuations) {
  const Tokens text = {1, 5, 0, 1, 5, 0, 1, 6, 0, 1};
  NgramDrafter by_count({.min_frequency = 2});
  ASSERT_TRUE(by_count.Begin(1, text).ok());
  EXPECT_EQ(Propose(&by_count, {99, 1}, {.max_nodes = 9, .max_depth = 1}).tokens, (Tokens{1, 5}));
  NgramDrafter by_share({.min_share = 0.5f});
  ASSERT_TRUE(by_share.Begin(1, text).ok());
  EXPECT_EQ(Propose(&by_share, {99, 1}, {.max_nodes = 9, .max_depth = 1}).tokens, (Tokens{1, 5}));
}

TEST(NgramDrafter, FlatLookupIsASetting) {
  Tokens text = RandomTokens(400, 1000, 10);
  const Tokens again(text.begin() + 100, text.begin() + 112);
  text.insert(text.end(), again.begin(), again.end());
  NgramDrafter drafter(
      {.max_trie_depth = 60, .min_match = 12, .max_match = 12, .min_breadth = 1, .max_breadth = 1});
  ASSERT_TRUE(drafter.Begin(1, text).ok());
  const TokenTree tree = Propose(&drafter, text, {.max_nodes = 49, .max_depth = 48});
  EXPECT_EQ(Tokens(tree.tokens.begin() + 1, tree.tokens.end()),
            Tokens(text.begin() + 112, text.begin() + 160));
}

TEST(NgramDrafter, TreesAreValidOnRandomInput) {
  constexpr int kVocab = 6;
  std::mt19937 generator(11);
  for (const NgramOptions& options :
       {NgramOptions{}, NgramOptions{.growth = NgramOptions::Growth::kProb},
        NgramOptions{.max_trie_depth = 7, .capacity = 200}}) {
    NgramDrafter drafter(options);
    Tokens tokens = RandomTokens(20, kVocab, 12);
    ASSERT_TRUE(drafter.Begin(1, tokens).ok());
    for (int step = 0; step < 400; ++step) {
      const int nodes = 1 + static_cast<int>(generator() % 40);
      const int depth = static_cast<int>(generator() % 10);
      const TokenTree tree = Propose(&drafter, tokens, {.max_nodes = nodes, .max_depth = depth});
      const Status status = ValidateTree(tree, {.max_nodes = nodes,
                                                .max_depth = depth,
                                                .vocab_size = kVocab,
                                                .committed_len = 0,
                                                .max_length = 100});
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(tree.tokens[0], tokens.back());
      ASSERT_TRUE(std::ranges::all_of(tree.probs, [](float p) { return p > 0 && p <= 1; }));
      const Tokens emitted = RandomTokens(1 + step % 5, kVocab, generator());
      drafter.Observe(1, emitted);
      tokens.insert(tokens.end(), emitted.begin(), emitted.end());
      if (step % 7 == 0) {
        tokens.resize(tokens.size() - generator() % 9);
        drafter.Rewind(1, static_cast<int>(tokens.size()));
      }
    }
  }
}

TEST(NgramDrafter, BadOptionsAndCallsAreErrors) {
  EXPECT_TRUE(NgramOptions{}.Validate().ok());
  EXPECT_EQ(NgramOptions{.max_trie_depth = 1}.Validate().message(),
            "ngram: max_trie_depth: 1, must be 2 to 128");
  EXPECT_FALSE(NgramOptions{.capacity = 3}.Validate().ok());
  EXPECT_FALSE(NgramOptions{.max_match = 18}.Validate().ok());
  EXPECT_FALSE((NgramOptions{.min_breadth = 3, .max_breadth = 2}.Validate().ok()));
  EXPECT_EQ((NgramOptions{.min_breadth = 0, .max_breadth = 2}.Validate().message()),
            "ngram: breadths 0 to 2, must be 1 <= min <= max <= 10");
  NgramDrafter drafter;
  ASSERT_TRUE(drafter.Begin(1, Tokens{1}).ok());
  EXPECT_EQ(drafter.Begin(1, Tokens{1}).message(), "ngram: sequence 1 has already begun");
  drafter.Observe(2, Tokens{1});
  drafter.Rewind(2, 0);
  drafter.End(2);
  EXPECT_EQ(drafter.trie().size(), 1u) << "unknown sequences change nothing";
}

}  // namespace
}  // namespace talon
