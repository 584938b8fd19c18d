#include "spec/specpv/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace talon {
namespace {

// The candidates of retrieval, the same for all lists. Short sequences have none.
struct Candidates {
  int first = 0;   // S, or F if there are not that many
  int scored = 0;  // end of those with a score
  int end = 0;     // F - W, at least `first`

  int count() const { return end - first; }
};

Candidates CandidatesOf(const BlockBudget& budget, int full_blocks, int scored_end) {
  const int first = std::min(budget.sink, full_blocks);
  const int end = std::max(first, full_blocks - budget.window);
  return {.first = first, .scored = std::clamp(scored_end, first, end), .end = end};
}

void CheckShape(const BlockScores& scores, int full_blocks) {
  const int row = scores.end_block - scores.first_block;
  const size_t lists = static_cast<size_t>(scores.layers) * scores.kv_heads;
  TALON_CHECK(lists > 0);
  TALON_CHECK(scores.first_block >= 0 && row >= 0 && scores.end_block <= full_blocks,
              "scores [{}, {}) of {} full blocks", scores.first_block, scores.end_block,
              full_blocks);
  TALON_CHECK(row <= scores.stride || row == 0);
  TALON_CHECK(row == 0 || scores.values.size() >= (lists - 1) * scores.stride + row);
}

// Moves the `count` best of `blocks`, which are consecutive, to the front, in any order.
void MoveBestToFront(std::span<int32_t> blocks, int count, std::span<const float> scores) {
  const auto score_of = [&scores, first = blocks.front()](int32_t block) {
    const float score = scores[block - first];
    return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
  };
  std::nth_element(blocks.begin(), blocks.begin() + count, blocks.end(), [&](int32_t a, int32_t b) {
    const float score_a = score_of(a), score_b = score_of(b);
    return score_a != score_b ? score_a > score_b : a < b;
  });
}

bool AllNan(std::span<const float> scores) {
  return !scores.empty() &&
         std::all_of(scores.begin(), scores.end(), [](float score) { return std::isnan(score); });
}

void Append(std::span<const int32_t> blocks, std::vector<int32_t>* out) {
  out->insert(out->end(), blocks.begin(), blocks.end());
}

}  // namespace

int OmittedBlocks(const BlockBudget& budget, int full_blocks) {
  return std::max(0, full_blocks - budget.Total());
}

Result<BlockSelection> SelectBlocks(const BlockScores& scores, const BlockBudget& budget,
                                    int full_blocks) {
  CheckShape(scores, full_blocks);
  const Candidates candidates = CandidatesOf(budget, full_blocks, scores.end_block);
  const int scored = candidates.scored - candidates.first;
  TALON_CHECK(scored == 0 || scores.first_block <= candidates.first);

  BlockSelection selection{.layers = scores.layers,
                           .kv_heads = scores.kv_heads,
                           .full_blocks = full_blocks,
                           .budget = budget,
                           .retrieved = std::min(budget.retrieval, candidates.count())};
  const int unscored = std::min(selection.retrieved, candidates.end - candidates.scored);
  const int ranked = selection.retrieved - unscored;
  const size_t lists = static_cast<size_t>(scores.layers) * scores.kv_heads;
  selection.indices.reserve(lists * selection.retrieved);
  std::vector<int32_t> blocks(scored);
  for (size_t list = 0; list < lists; ++list) {
    if (ranked > 0) {
      const std::span<const float> values = scores.values.subspan(
          list * scores.stride + candidates.first - scores.first_block, scored);
      if (AllNan(values)) {
        return FailedPrecondition("layer {} kv head {}: all {} candidates are NaN",
                                  list / scores.kv_heads, list % scores.kv_heads, scored);
      }
      std::iota(blocks.begin(), blocks.end(), candidates.first);
      MoveBestToFront(blocks, ranked, values);
      std::sort(blocks.begin(), blocks.begin() + ranked);
      Append(std::span(blocks).first(ranked), &selection.indices);
    }
    for (int block = candidates.end - unscored; block < candidates.end; ++block) {
      selection.indices.push_back(block);
    }
  }
  return selection;
}

PartialLists MakePartialLists(const BlockSelection& selection,
                              std::span<const int32_t> sequence_blocks, int committed_len,
                              int block_size) {
  const int full = committed_len / block_size;
  const int remainder = committed_len % block_size;
  TALON_CHECK(full == selection.full_blocks, "{} full blocks, selection made with {}", full,
              selection.full_blocks);
  TALON_CHECK(sequence_blocks.size() == static_cast<size_t>(full) + (remainder > 0 ? 1 : 0));
  const Candidates candidates = CandidatesOf(selection.budget, full, full);
  const auto sink = sequence_blocks.first(candidates.first);
  const auto recent = sequence_blocks.subspan(candidates.end);  // window and partial block

  PartialLists lists{.layers = selection.layers, .kv_heads = selection.kv_heads};
  lists.list_blocks = static_cast<int>(sink.size() + recent.size()) + selection.retrieved;
  lists.visible_tokens = (lists.list_blocks - (remainder > 0 ? 1 : 0)) * block_size + remainder;
  lists.block_ids.reserve(static_cast<size_t>(lists.layers) * lists.kv_heads * lists.list_blocks);
  for (int layer = 0; layer < lists.layers; ++layer) {
    for (int head = 0; head < lists.kv_heads; ++head) {
      Append(sink, &lists.block_ids);
      for (const int32_t index : selection.List(layer, head)) {
        lists.block_ids.push_back(sequence_blocks[index]);
      }
      Append(recent, &lists.block_ids);
    }
  }
  return lists;
}

}  // namespace talon
