// The middle of the step: its trees become one pass, and the pass is run.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "engine/step/step.h"
#include "observe/stage_range.h"
#include "spec/specpv/shadow.h"

namespace talon {

Status Step::Plan(std::span<const PromptChunk> prompts) {
  const StageRange range("Plan");
  builder_.Reset();
  partial_.BeginPass();
  reads_views_ = prompts.empty() && !entries_.empty() &&
                 std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
                   return entry.partial && PartialVerifier::HasCopy(*entry.run);
                 });
  for (Entry& entry : entries_) {
    PlanEntry(&entry);
  }
  prompt_reservations_.clear();
  prompt_features_.clear();
  for (const PromptChunk& prompt : prompts) {
    Introduce(prompt.run);
    auto reservation = parts_.kv->Reserve(prompt.run->sequence, prompt.tokens);
    if (!reservation.ok()) return reservation.status();
    prompt_reservations_.push_back(std::move(*reservation));
    const int first_row = builder_.AddPrompt(prompt.run->sequence, prompt_reservations_.back());
    prompt_features_.push_back(CaptureFor(*prompt.run, first_row, prompt.tokens));
  }
  if (!options_.nwor) return OkStatus();
  const StageRange staging("NWOR_staging");
  return parts_.kv->BeginStaging(builder_.staged());
}

void Step::PlanEntry(Entry* entry) {
  const ActiveRequest& run = *entry->run;
  entry->first_output = static_cast<int>(builder_.plan().output_rows.size());
  if (entry->partial) {
    entry->first_row = builder_.AddPartialTree(
        run.sequence, entry->tree, reads_views_ ? partial_.CopyOf(run) : partial_.ViewOf(run));
    entry->prefix_read = run.partial.lists->visible_tokens + run.sequence.tail_len;
  } else {
    entry->prefix_read = run.sequence.committed_len;
    if (!options_.nwor) ReserveTree(entry);
    entry->first_row =
        builder_.AddTree(run.sequence, entry->tree, entry->reservation.slots, entry->unseen);
  }
  entry->num_rows = entry->tree.size();
  const int end_row = entry->first_row + entry->num_rows;
  if (entry->select) {
    partial_.RequestScores(run, entry->first_row + entry->trunk, end_row, MostCommitted(*entry),
                           &builder_);
  }
  entry->first_feature = CaptureFor(run, entry->first_row, entry->tree.size());
}

// Tokens on the longest path of its tree.
int Step::MostCommitted(const Entry& entry) {
  const std::vector<int32_t> depths = TreeDepths(entry.tree.parents);
  return 1 + *std::max_element(depths.begin(), depths.end());
}

// Only what the drafter will be told is copied out of the pass.
int Step::CaptureFor(const ActiveRequest& run, int first_row, int rows) {
  const bool wanted = run.drafter_knows && !capture_layers_.empty();
  return wanted ? builder_.CaptureFeatures(first_row, rows) : -1;
}

void Step::ReserveTree(Entry* entry) {
  auto reservation = parts_.kv->Reserve(entry->run->sequence, entry->tree.size());
  if (!reservation.ok()) {
    FallBack(Counter::kNworFallback, "nwor", "no_blocks", entry->run->sequence.id,
             reservation.status());
    entry->tree.Truncate(1);
    entry->whole = {};
    reservation = parts_.kv->Reserve(entry->run->sequence, 1);
  }
  TALON_CHECK(reservation.ok(), "the scheduler keeps room for every root");
  entry->reservation = std::move(*reservation);
}

Status Step::Verify() {
  StageRange range("Verify");
  range.Note("mode", PassMode());
  range.Note("rows", builder_.plan().tokens.size());
  const Stopwatch watch;
  if (!capture_layers_.empty()) {
    TALON_RETURN_IF_ERROR(parts_.target->SetCaptureLayers(capture_layers_));
  }
  TALON_RETURN_IF_ERROR(RunShadows());
  if (reads_views_) parts_.backend->kv_ops()->JoinCopies();
  TALON_RETURN_IF_ERROR(parts_.target->Forward(builder_.plan(), PassKv(), &output_,
                                               [&](Pass* pass) { PlaceDrafts(pass); }));
  if (options_.nwor) parts_.kv->MarkAllStaged();
  partial_.RankBlocks(output_.scores);
  for (Entry& entry : entries_) {
    if (entry.shadow.empty()) continue;
    shadow_.Compare(entry.shadow, entry.tree, output_, entry.first_output, entry.run);
  }
  ChooseTokens();
  if (runs_ahead_) LearnDrafts();
  verify_seconds_ = watch.Seconds();
  return OkStatus();
}

bool Step::DeviceChooses(const Sampler& sampler) const {
  if (sampler.IsPlainGreedy()) return true;
  return sampler.IsPlain() && options_.accept == AcceptMode::kMatch &&
         parts_.backend->token_ops()->DrawsTokens();
}

void Step::ChooseTokens() {
  std::vector<RowDraw> draws(builder_.plan().output_rows.size());
  bool any = false;
  bool any_random = false;
  for (const Entry& entry : entries_) {
    const Sampler& sampler = entry.run->sampler;
    if (!DeviceChooses(sampler)) continue;
    any = true;
    any_random |= !sampler.IsPlainGreedy();
    std::fill_n(draws.begin() + entry.first_output, entry.num_rows - entry.unseen,
                sampler.DrawOf());
  }
  choices_.resize(draws.size());
  if (any_random) {
    parts_.target->DrawTokens(output_, draws, choices_);
  } else if (any) {
    parts_.backend->token_ops()->Argmax(output_.logits, choices_);
  }
}

void Step::PlaceDrafts(Pass* pass) {
  std::vector<OutlineRows> outlines;
  for (const Entry& entry : entries_) {
    if (!entry.is_outline) continue;
    const int root_row = entry.first_row + entry.trunk;
    outlines.push_back({.request = entry.draft_request,
                        .root_row = root_row,
                        .nodes = entry.num_rows - entry.trunk,
                        .above = entry.partial ? entry.run->sequence.tail_len : entry.trunk,
                        .position = builder_.plan().positions[root_row]});
  }
  if (!outlines.empty()) parts_.drafter->PlaceTrees(outlines, pass);
}

// What was drafted. A tree may have fewer nodes than rows were computed for it.
void Step::LearnDrafts() {
  std::vector<TokenTree> trees;
  for (const Entry& entry : entries_) {
    if (entry.drafted_now) trees.emplace_back(entry.tree.tokens[entry.trunk]);
  }
  parts_.drafter->FinishTrees(trees);
  for (Entry& entry : entries_) {
    if (!entry.is_outline) continue;
    const auto trunk = std::span<const int32_t>(entry.tree.tokens).first(entry.trunk);
    entry.tree = WithTrunk(trunk, trees[entry.draft_request]);
  }
}

Status Step::RunShadows() {
  for (Entry& entry : entries_) {
    const ActiveRequest& run = *entry.run;
    const auto position = static_cast<int64_t>(run.sequence.tokens.size());
    if (!entry.partial || !DrawShadow(options_.specpv, run.sampler.seed(), position)) continue;
    TALON_ASSIGN_OR_RETURN(entry.shadow, shadow_.Run(run, entry.tree));
  }
  return OkStatus();
}

}  // namespace talon
