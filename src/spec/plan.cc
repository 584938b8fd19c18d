#include "spec/plan.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace talon {

void PassBuilder::Reset() {
  plan_.Clear();
  plan_.sequence_rows.push_back(0);
  plan_.block_offsets.push_back(0);
  plan_.sequence_lists.push_back(0);
  tree_rows_ = 0;
  staged_.clear();
}

int PassBuilder::AddTree(const Sequence& sequence, const TokenTree& tree,
                         std::span<const int32_t> slots, int first_output) {
  TALON_CHECK(tree_rows_ == num_rows(), "trees come before prompts");
  const int first = num_rows();
  const int nodes = tree.size();
  const std::vector<int32_t> depth = TreeDepths(tree.parents);
  WidenMasks(MaskWords(nodes));
  for (int i = 0; i < nodes; ++i) {
    AddRow(tree.tokens[i], sequence.committed_len + depth[i], slots.empty() ? -1 : slots[i],
           sequence.committed_len);
    if (i >= first_output) plan_.output_rows.push_back(first + i);
  }
  const std::vector<uint64_t> masks = AncestorMasks(tree.parents, plan_.mask_words);
  std::copy(masks.begin(), masks.end(),
            plan_.ancestors.begin() + static_cast<int64_t>(first) * plan_.mask_words);
  tree_rows_ += nodes;
  if (slots.empty()) staged_.push_back({first, nodes});
  AddList(sequence.blocks);
  EndSequence(0, first);
  return first;
}

int PassBuilder::AddPartialTree(const Sequence& sequence, const TokenTree& tree,
                                const PartialView& view) {
  TALON_CHECK(tree_rows_ == num_rows(), "trees come before prompts");
  TALON_CHECK(sequence.tail_first >= 0, "sequence {} has no tail region", sequence.id);
  const int first = num_rows();
  const int nodes = tree.size();
  const int tail = sequence.tail_len;
  // The tail is a chain above the tree: nodes 0 .. P - 1.
  std::vector<int32_t> parents(tail + nodes);
  for (int i = 0; i < tail; ++i) parents[i] = i - 1;
  for (int i = 0; i < nodes; ++i) parents[tail + i] = tail + tree.parents[i];
  const std::vector<int32_t> depth = TreeDepths(parents);
  WidenMasks(MaskWords(tail + nodes));
  const std::vector<uint64_t> masks = AncestorMasks(parents, plan_.mask_words);
  for (int i = 0; i < nodes; ++i) {
    AddRow(tree.tokens[i], sequence.committed_len + depth[tail + i], -1, view.tokens);
    plan_.output_rows.push_back(first + i);
  }
  std::copy(masks.begin() + static_cast<int64_t>(tail) * plan_.mask_words, masks.end(),
            plan_.ancestors.begin() + static_cast<int64_t>(first) * plan_.mask_words);
  tree_rows_ += nodes;
  staged_.push_back({sequence.tail_first + tail, nodes});
  const size_t blocks = view.block_ids.size() / view.num_lists;
  for (int list = 0; list < view.num_lists; ++list) {
    AddList(view.block_ids.subspan(list * blocks, blocks));
  }
  EndSequence(tail, sequence.tail_first);
  return first;
}

int PassBuilder::AddForest(const PrefixView& prefix, int position, std::span<const int32_t> tokens,
                           std::span<const int32_t> parents, int first_node, int staging_base) {
  TALON_CHECK(tree_rows_ == num_rows(), "trees come before prompts");
  const int first = num_rows();
  const auto nodes = static_cast<int>(tokens.size());
  const std::vector<int32_t> depth = TreeDepths(parents);
  WidenMasks(MaskWords(nodes));
  const std::vector<uint64_t> masks = AncestorMasks(parents, plan_.mask_words);
  for (int i = first_node; i < nodes; ++i) {
    AddRow(tokens[i], position + depth[i], -1, prefix.tokens);
    std::copy_n(masks.begin() + static_cast<int64_t>(i) * plan_.mask_words, plan_.mask_words,
                plan_.ancestors.end() - plan_.mask_words);
    plan_.output_rows.push_back(num_rows() - 1);
  }
  tree_rows_ += nodes - first_node;
  staged_.push_back({staging_base + first_node, nodes - first_node});
  AddList(prefix.blocks);
  EndSequence(first_node, staging_base);
  return first;
}

