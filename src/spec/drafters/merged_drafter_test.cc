#include "spec/drafters/merged_drafter.h"

#include <gtest/gtest.h>

#include <string>

namespace talon {
namespace {

constexpr DraftBudget kBudget{.max_nodes = 6, .max_depth = 5, .top_k = 1};

// Proposes chains of its own token, on the host or ahead of it.
class ChainDrafter : public Drafter {
 public:
  struct Kind {
    int32_t token = 0;
    bool lookup = false;
    bool ahead = false;
    int length = 2;
  };
  explicit ChainDrafter(const Kind& kind) : kind_(kind) {}
  std::string_view name() const override { return kind_.lookup ? "LOOKUP" : "MODEL"; }
  bool IsLookup() const override { return kind_.lookup; }
  bool GrowsAhead() const override { return kind_.ahead; }
  Status Begin(SequenceId, std::span<const int32_t>) override { return OkStatus(); }
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId, int) override {}
  void End(SequenceId) override {}

  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    for (size_t i = 0; i < requests.size(); ++i) trees[i] = Chain(requests[i], kind_.token);
    proposals += static_cast<int>(requests.size());
  }
  std::vector<bool> BeginTrees(std::span<const DraftRequest> requests, int most_nodes,
                               std::span<TokenTree> trees) override {
    most = most_nodes;
    begun.assign(requests.begin(), requests.end());
    for (size_t i = 0; i < requests.size(); ++i) trees[i] = Chain(requests[i], 0);
    return std::vector<bool>(requests.size(), true);
  }
  void PlaceTrees(std::span<const OutlineRows> outlines, Pass*) override {
    placed.assign(outlines.begin(), outlines.end());
  }
  void FinishTrees(std::span<TokenTree> trees) override {
    for (size_t i = 0; i < begun.size(); ++i) trees[i] = Chain(begun[i], kind_.token);
  }

  int proposals = 0;
  int most = 0;
  std::vector<DraftRequest> begun;
  std::vector<OutlineRows> placed;

 private:
  TokenTree Chain(const DraftRequest& request, int32_t token) const {
    TokenTree tree(request.tokens.back());
    for (int i = 0; i < kind_.length; ++i) tree.Add(i, token, 0.5f);
    return tree;
  }
  Kind kind_;
};

struct Pair {
  ChainDrafter* lookup = nullptr;
  ChainDrafter* model = nullptr;
  std::unique_ptr<MergedDrafter> merged;
};

Pair MakePair(const ChainDrafter::Kind& lookup, const ChainDrafter::Kind& model) {
  Pair pair;
  std::vector<MergedDrafter::Source> sources(2);
  auto first = std::make_unique<ChainDrafter>(lookup);
  auto second = std::make_unique<ChainDrafter>(model);
  pair.lookup = first.get();
  pair.model = second.get();
  sources[0] = {std::move(first), kBudget};
  sources[1] = {std::move(second), kBudget};
  pair.merged = std::make_unique<MergedDrafter>(std::move(sources));
  return pair;
}

std::vector<DraftRequest> Requests(const std::vector<int32_t>& tokens, int count) {
  std::vector<DraftRequest> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back({.sequence = i, .tokens = tokens, .budget = kBudget});
  }
  return requests;
}

