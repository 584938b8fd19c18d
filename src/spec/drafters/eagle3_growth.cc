// How EAGLE3's trees grow: level by level on the host, or ahead of it on the device.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "spec/drafters/eagle3_drafter.h"

namespace talon {

void Eagle3Drafter::Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) {
  std::vector<State*> states;
  for (const DraftRequest& request : requests) states.push_back(&states_.at(request.sequence));
  Status status = Rank(states);
  if (status.ok()) status = Grow(requests, states, trees);
  if (status.ok()) return;
  GiveUp(status);
  for (TokenTree& tree : trees) tree.Truncate(1);
}

std::vector<GrowingTree> Eagle3Drafter::NewTrees(std::span<const DraftRequest> requests,
                                                 std::span<State* const> states,
                                                 std::vector<std::vector<int32_t>>* chosen) const {
  std::vector<GrowingTree> growing;
  chosen->resize(states.size());
  const int k = options_.budget.top_k;
  for (size_t i = 0; i < states.size(); ++i) {
    const State& state = *states[i];
    // Rewound or just begun: the next committed row makes it known again.
    if (!state.ranked || state.rows() + 1 != static_cast<int>(requests[i].tokens.size())) continue;
    const DraftBudget& budget = requests[i].budget;
    const int steps = std::min(budget.max_depth, options_.budget.max_depth);
    growing.push_back({.tree = {k, steps, budget.max_nodes, options_.min_prob},
                       .prefix = Window(state, state.sequence.blocks, state.rows(), &(*chosen)[i]),
                       .position = state.rows(),
                       .staging_base = static_cast<int>(i) * k * options_.budget.max_depth,
                       .owner = i});
  }
  return growing;
}

Status Eagle3Drafter::Grow(std::span<const DraftRequest> requests, std::span<State* const> states,
                           std::span<TokenTree> trees) {
  std::vector<std::vector<int32_t>> chosen;
  std::vector<GrowingTree> growing = NewTrees(requests, states, &chosen);
  if (beams_ != nullptr) {
    TALON_RETURN_IF_ERROR(GrowAhead(growing, states));
    FollowDevice(growing);
    BuildTrees(growing, trees);
    return OkStatus();
  }
  for (GrowingTree& one : growing) one.has_nan = !one.tree.Start(states[one.owner]->first);
  const LevelPrice price{.seconds_per_token = requests[0].budget.seconds_per_token,
                         .times = &level_times_};
  TALON_RETURN_IF_ERROR(GrowTrees(
      growing, price, [&](std::span<GrowingTree* const> level, std::vector<TopKEntry>* best) {
        return RunBeams(level, states, best);
      }));
  BuildTrees(growing, trees);
  return OkStatus();
}

void Eagle3Drafter::BuildTrees(std::span<const GrowingTree> growing, std::span<TokenTree> trees) {
  for (const GrowingTree& one : growing) {
    if (one.has_nan) {
      metrics_->Add(Counter::kSpecFallback, 1, "draft_nan");
    } else {
      trees[one.owner] = one.tree.Build(trees[one.owner].tokens[0]);
    }
  }
}

// ---- Ahead of the host ----

bool Eagle3Drafter::BeginTrees(std::span<const DraftRequest> requests, std::span<TokenTree> trees) {
  if (beams_ == nullptr) return false;
  std::vector<State*> states;
  for (const DraftRequest& request : requests) states.push_back(&states_.at(request.sequence));
  begun_.clear();
  Status status = Rank(states);
  if (status.ok()) {
    std::vector<std::vector<int32_t>> chosen;
    begun_ = NewTrees(requests, states, &chosen);
    status = GrowAhead(begun_, states);
  }
  if (!status.ok()) {
    GiveUp(status);
    begun_.clear();
  }
  for (const GrowingTree& one : begun_)
    trees[one.owner] = one.tree.Outline(requests[one.owner].tokens.back());
  return true;
}

void Eagle3Drafter::PlaceTrees(std::span<const OutlineRows> outlines, Pass* pass) {
  std::vector<TreePlace> places;
  for (const OutlineRows& outline : outlines) {
    const auto one = std::ranges::find(begun_, outline.request, &GrowingTree::owner);
    TALON_CHECK(one != begun_.end());
    places.push_back({.tree = static_cast<int>(one - begun_.begin()),
                      .levels = one->tree.steps(),
                      .root_row = outline.root_row,
                      .nodes = outline.nodes,
                      .above = outline.above,
                      .position = outline.position,
                      .min_score = one->tree.min_score()});
  }
  beams_->LoadTrees(pass, places);
}

void Eagle3Drafter::FinishTrees(std::span<TokenTree> trees) {
  if (!begun_.empty()) FollowDevice(begun_);
  BuildTrees(begun_, trees);
  begun_.clear();
}

