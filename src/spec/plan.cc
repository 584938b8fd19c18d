#include "spec/plan.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace talon {

void PassBuilder::Reset() {
  plan_.Clear();
  plan_.sequence_rows.push_back(0);
  plan_.block_offsets.push_back(0);
  tree_rows_ = 0;
}

int PassBuilder::AddTree(const Sequence& sequence, const TokenTree& tree,
                         std::span<const int32_t> slots) {
  TALON_CHECK(tree_rows_ == num_rows(), "trees come before prompts");
  const int first = num_rows();
  const int nodes = tree.size();
  const std::vector<int32_t> depth = TreeDepths(tree.parents);
  WidenMasks(MaskWords(nodes));
  for (int i = 0; i < nodes; ++i) {
    AddRow(tree.tokens[i], sequence.committed_len + depth[i], slots.empty() ? -1 : slots[i],
           sequence.committed_len);
    plan_.output_rows.push_back(first + i);
  }
  const std::vector<uint64_t> masks = AncestorMasks(tree.parents, plan_.mask_words);
  std::copy(masks.begin(), masks.end(),
            plan_.ancestors.begin() + static_cast<int64_t>(first) * plan_.mask_words);
  tree_rows_ += nodes;
  EndSequence(sequence.blocks, 0, first);
  return first;
}

int PassBuilder::AddForest(const Sequence& sequence, std::span<const int32_t> tokens,
                           std::span<const int32_t> parents, int first_node, int staging_base) {
  TALON_CHECK(tree_rows_ == num_rows(), "trees come before prompts");
  const int first = num_rows();
  const auto nodes = static_cast<int>(tokens.size());
  const std::vector<int32_t> depth = TreeDepths(parents);
  WidenMasks(MaskWords(nodes));
  const std::vector<uint64_t> masks = AncestorMasks(parents, plan_.mask_words);
  for (int i = first_node; i < nodes; ++i) {
    AddRow(tokens[i], sequence.committed_len + depth[i], -1, sequence.committed_len);
    std::copy_n(masks.begin() + static_cast<int64_t>(i) * plan_.mask_words, plan_.mask_words,
                plan_.ancestors.end() - plan_.mask_words);
    plan_.output_rows.push_back(num_rows() - 1);
  }
  tree_rows_ += nodes - first_node;
  EndSequence(sequence.blocks, first_node, staging_base);
  return first;
}

int PassBuilder::AddPrompt(const Sequence& sequence, const Reservation& reservation,
                           Logits logits) {
  const int first = num_rows();
  const int count = static_cast<int>(reservation.slots.size());
  for (int i = 0; i < count; ++i) {
    const int position = sequence.committed_len + i;
    AddRow(sequence.tokens[position], position, reservation.slots[i], position + 1);
    if (logits == Logits::kAll || (logits == Logits::kLast && i + 1 == count)) {
      plan_.output_rows.push_back(first + i);
    }
  }
  std::vector<int32_t> blocks = sequence.blocks;
  if (reservation.replaces_last_block) blocks.pop_back();
  blocks.insert(blocks.end(), reservation.new_blocks.begin(), reservation.new_blocks.end());
  EndSequence(blocks, 0, first);
  return first;
}

void PassBuilder::AddRow(int32_t token, int position, int32_t slot, int prefix_len) {
  plan_.tokens.push_back(token);
  plan_.positions.push_back(position);
  plan_.slots.push_back(slot);
  plan_.prefix_len.push_back(prefix_len);
  plan_.ancestors.resize(plan_.ancestors.size() + plan_.mask_words, 0);
}

void PassBuilder::EndSequence(std::span<const int32_t> blocks, int nodes_before,
                              int staging_first) {
  plan_.nodes_before.push_back(nodes_before);
  plan_.staging_first.push_back(staging_first);
  plan_.sequence_rows.push_back(num_rows());
  plan_.block_ids.insert(plan_.block_ids.end(), blocks.begin(), blocks.end());
  plan_.block_offsets.push_back(static_cast<int32_t>(plan_.block_ids.size()));
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
