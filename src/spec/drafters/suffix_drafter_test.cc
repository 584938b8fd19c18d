#include "spec/drafters/suffix_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "spec/drafters/test_drafts.h"

namespace talon {
namespace {

using Tokens = std::vector<int32_t>;

// What followed `run` in the documents, and how often the run occurs, counted one by one.
struct Occurrences {
  int64_t count = 0;
  std::map<int32_t, int> next;
};
Occurrences CountOccurrences(const std::vector<Tokens>& documents, const Tokens& run) {
  Occurrences found;
  for (const Tokens& document : documents) {
    for (size_t start = 0; start + run.size() <= document.size(); ++start) {
      if (!std::equal(run.begin(), run.end(), document.begin() + start)) continue;
      ++found.count;
      if (start + run.size() < document.size()) ++found.next[document[start + run.size()]];
    }
  }
  return found;
}

void ExpectRunMatches(const SuffixTree& tree, const std::vector<Tokens>& documents,
                      const Tokens& run) {
  const Occurrences expected = CountOccurrences(documents, run);
  SuffixTree::Cursor cursor = tree.Root();
  bool found = true;
  for (const int32_t token : run) found = found && tree.Descend(token, &cursor);
  ASSERT_EQ(found, expected.count > 0);
  if (!found) return;
  ASSERT_EQ(tree.Count(cursor), expected.count);
  if (run.size() == static_cast<size_t>(tree.depth())) return;
  std::vector<SuffixTree::Continuation> continuations;
  const int64_t total = tree.Continuations(cursor, &continuations);
  ASSERT_EQ(tree.HasNext(cursor), !expected.next.empty());
  ASSERT_EQ(continuations.size(), expected.next.size());
  int64_t sum = 0;
  for (const auto& [token, count] : continuations) {
    ASSERT_EQ(count, expected.next.at(token));
    sum += count;
  }
  ASSERT_EQ(total, sum);
}

// Every run of the documents, and some that are not in them.
void ExpectMatchesBruteForce(const SuffixTree& tree, const std::vector<Tokens>& documents) {
  for (const Tokens& document : documents) {
    for (size_t start = 0; start < document.size(); ++start) {
      for (size_t length = 1; length <= static_cast<size_t>(tree.depth()); ++length) {
        if (start + length > document.size()) break;
        Tokens run(document.begin() + start, document.begin() + start + length);
        ExpectRunMatches(tree, documents, run);
        run.back() = (run.back() + 1) % 3;
        ExpectRunMatches(tree, documents, run);
      }
    }
  }
}

TEST(SuffixTree, CountsMatchBruteForceWhileTextGrowsAndShrinks) {
  std::mt19937 generator(1);
  for (const int depth : {2, 5, 9}) {
    SuffixTree tree(depth, SuffixTree::Removal::kNewest);
    Tokens text;
    for (int step = 0; step < 60; ++step) {
      const Tokens more = RandomTokens(generator() % 8, 2 + step % 2, generator());
      tree.Append(more);
      text.insert(text.end(), more.begin(), more.end());
      if (step % 3 == 2) {
        const size_t count = std::min<size_t>(text.size(), generator() % 14);
        tree.RemoveNewest(count);
        text.resize(text.size() - count);
      }
      ExpectMatchesBruteForce(tree, {text});
      ASSERT_LE(tree.num_nodes(), 2 * text.size());
    }
    tree.RemoveNewest(text.size());
    EXPECT_EQ(tree.num_nodes(), 0u);
  }
}

TEST(SuffixTree, CountsMatchBruteForceWhileDocumentsComeAndGo) {
  std::mt19937 generator(2);
  for (const int depth : {2, 6}) {
    SuffixTree tree(depth, SuffixTree::Removal::kOldest);
    std::vector<Tokens> documents;
    for (int step = 0; step < 60; ++step) {
      documents.push_back(RandomTokens(1 + generator() % 20, 2 + step % 2, generator()));
      tree.Append(documents.back());
      tree.EndDocument();
      if (documents.size() > 4) {
        tree.RemoveOldest(documents.front().size() + depth - 1);
        documents.erase(documents.begin());
      }
      ExpectMatchesBruteForce(tree, documents);
    }
    tree.RemoveOldest(tree.size());
    EXPECT_EQ(tree.num_nodes(), 0u);
  }
}

TEST(SuffixDrafter, CopiesTheLongestMatchUpToItsLength) {
  SuffixDrafter drafter;
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3};
  ASSERT_TRUE(drafter.Begin(1, text).ok());
  const TokenTree tree = Propose(&drafter, text);
  EXPECT_EQ(tree.tokens, (Tokens{3, 4, 5, 6})) << "a match of 3 drafts 3";
  EXPECT_EQ(tree.probs, (std::vector<float>{1, 1, 1, 1}));
  EXPECT_EQ(Propose(&drafter, text, {.max_nodes = 3, .max_depth = 16}).size(), 3);
  EXPECT_EQ(Propose(&drafter, text, {.max_nodes = 12, .max_depth = 1}).size(), 2);
  EXPECT_EQ(Propose(&drafter, text, {.max_nodes = 1, .max_depth = 0}).size(), 1);