int PassBuilder::AddBlock(const PrefixView& prefix, const Block& block) {
  TALON_CHECK(tree_rows_ == num_rows(), "trees come before prompts");
  const int first = num_rows();
  const auto rows = static_cast<int>(block.tokens.size());
  WidenMasks(MaskWords(rows));
  for (int i = 0; i < rows; ++i) {
    AddRow(block.tokens[i], block.position + i, -1, prefix.tokens);
    uint64_t* mask = &*(plan_.ancestors.end() - plan_.mask_words);
    for (int seen = 0; seen < (block.causal ? i + 1 : rows); ++seen) {
      mask[seen / 64] |= uint64_t{1} << (seen % 64);
    }
    const bool output = i >= block.first_output && i < block.first_output + block.outputs;
    if (output) plan_.output_rows.push_back(first + i);
  }
  tree_rows_ += rows;
  staged_.push_back({block.staging_base, rows});
  AddList(prefix.blocks);
  EndSequence(0, block.staging_base);
  return first;
}

int PassBuilder::AddPrompt(const Sequence& sequence, const Reservation& reservation, int outputs) {
  const int first = num_rows();
  const int count = static_cast<int>(reservation.slots.size());
  for (int i = 0; i < count; ++i) {
    const int position = sequence.committed_len + i;
    AddRow(sequence.tokens[position], position, reservation.slots[i], position + 1);
    if (i >= count - outputs) plan_.output_rows.push_back(first + i);
  }
  std::vector<int32_t> blocks = sequence.blocks;
  if (reservation.replaces_last_block) blocks.pop_back();
  blocks.insert(blocks.end(), reservation.new_blocks.begin(), reservation.new_blocks.end());
  AddList(blocks);
  EndSequence(0, first);
  return first;
}

int PassBuilder::AddReader(const PrefixView& prefix, int32_t token, int position, int32_t slot,
                           int fresh) {
  const int row = num_rows();
  AddRow(token, position, slot, prefix.tokens);
  plan_.output_rows.push_back(row);
  AddList(prefix.blocks);
  EndSequence(0, row);
  plan_.fresh_keys.resize(plan_.num_sequences());
  plan_.fresh_keys.back() = fresh;
  return row;
}

int PassBuilder::CaptureFeatures(int first, int count) {
  const auto start = static_cast<int>(plan_.feature_rows.size());
  for (int i = 0; i < count; ++i) plan_.feature_rows.push_back(first + i);
  return start;
}

int PassBuilder::RequestScores(int row_begin, int row_end, int num_blocks, const Scoring& scoring) {
  const int sequence = plan_.num_sequences() - 1;
  TALON_CHECK(plan_.NumLists(sequence) == 1, "scores are taken over the whole prefix");
  TALON_CHECK(plan_.sequence_rows[sequence] <= row_begin && row_begin < row_end &&
              row_end <= num_rows());
  const int column = plan_.num_scored_blocks();
  plan_.scores.push_back({.sequence = sequence,
                          .row_begin = row_begin,
                          .row_end = row_end,
                          .num_blocks = num_blocks,
                          .first_column = column,
                          .scorer = scoring.scorer,
                          .reduce = scoring.reduce});
  return column;
}

void PassBuilder::AddRow(int32_t token, int position, int32_t slot, int prefix_len) {
  plan_.tokens.push_back(token);
  plan_.positions.push_back(position);
  plan_.slots.push_back(slot);
  plan_.prefix_len.push_back(prefix_len);
  plan_.ancestors.resize(plan_.ancestors.size() + plan_.mask_words, 0);
}

void PassBuilder::AddList(std::span<const int32_t> blocks) {
  plan_.block_ids.insert(plan_.block_ids.end(), blocks.begin(), blocks.end());
  plan_.block_offsets.push_back(static_cast<int32_t>(plan_.block_ids.size()));
}

void PassBuilder::EndSequence(int nodes_before, int staging_first) {
  plan_.nodes_before.push_back(nodes_before);
  plan_.staging_first.push_back(staging_first);
  plan_.sequence_rows.push_back(num_rows());
  plan_.sequence_lists.push_back(static_cast<int32_t>(plan_.block_offsets.size()) - 1);
}

void PassBuilder::WidenMasks(int words) {
  if (words <= plan_.mask_words) return;
  std::vector<uint64_t> wide(static_cast<size_t>(num_rows()) * words, 0);
  for (int row = 0; row < num_rows(); ++row) {
    std::copy_n(plan_.ancestors.begin() + static_cast<int64_t>(row) * plan_.mask_words,
                plan_.mask_words, wide.begin() + static_cast<int64_t>(row) * words);
  }
  plan_.ancestors = std::move(wide);
  plan_.mask_words = words;
}

}  // namespace talon
