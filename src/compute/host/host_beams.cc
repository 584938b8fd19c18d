#include "compute/host/host_beams.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "compute/host/host_pass.h"

namespace talon {
namespace {

void CopyRow(const MatrixView& from, int row, const MatrixView& to, int to_row) {
  std::copy_n(from.data + row * from.stride, from.cols, to.data + to_row * to.stride);
}

void SetBit(int bit, uint64_t* mask) { mask[bit / 64] |= uint64_t{1} << (bit % 64); }

}  // namespace

void HostBeams::RankRoots(std::span<const int32_t> slots, MatrixView logits, MatrixView outputs,
                          MatrixView kept) {
  std::vector<TopKEntry> best(slots.size() * limits_.width);
  rank_rows_(logits, limits_.width, best);
  for (size_t i = 0; i < slots.size(); ++i) {
    std::copy_n(best.begin() + static_cast<int64_t>(i) * limits_.width, limits_.width,
                root_entries_.begin() + int64_t{slots[i]} * limits_.width);
    CopyRow(outputs, static_cast<int>(i), kept, slots[i]);
  }
}

void HostBeams::Start(std::span<const BeamRoot> roots) {
  TALON_CHECK(static_cast<int>(roots.size()) <= limits_.trees);
  trees_.clear();
  rankings_.clear();
  for (const BeamRoot& root : roots) {
    const auto entries = std::span(root_entries_)
                             .subspan(static_cast<size_t>(root.slot) * limits_.width,
                                      static_cast<size_t>(limits_.width));
    rankings_.insert(rankings_.end(), entries.begin(), entries.end());
    AddLevel(entries, &trees_.emplace_back(Tree{.root = root}));
  }
}

// The entries follow the last beam, node by node; the best of them are the next one.
void HostBeams::AddLevel(std::span<const TopKEntry> entries, Tree* tree) const {
  const int width = limits_.width;
  const auto first = static_cast<int>(tree->candidates.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    Candidate candidate{.entry = entries[i], .score = entries[i].log_prob};
    if (!tree->beams.empty()) {
      candidate.parent = tree->beams.back()[i / static_cast<size_t>(width)];
      candidate.score = tree->candidates[candidate.parent].score + entries[i].log_prob;
      candidate.depth = tree->candidates[candidate.parent].depth + 1;
    }
    tree->candidates.push_back(candidate);
  }
  std::vector<int> order(entries.size());
  std::iota(order.begin(), order.end(), first);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const float score_a = tree->candidates[a].score, score_b = tree->candidates[b].score;
    return std::isnan(score_b) ? !std::isnan(score_a) : score_a > score_b;
  });
  order.resize(width);
  std::vector<int> parents;
  for (const int candidate : order) parents.push_back((candidate - first) / width);
  tree->beams.push_back(std::move(order));
  tree->parents.push_back(std::move(parents));
}

void HostBeams::LoadBeam(MatrixView kept, MatrixView inputs, PassPlan* plan) const {
  const int width = limits_.width;
  for (size_t t = 0; t < trees_.size(); ++t) {
    const Tree& tree = trees_[t];
    const auto level = static_cast<int>(tree.beams.size());
    for (int n = 0; n < width; ++n) {
      const int row = static_cast<int>(t) * width + n;
      plan->tokens[row] = TokenOf(tree.candidates[tree.beams.back()[n]]);
      uint64_t* mask = plan->ancestors.data() + static_cast<size_t>(row) * plan->mask_words;
      std::fill_n(mask, plan->mask_words, 0);
      int place = n;
      for (int at = level; at >= 1; place = tree.parents[--at][place]) {
        SetBit((at - 1) * width + place, mask);
      }
      const int parent_row =
          level == 1 ? tree.root.slot
                     : tree.root.first_row + (level - 2) * width + tree.parents.back()[n];
      CopyRow(kept, parent_row, inputs, row);
    }
  }
}

void HostBeams::Expand(MatrixView logits, MatrixView outputs, MatrixView kept) {
  const int width = limits_.width;
  std::vector<TopKEntry> best(static_cast<size_t>(logits.rows) * width);
  rank_rows_(logits, width, best);
  rankings_.insert(rankings_.end(), best.begin(), best.end());
  for (size_t t = 0; t < trees_.size(); ++t) {
    Tree& tree = trees_[t];
    const auto level = static_cast<int>(tree.beams.size());
    for (int n = 0; n < width; ++n) {
      CopyRow(outputs, static_cast<int>(t) * width + n, kept,
              tree.root.first_row + (level - 1) * width + n);
    }
    AddLevel(std::span(best).subspan(t * width * width, static_cast<size_t>(width) * width), &tree);
  }
}

void HostBeams::LoadTree(const TreePlace& place, PassPlan* plan) const {
  const Tree& tree = trees_[place.tree];
  std::vector<int> kept;
  for (int i = 0; i < static_cast<int>(tree.candidates.size()); ++i) {
    const Candidate& candidate = tree.candidates[i];
    const bool possible = candidate.score > -INFINITY && candidate.score >= place.min_score;
    if (possible && candidate.depth <= place.levels) kept.push_back(i);
  }
  std::stable_sort(kept.begin(), kept.end(), [&](int a, int b) {
    return tree.candidates[a].score > tree.candidates[b].score;
  });
  kept.resize(std::min<size_t>(kept.size(), place.nodes - 1));
  std::sort(kept.begin(), kept.end());
  const auto node_of = [&](int candidate) {
    return 1 +
           static_cast<int>(std::lower_bound(kept.begin(), kept.end(), candidate) - kept.begin());
  };
  for (int node = 1; node < place.nodes; ++node) {
    const int row = place.root_row + node;
    const int candidate = node <= static_cast<int>(kept.size()) ? kept[node - 1] : -1;
    plan->tokens[row] =
        candidate < 0 ? plan->tokens[place.root_row] : TokenOf(tree.candidates[candidate]);
    plan->positions[row] = place.position + (candidate < 0 ? 1 : tree.candidates[candidate].depth);
    uint64_t* mask = plan->ancestors.data() + static_cast<size_t>(row) * plan->mask_words;
    std::fill_n(mask, plan->mask_words, 0);
    for (int bit = 0; bit <= place.above; ++bit) SetBit(bit, mask);
    SetBit(place.above + node, mask);
    for (int at = candidate; at >= 0; at = tree.candidates[at].parent) {
      SetBit(place.above + node_of(at), mask);
    }
  }
}

HostBeamSearch::HostBeamSearch(Backend* backend, const BeamLimits& limits,
                               std::span<const int32_t> token_ids)
    : backend_(backend),
      beams_(limits, token_ids, [backend](MatrixView x, int k, std::span<TopKEntry> out) {
        backend->token_ops()->TopK(x, k, out);
      }) {}

void HostBeamSearch::Load(Pass* pass, MatrixView kept, MatrixView inputs) {
  const auto& loaded = static_cast<const HostPass&>(*pass);
  PassPlan plan = loaded.plan;
  beams_.LoadBeam(kept, inputs, &plan);
  backend_->LoadPass(plan, KvShape(loaded.shape), pass);
}

void HostBeamSearch::LoadTrees(Pass* pass, std::span<const TreePlace> places) {
  const auto& loaded = static_cast<const HostPass&>(*pass);
  PassPlan plan = loaded.plan;
  for (const TreePlace& place : places) beams_.LoadTree(place, &plan);
  backend_->LoadPass(plan, KvShape(loaded.shape), pass);
}

}  // namespace talon