  SuffixDrafter longer({.length_factor = 2});
  ASSERT_TRUE(longer.Begin(1, text).ok());
  EXPECT_EQ(Propose(&longer, text).size(), 7);
}

TEST(SuffixDrafter, DraftsPastTheCountedDepth) {
  Tokens text = RandomTokens(60, 1000, 3);
  const Tokens again(text.begin(), text.begin() + 23);
  text.insert(text.end(), again.begin(), again.end());
  SuffixDrafter drafter;
  ASSERT_TRUE(drafter.Begin(1, text).ok());
  const TokenTree tree = Propose(&drafter, text, {.max_nodes = 64, .max_depth = 64});
  EXPECT_EQ(Tokens(tree.tokens.begin() + 1, tree.tokens.end()),
            Tokens(text.begin() + 23, text.begin() + 46));
}

TEST(SuffixDrafter, SharesAndTheProbabilityFloor) {
  // After 1: 2 eight times, 3 once, 4 once; the last 1 has no successor.
  Tokens text;
  for (int i = 0; i < 10; ++i) {
    text.push_back(1);
    text.push_back(i < 8 ? 2 : i - 5);
    text.push_back(100 + i);
  }
  text.insert(text.end(), {50, 1});
  SuffixDrafter drafter({.min_path_prob = 0.1});
  ASSERT_TRUE(drafter.Begin(1, text).ok());
  const TokenTree all = Propose(&drafter, text);
  ASSERT_EQ(all.size(), 4);
  EXPECT_EQ(all.tokens[1], 2);
  EXPECT_FLOAT_EQ(all.probs[1], 0.8f);
  EXPECT_FLOAT_EQ(all.probs[2], 0.1f);

  SuffixDrafter strict({.min_path_prob = 0.11});
  ASSERT_TRUE(strict.Begin(1, text).ok());
  EXPECT_EQ(Propose(&strict, text).tokens, (Tokens{1, 2}));
}

TEST(SuffixDrafter, EarlierOutputsAreASourceTheirPromptsAreNot) {
  SuffixDrafter drafter;
  ASSERT_TRUE(drafter.Begin(7, Tokens{31, 32, 33}).ok());
  drafter.Observe(7, Tokens{41, 42, 43});
  const Tokens from_prompt = {9, 31}, from_output = {9, 41, 42};
  EXPECT_EQ(Propose(&drafter, from_output).size(), 1) << "a live sequence is private";
  drafter.End(7);
  EXPECT_EQ(drafter.num_cached(), 1u);
  EXPECT_EQ(Propose(&drafter, from_output).tokens, (Tokens{42, 43}));
  EXPECT_EQ(Propose(&drafter, from_prompt).size(), 1);
}

TEST(SuffixDrafter, OldestCachedOutputsLeaveFirst) {
  SuffixDrafter drafter({.max_cached_requests = 2});
  for (SequenceId i = 10; i < 13; ++i) {
    ASSERT_TRUE(drafter.Begin(i, Tokens{1}).ok());
    drafter.Observe(i, Tokens{static_cast<int32_t>(i), 5});
    drafter.End(i);
  }
  EXPECT_EQ(drafter.num_cached(), 2u);
  EXPECT_EQ(Propose(&drafter, {10}).size(), 1);
  EXPECT_EQ(Propose(&drafter, {11}).tokens, (Tokens{11, 5}));
  EXPECT_EQ(Propose(&drafter, {12}).tokens, (Tokens{12, 5}));

  SuffixDrafter small({.max_cached_tokens = 100});
  for (SequenceId i = 0; i < 20; ++i) {
    ASSERT_TRUE(small.Begin(i, Tokens{1}).ok());
    small.Observe(i, RandomTokens(70, 9, i));
    small.End(i);
    EXPECT_EQ(small.num_cached(), 1u);
  }
}

TEST(SuffixDrafter, CorpusIsASource) {
  const std::vector<Tokens> corpus = {{1, 2, 3, 4}, {5, 6}};
  SuffixDrafter drafter({}, corpus);
  EXPECT_EQ(Propose(&drafter, {9, 1, 2}).tokens, (Tokens{2, 3, 4}));
  EXPECT_EQ(Propose(&drafter, {3, 4}).size(), 1) << "documents do not run into each other";
}

TEST(SuffixDrafter, RewindForgets) {
  SuffixDrafter drafter;
  const Tokens prompt = {1, 2, 3, 1, 2};
  ASSERT_TRUE(drafter.Begin(1, prompt).ok());
  const TokenTree before = Propose(&drafter, prompt);
  for (int round = 0; round < 5; ++round) {
    drafter.Observe(1, RandomTokens(60, 4, round));
    drafter.Rewind(1, 5);
    EXPECT_EQ(Propose(&drafter, prompt).tokens, before.tokens);
  }
  drafter.Rewind(1, 2);
  EXPECT_EQ(Propose(&drafter, {1, 2}).size(), 1);
}

TEST(SuffixDrafter, TreesAreValidOnRandomInput) {
  constexpr int kVocab = 4;
  std::mt19937 generator(11);
  SuffixDrafter drafter({.max_cached_requests = 3, .length_factor = 3, .min_path_prob = 0.01});
  for (SequenceId id = 0; id < 20; ++id) {
    Tokens tokens = RandomTokens(20, kVocab, 100 + id);
    ASSERT_TRUE(drafter.Begin(id, tokens).ok());
    for (int step = 0; step < 50; ++step) {
      const int nodes = 1 + static_cast<int>(generator() % 40);
      const int depth = static_cast<int>(generator() % 30);
      const DraftRequest request{
          .sequence = id, .tokens = tokens, .budget = {.max_nodes = nodes, .max_depth = depth}};
      TokenTree tree(tokens.back());
      drafter.Propose({&request, 1}, {&tree, 1});
      const Status status = ValidateTree(tree, {.max_nodes = nodes,
                                                .max_depth = depth,
                                                .vocab_size = kVocab,
                                                .committed_len = 0,
                                                .max_length = 100});
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(tree.tokens[0], tokens.back());
      ASSERT_TRUE(std::ranges::all_of(tree.probs, [](float p) { return p > 0 && p <= 1; }));
      const Tokens emitted = RandomTokens(1 + step % 5, kVocab, generator());
      drafter.Observe(id, emitted);
      tokens.insert(tokens.end(), emitted.begin(), emitted.end());
      if (step % 7 == 0) {
        tokens.resize(tokens.size() - generator() % 30 % tokens.size());
        drafter.Rewind(id, static_cast<int>(tokens.size()));
      }
    }
    drafter.End(id);
  }
}

TEST(SuffixDrafter, BadOptionsAndCallsAreErrors) {
  EXPECT_TRUE(SuffixOptions{}.Validate().ok());
  EXPECT_EQ(SuffixOptions{.depth = 65}.Validate().message(), "suffix: depth: 65, must be 2 to 64");
  EXPECT_FALSE(SuffixOptions{.length_factor = 0}.Validate().ok());
  EXPECT_FALSE(SuffixOptions{.min_path_prob = 1.5}.Validate().ok());
  SuffixDrafter drafter;
  ASSERT_TRUE(drafter.Begin(1, Tokens{1}).ok());
  EXPECT_EQ(drafter.Begin(1, Tokens{1}).message(), "suffix: sequence 1 has already begun");
  drafter.Observe(2, Tokens{1});
  drafter.Rewind(2, 0);
  drafter.End(2);
  EXPECT_EQ(drafter.num_cached(), 0u) << "unknown sequences change nothing";
}

}  // namespace
}  // namespace talon
