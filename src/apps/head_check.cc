#include "apps/head_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "spec/token_tree.h"

namespace talon {
namespace {

// A golden's tree, which has no root, by depth.
struct GoldenTree {
  std::vector<int32_t> tokens, parents;
  std::vector<float> scores;  // empty: none
};

Result<GoldenTree> ReadTree(const GoldenFile& file) {
  TALON_ASSIGN_OR_RETURN(const auto tokens, file.Ints("tree.tokens"));
  TALON_ASSIGN_OR_RETURN(const auto parents, file.Ints("tree.parents"));
  const auto count = static_cast<int32_t>(tokens.size());
  if (parents.size() != tokens.size()) {
    return InvalidArgument("{}: {} tree.tokens, but {} tree.parents", file.path(), tokens.size(),
                           parents.size());
  }
  for (int32_t i = 0; i < count; ++i) {
    if (parents[i] >= -1 && parents[i] < i) continue;
    return InvalidArgument("{}: tree.parents: node {} has parent {}", file.path(), i, parents[i]);
  }
  std::vector<float> scores;
  if (file.Has("tree.scores")) {
    TALON_ASSIGN_OR_RETURN(scores, file.Floats("tree.scores", {count}));
  }
  const std::vector<int32_t> depths = TreeDepths(parents);
  std::vector<int32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t node) { return depths[node]; });
  std::vector<int32_t> place(tokens.size());
  GoldenTree tree;
  for (const int32_t node : order) {
    place[node] = static_cast<int32_t>(tree.tokens.size());
    tree.tokens.push_back(tokens[node]);
    tree.parents.push_back(parents[node] < 0 ? -1 : place[parents[node]]);
    if (!scores.empty()) tree.scores.push_back(scores[node]);
  }
  return tree;
}

}  // namespace

Result<std::vector<int32_t>> ReadHeadTokens(const GoldenFile& file, const char* after) {
  TALON_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, file.Ints("input_ids"));
  TALON_ASSIGN_OR_RETURN(const std::vector<int32_t> last, file.Ints(after));
  if (last.size() != 1) {
    return InvalidArgument("{}: tensor {} has {} tokens, expected 1", file.path(), after,
                           last.size());
  }
  tokens.push_back(last[0]);
  return tokens;
}

Result<SingleSequence::Rows> RunTarget(Decoder* target, Backend* backend,
                                       std::span<const int32_t> prompt,
                                       const std::vector<int>& capture_layers, DType kv_dtype) {
  TALON_RETURN_IF_ERROR(target->SetCaptureLayers(capture_layers));
  TALON_ASSIGN_OR_RETURN(
      SingleSequence sequence,
      SingleSequence::Create(
          target, backend, {.max_tokens = static_cast<int>(prompt.size()), .kv_dtype = kv_dtype}));
  return sequence.Append(prompt);
}

Result<Scratch> UploadRows(Backend* backend, std::span<const float> values, int cols) {
  const int rows = static_cast<int>(values.size()) / cols;
  TALON_ASSIGN_OR_RETURN(Scratch scratch, NewScratch(backend, rows, cols));
  for (int row = 0; row < rows; ++row) {
    backend->CopyIn(scratch.all.Rows(row, 1).data, values.data() + static_cast<size_t>(row) * cols,
                    static_cast<size_t>(cols) * sizeof(float));
  }
  return scratch;
}

Result<TokenTree> DraftTree(Drafter* drafter, std::span<const int32_t> tokens, MatrixView features,
                            const DraftBudget& budget) {
  constexpr SequenceId kSequence = 1;
  TALON_RETURN_IF_ERROR(drafter->Begin(kSequence, tokens.first(tokens.size() - 1)));
  CommittedRows committed{.sequence = kSequence, .tokens = tokens, .first = 0, .rows = {}};
  committed.rows.resize(tokens.size() - 1);
  std::iota(committed.rows.begin(), committed.rows.end(), 0);
  drafter->Extend({&committed, 1}, features);
  const DraftRequest request{.sequence = kSequence, .tokens = tokens, .budget = budget};
  TokenTree tree(tokens.back());
  drafter->Propose({&request, 1}, {&tree, 1});
  return tree;
}

Status CompareTree(const GoldenFile& file, const TokenTree& tree, double tolerance,
                   std::vector<GoldenCase>* cases) {
  TALON_ASSIGN_OR_RETURN(const GoldenTree expected, ReadTree(file));
  const std::vector<int32_t> tokens(tree.tokens.begin() + 1, tree.tokens.end());
  std::vector<int32_t> parents;
  std::vector<float> scores = {0};
  for (size_t node = 1; node < tree.tokens.size(); ++node) {
    parents.push_back(tree.parents[node] - 1);
    scores.push_back(scores[static_cast<size_t>(tree.parents[node])] + std::log(tree.probs[node]));
  }
  scores.erase(scores.begin());
  cases->push_back(CompareInts("tree tokens", tokens, expected.tokens, "tokens"));
  cases->push_back(CompareInts("tree parents", parents, expected.parents, "parents"));
  if (expected.scores.empty() || scores.size() != expected.scores.size()) return OkStatus();
  cases->push_back(CompareFloats("tree scores", scores, expected.scores, tolerance));
  return OkStatus();
}

}  // namespace talon
