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

// Whether none is above -inf, which is what scorers make of NaN.
bool AllNan(std::span<const float> scores) {
  return !scores.empty() && std::ranges::none_of(scores, [](float score) {
    return score > -std::numeric_limits<float>::infinity();
  });
}

void Append(std::span<const int32_t> blocks, std::vector<int32_t>* out) {
  out->insert(out->end(), blocks.begin(), blocks.end());
}

}  // namespace

int OmittedBlocks(const BlockBudget& budget, int full_blocks) {
  return std::max(0, full_blocks - budget.Total());
}

RankedBlocks RankedBlocksOf(const BlockBudget& budget, int full_blocks, int scored_end) {
  const Candidates candidates = CandidatesOf(budget, full_blocks, scored_end);
  const int retrieved = std::min(budget.retrieval, candidates.count());
  const int unscored = std::min(retrieved, candidates.end - candidates.scored);
  return {.first = candidates.first,
          .end = candidates.scored,
          .ranked = retrieved - unscored,
          .unscored = unscored,
          .candidates_end = candidates.end};
}

Result<BlockSelection> MakeSelection(std::span<const int32_t> ranked, const ListShape& lists,
                                     const BlockBudget& budget, int full_blocks, int scored_end) {
  const RankedBlocks blocks = RankedBlocksOf(budget, full_blocks, scored_end);
  const int num_lists = lists.layers * lists.kv_heads;
  TALON_CHECK(ranked.size() == static_cast<size_t>(num_lists) * blocks.ranked);
  BlockSelection selection{.layers = lists.layers,
                           .kv_heads = lists.kv_heads,
                           .full_blocks = full_blocks,
                           .budget = budget,
                           .retrieved = blocks.ranked + blocks.unscored};
  selection.indices.reserve(static_cast<size_t>(num_lists) * selection.retrieved);
  for (int list = 0; list < num_lists; ++list) {
    const auto chosen = ranked.subspan(static_cast<size_t>(list) * blocks.ranked, blocks.ranked);
    if (!chosen.empty() && chosen[0] < 0) {
      return FailedPrecondition("layer {} kv head {}: all {} candidates are NaN",
                                list / lists.kv_heads, list % lists.kv_heads,
                                blocks.end - blocks.first);
    }
    Append(chosen, &selection.indices);
    for (int block = blocks.candidates_end - blocks.unscored; block < blocks.candidates_end;
         ++block) {
      selection.indices.push_back(block);
    }
  }
  return selection;
}

Result<BlockSelection> SelectBlocks(const BlockScores& scores, const BlockBudget& budget,
                                    int full_blocks) {
  CheckShape(scores, full_blocks);
  const RankedBlocks blocks = RankedBlocksOf(budget, full_blocks, scores.end_block);
  const int scored = blocks.end - blocks.first;
  TALON_CHECK(scored == 0 || scores.first_block <= blocks.first);
  std::vector<int32_t> ranked;
  std::vector<int32_t> order(scored);
  for (int list = 0; list < scores.layers * scores.kv_heads && blocks.ranked > 0; ++list) {
    const std::span<const float> values = scores.values.subspan(
        static_cast<size_t>(list) * scores.stride + blocks.first - scores.first_block, scored);
    std::iota(order.begin(), order.end(), blocks.first);
    MoveBestToFront(order, blocks.ranked, values);
    std::sort(order.begin(), order.begin() + blocks.ranked);
    if (AllNan(values)) order[0] = -1;
    Append(std::span(order).first(blocks.ranked), &ranked);
  }
  return MakeSelection(ranked, {scores.layers, scores.kv_heads}, budget, full_blocks,
                       scores.end_block);
}

PartialLists MakePartialLists(const BlockSelection& selection,
                              std::span<const int32_t> sequence_blocks, int committed_len,
                              int block_size, std::span<const int> windows) {
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
    const bool slides = !windows.empty() && windows[layer] > 0;
    for (int head = 0; head < lists.kv_heads; ++head) {
      if (slides) {
        Append(sequence_blocks.last(lists.list_blocks), &lists.block_ids);
        continue;
      }
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