TEST(MergedDrafter, AsksLookupsAloneWhereTheBudgetSaysSo) {
  const Pair pair = MakePair({.token = 7, .lookup = true}, {.token = 8});
  EXPECT_TRUE(pair.merged->HasLookups());
  const std::vector<int32_t> tokens = {1, 2};
  std::vector<DraftRequest> requests = Requests(tokens, 2);
  std::vector<TokenTree> trees(2, TokenTree(2));
  pair.merged->Propose(requests, trees);
  EXPECT_EQ(pair.lookup->proposals, 2);
  EXPECT_EQ(pair.model->proposals, 2);
  for (DraftRequest& request : requests) request.budget.lookups_only = true;
  pair.merged->Propose(requests, trees);
  EXPECT_EQ(pair.lookup->proposals, 4);
  EXPECT_EQ(pair.model->proposals, 2);
  EXPECT_EQ(trees[1].tokens, (std::vector<int32_t>{2, 7, 7}));
  EXPECT_FALSE(MakePair({.token = 7}, {.token = 8}).merged->HasLookups());
  const Pair lookups = MakePair({.token = 7, .lookup = true}, {.token = 8, .lookup = true});
  EXPECT_TRUE(lookups.merged->IsLookup());
  EXPECT_FALSE(lookups.merged->HasLookups()) << "whether they pay is what the policy decides";
}

// The model is allowed for the second and the third sequence only: theirs are outlines, and the
// model is told of them by its own numbers.
TEST(MergedDrafter, GrowsOneSourceAheadAndTellsItsOwnNumbers) {
  const Pair pair = MakePair({.token = 7, .lookup = true}, {.token = 8, .ahead = true});
  ASSERT_TRUE(pair.merged->GrowsAhead());
  const std::vector<int32_t> tokens = {1, 2};
  std::vector<DraftRequest> requests = Requests(tokens, 3);
  requests[0].sources = 1;
  std::vector<TokenTree> trees(3, TokenTree(2));
  const std::vector<bool> outlines = pair.merged->BeginTrees(requests, 4, trees);
  EXPECT_EQ(outlines, (std::vector<bool>{false, true, true}));
  EXPECT_EQ(pair.model->most, 4);
  EXPECT_EQ(trees[0].tokens, (std::vector<int32_t>{2, 7, 7}));
  EXPECT_EQ(trees[1].tokens, (std::vector<int32_t>{2, 0, 0}));
  const std::vector<OutlineRows> rows = {{.request = 2, .root_row = 5},
                                         {.request = 1, .root_row = 9}};
  pair.merged->PlaceTrees(rows, nullptr);
  ASSERT_EQ(pair.model->placed.size(), 2u);
  EXPECT_EQ(pair.model->placed[0].request, 1u);
  EXPECT_EQ(pair.model->placed[0].root_row, 5);
  EXPECT_EQ(pair.model->placed[1].request, 0u);
  std::vector<TokenTree> finished(3, TokenTree(2));
  pair.merged->FinishTrees(finished);
  EXPECT_EQ(finished[1].tokens, (std::vector<int32_t>{2, 8, 8}));
  EXPECT_EQ(finished[2].tokens, (std::vector<int32_t>{2, 8, 8}));
  EXPECT_EQ(pair.model->proposals, 0);
}

// Steps in which the lookup is right and the model is not: soon the model is left out, whichever is
// named first.
TEST(MergedDrafter, LearnsWhichTreeIsBetter) {
  const ChainDrafter::Kind lookup{.token = 7, .lookup = true, .length = 4};
  const ChainDrafter::Kind model{.token = 8, .ahead = true};
  for (const bool model_first : {false, true}) {
    const Pair pair = model_first ? MakePair(model, lookup) : MakePair(lookup, model);
    const std::vector<int32_t> tokens = {1, 2};
    ASSERT_TRUE(pair.merged->Begin(0, tokens).ok());
    int outlined = 0;
    for (int step = 0; step < 200; ++step) {
      std::vector<TokenTree> trees(1, TokenTree(2));
      const bool outline = pair.merged->BeginTrees(Requests(tokens, 1), 6, trees)[0];
      if (outline) pair.merged->FinishTrees(trees);
      outlined += outline ? 1 : 0;
      const std::vector<int32_t> right = {7, 7, 7, 7, 3};
      pair.merged->Observe(0, outline ? std::span(right).first(1) : std::span(right));
    }
    EXPECT_GT(outlined, 3) << model_first;
    EXPECT_LT(outlined, 20) << model_first;
  }
}

}  // namespace
}  // namespace talon
