#include "spec/drafters/heads/eagle_growth.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"
#include "base/clock.h"

namespace talon {
namespace {

constexpr int kMostBeamWidth = 32;  // widest beam of trees that devices grow

}  // namespace

Result<std::unique_ptr<EagleGrowth>> EagleGrowth::Create(const Parts& parts, int slots,
                                                         const DraftBudget& budget) {
  std::unique_ptr<EagleGrowth> growth(new EagleGrowth(parts, slots, budget));
  TALON_ASSIGN_OR_RETURN(growth->next_,
                         NewScratch(parts.backend, slots + parts.kv->shape().staging_rows,
                                    parts.head->config().hidden_size));
  if (budget.top_k <= kMostBeamWidth) {
    const BeamLimits limits{
        .trees = slots, .width = budget.top_k, .levels = std::max(budget.max_depth, 1)};
    TALON_ASSIGN_OR_RETURN(growth->beams_, parts.backend->token_ops()->NewBeamSearch(
                                               limits, parts.head->target_ids()));
  }
  return growth;
}

void EagleGrowth::RankRoots(std::span<const int32_t> slots, const EagleOutput& output) {
  if (beams_ != nullptr) {
    beams_->RankRoots(slots, output.logits, output.next, next_.all);
    return;
  }
  std::vector<TopKEntry> best;
  TopK(output.logits, &best);
  const int k = budget_.top_k;
  for (size_t i = 0; i < slots.size(); ++i) {
    const std::array<int32_t, 1> row = {static_cast<int32_t>(i)};
    parts_.backend->GatherRows(output.next, row, next_.all.Rows(slots[i], 1));
    roots_[slots[i]].assign(best.begin() + static_cast<int64_t>(i) * k,
                            best.begin() + static_cast<int64_t>(i + 1) * k);
  }
}

Status EagleGrowth::Grow(std::span<GrowingTree> growing, const StepPrices& prices) {
  if (beams_ != nullptr) {
    TALON_RETURN_IF_ERROR(GrowAhead(growing, prices));
    FollowDevice(growing);
    return OkStatus();
  }
  for (GrowingTree& one : growing) one.has_nan = !one.tree.Start(roots_[one.slot]);
  const LevelPrice price{.prices = prices, .times = &level_times_};
  return GrowTrees(growing, price,
                   [this](std::span<GrowingTree* const> level, std::vector<TopKEntry>* best) {
                     return RunBeams(level, best);
                   });
}

// Each beam node continues the output of its parent.
Status EagleGrowth::RunBeams(std::span<GrowingTree* const> level, std::vector<TopKEntry>* best) {
  builder_.Reset();
  std::vector<int32_t> parents;
  const auto row_of = [&](const GrowingTree& one, int node) {
    return node < 0 ? one.slot : OutputRow(one, node);
  };
  for (const GrowingTree* one : level) {
    AddBeam(*one, &builder_);
    for (const int node : one->tree.beam()) {
      parents.push_back(row_of(*one, one->tree.expanded()[node].parent));
    }
  }
  const MatrixView inputs = parts_.inputs.Rows(0, static_cast<int>(parents.size()));
  parts_.backend->GatherRows(next_.all, parents, inputs);
  EagleOutput output;
  TALON_RETURN_IF_ERROR(
      parts_.head->Forward(builder_.plan(), builder_.plan(), parts_.kv->view(), inputs, &output));
  int32_t first = 0;
  for (const GrowingTree* one : level) {
    const auto count = static_cast<int32_t>(one->tree.beam().size());
    KeepOutputs(*one, one->tree.beam().front(), output.next.Rows(first, count));
    first += count;
  }
  TopK(output.logits, best);
  return OkStatus();
}

void EagleGrowth::KeepOutputs(const GrowingTree& one, int first_node, MatrixView outputs) {
  std::vector<int32_t> rows(outputs.rows);
  std::iota(rows.begin(), rows.end(), 0);
  parts_.backend->GatherRows(outputs, rows,
                             next_.all.Rows(OutputRow(one, first_node), outputs.rows));
}

void EagleGrowth::TopK(const MatrixView& logits, std::vector<TopKEntry>* best) {
  best->resize(static_cast<size_t>(logits.rows) * budget_.top_k);
  parts_.backend->token_ops()->TopK(logits, budget_.top_k, *best);
  for (TopKEntry& entry : *best) entry.id = parts_.head->target_ids()[entry.id];
}

// ---- Ahead of the host ----

Status EagleGrowth::GrowAhead(std::span<GrowingTree> growing, const StepPrices& prices) {
  if (growing.empty()) return OkStatus();
  const LevelPrice price{.prices = prices, .times = &level_times_};
  const int levels = forecast_.CutTrees(growing, price);
  std::vector<BeamRoot> roots;
  for (const GrowingTree& one : growing) {
    roots.push_back({.slot = one.slot, .first_row = OutputRow(one, 0)});
  }
  beams_->Start(roots);
  if (levels == 1) return OkStatus();
  const bool timed = price.IsDue();
  if (timed) parts_.backend->Synchronize();
  const Stopwatch watch(parts_.backend->time());
  for (int level = 1; level < levels; ++level) {
    TALON_RETURN_IF_ERROR(RunAhead(growing, level));
  }
  if (!timed) return OkStatus();
  parts_.backend->Synchronize();
  price.Observe(watch.Seconds() / (levels - 1));
  return OkStatus();
}

// The beam's tokens and parents are known to the device alone; the plan has the right depths.
Status EagleGrowth::RunAhead(std::span<const GrowingTree> growing, int level) {
  const int k = budget_.top_k;
  const std::vector<int32_t> tokens(static_cast<size_t>(level) * k);
  std::vector<int32_t> parents(tokens.size());
  std::iota(parents.begin(), parents.end(), -k);
  std::fill(parents.begin(), parents.begin() + k, -1);
  builder_.Reset();
  for (const GrowingTree& one : growing) {
    builder_.AddForest(one.prefix, one.position, tokens, parents, (level - 1) * k,
                       one.staging_base);
  }
  const MatrixView inputs = parts_.inputs.Rows(0, static_cast<int>(growing.size()) * k);
  EagleOutput output;
  TALON_RETURN_IF_ERROR(
      parts_.head->Forward(builder_.plan(), builder_.plan(), parts_.kv->view(), inputs, &output,
                           [&](Pass* pass) { beams_->Load(pass, next_.all, inputs); }));
  beams_->Expand(output.logits, output.next, next_.all);
  return OkStatus();
}

void EagleGrowth::LoadTrees(std::span<const GrowingTree> growing,
                            std::span<const OutlineRows> outlines, Pass* pass) {
  std::vector<TreePlace> places;
  for (const OutlineRows& outline : outlines) {
    const auto one = std::ranges::find(growing, outline.request, &GrowingTree::owner);
    TALON_CHECK(one != growing.end());
    places.push_back({.tree = static_cast<int>(one - growing.begin()),
                      .levels = one->tree.steps(),
                      .root_row = outline.root_row,
                      .nodes = outline.nodes,
                      .above = outline.above,
                      .position = outline.position,
                      .min_score = one->tree.min_score()});
  }
  beams_->LoadTrees(pass, places);
}

// The rankings are those of the roots, then level by level those of all beams.
void EagleGrowth::FollowDevice(std::span<GrowingTree> growing) {
  const std::span<const TopKEntry> rankings = beams_->Read();
  std::vector<TopKEntry> best(rankings.begin(), rankings.end());
  for (TopKEntry& entry : best) entry.id = parts_.head->target_ids()[entry.id];
  const auto k = static_cast<size_t>(budget_.top_k);
  for (size_t i = 0; i < growing.size(); ++i) {
    GrowingTree& one = growing[i];
    one.has_nan = !one.tree.Start(std::span(best).subspan(i * k, k));
    for (int level = 1; !one.has_nan; ++level) {
      forecast_.Observe(level, one.tree.beam_mass());
      if (!one.tree.wants_expansion()) break;
      const size_t first = growing.size() * k + ((level - 1) * growing.size() + i) * k * k;
      one.has_nan = !one.tree.Expand(std::span(best).subspan(first, one.tree.beam().size() * k));
    }
  }
}

}  // namespace talon