// Each beam node continues the output of its parent.
Status Eagle3Drafter::RunBeams(std::span<GrowingTree* const> level, std::span<State* const> states,
                               std::vector<TopKEntry>* best) {
  builder_.Reset();
  std::vector<int32_t> parents;
  const auto row_of = [&](const GrowingTree& one, int node) {
    return node < 0 ? states[one.owner]->slot : OutputRow(one, node);
  };
  for (const GrowingTree* one : level) {
    AddBeam(*one, &builder_);
    for (const int node : one->tree.beam()) {
      parents.push_back(row_of(*one, one->tree.expanded()[node].parent));
    }
  }
  const MatrixView inputs = inputs_.Rows(static_cast<int>(parents.size()));
  backend_->GatherRows(next_.all, parents, inputs);
  Eagle3Output output;
  TALON_RETURN_IF_ERROR(
      head_->Forward(builder_.plan(), builder_.plan(), kv_->view(), inputs, &output));
  int32_t first = 0;
  for (const GrowingTree* one : level) {
    const auto count = static_cast<int32_t>(one->tree.beam().size());
    KeepOutputs(*one, one->tree.beam().front(), output.next.Rows(first, count));
    first += count;
  }
  TopK(output.logits, best);
  return OkStatus();
}

void Eagle3Drafter::KeepOutputs(const GrowingTree& one, int first_node, MatrixView outputs) {
  std::vector<int32_t> rows(outputs.rows);
  std::iota(rows.begin(), rows.end(), 0);
  backend_->GatherRows(outputs, rows, next_.all.Rows(OutputRow(one, first_node), outputs.rows));
}

Status Eagle3Drafter::GrowAhead(std::span<const GrowingTree> growing,
                                std::span<State* const> states) {
  if (growing.empty()) return OkStatus();
  std::vector<BeamRoot> roots;
  int levels = 0;
  for (const GrowingTree& one : growing) {
    roots.push_back({.slot = states[one.owner]->slot, .first_row = OutputRow(one, 0)});
    levels = std::max(levels, one.tree.steps());
  }
  beams_->Start(roots);
  for (int level = 1; level < levels; ++level) {
    TALON_RETURN_IF_ERROR(RunAhead(growing, level));
  }
  return OkStatus();
}

// The beam's tokens and parents are known to the device alone; the plan has the right depths.
Status Eagle3Drafter::RunAhead(std::span<const GrowingTree> growing, int level) {
  const int k = options_.budget.top_k;
  const std::vector<int32_t> tokens(static_cast<size_t>(level) * k);
  std::vector<int32_t> parents(tokens.size());
  std::iota(parents.begin(), parents.end(), -k);
  std::fill(parents.begin(), parents.begin() + k, -1);
  builder_.Reset();
  for (const GrowingTree& one : growing) {
    builder_.AddForest(one.prefix, one.position, tokens, parents, (level - 1) * k,
                       one.staging_base);
  }
  const MatrixView inputs = inputs_.Rows(static_cast<int>(growing.size()) * k);
  Eagle3Output output;
  TALON_RETURN_IF_ERROR(head_->Forward(builder_.plan(), builder_.plan(), kv_->view(), inputs,
                                       &output,
                                       [&](Pass* pass) { beams_->Load(pass, next_.all, inputs); }));
  beams_->Expand(output.logits, output.next, next_.all);
  return OkStatus();
}

// The rankings are those of the roots, then level by level those of all beams.
void Eagle3Drafter::FollowDevice(std::span<GrowingTree> growing) {
  const std::span<const TopKEntry> rankings = beams_->Read();
  std::vector<TopKEntry> best(rankings.begin(), rankings.end());
  for (TopKEntry& entry : best) entry.id = head_->target_ids()[entry.id];
  const auto k = static_cast<size_t>(options_.budget.top_k);
  for (size_t i = 0; i < growing.size(); ++i) {
    GrowingTree& one = growing[i];
    one.has_nan = !one.tree.Start(std::span(best).subspan(i * k, k));
    for (size_t level = 0; !one.has_nan && one.tree.wants_expansion(); ++level) {
      const size_t first = growing.size() * k + (level * growing.size() + i) * k * k;
      one.has_nan = !one.tree.Expand(std::span(best).subspan(first, one.tree.beam().size() * k));
    }
  }
}

void Eagle3Drafter::TopK(const MatrixView& logits, std::vector<TopKEntry>* best) {
  best->resize(static_cast<size_t>(logits.rows) * options_.budget.top_k);
  backend_->token_ops()->TopK(logits, options_.budget.top_k, *best);
  for (TopKEntry& entry : *best) entry.id = head_->target_ids()[entry.id];
}

PrefixView Eagle3Drafter::Window(const State& state, std::span<const int32_t> blocks, int rows,
                                 std::vector<int32_t>* chosen) const {
  const int block = options_.cache.block_size;
  const int sinks = CeilDiv(options_.sink, block);
  const int window = (rows - options_.window) / block;  // its first block
  const bool windowed = options_.window > 0 && window > sinks;
  if (!windowed && state.missing_end == 0) return {blocks, rows};
  chosen->clear();
  for (int i = 0; i < static_cast<int>(blocks.size()); ++i) {
    const bool outside = windowed && i >= sinks && i < window;
    const bool missing = i >= state.missing_first && i < state.missing_end;
    if (!outside && !missing) chosen->push_back(blocks[i]);
  }
  const auto left_out = static_cast<int>(blocks.size() - chosen->size());
  return {*chosen, rows - left_out * block};
}

}  // namespace talon
