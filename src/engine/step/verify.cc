#include "engine/step/verify.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "engine/step/accept.h"
#include "engine/step/meter.h"
#include "observe/stage_range.h"

namespace talon {

Status Verifier::Verify(StepBatch* batch, const PlannedPass& pass, VerifiedPass* verified) {
  const PassPlan& plan = pass.builder.plan();
  StageRange range("Verify");
  range.Note("mode", PassMode(batch->entries));
  range.Note("rows", plan.tokens.size());
  const Stopwatch watch(parts_.backend->time());
  if (!sync_->capture_layers().empty()) {
    TALON_RETURN_IF_ERROR(parts_.target->SetCaptureLayers(sync_->capture_layers()));
  }
  TALON_RETURN_IF_ERROR(partial_->RunShadows(batch->entries));
  if (pass.reads_views) parts_.backend->kv_ops()->JoinCopies();
  // The device is one pass behind at most: a request that comes now waits for no more.
  if (std::exchange(in_flight_, batch->entries.empty())) parts_.backend->Synchronize();
  const KvView kv = pass.reads_views ? parts_.kv->views() : parts_.kv->view();
  const int64_t experts_before = parts_.backend->expert_ops()->experts_read();
  TALON_RETURN_IF_ERROR(Forward(*batch, plan, kv, &verified->output));
  if (parts_.drafter != nullptr) parts_.drafter->Learn();  // what the last step emitted
  if (StagingArea& staging = parts_.kv->staging(); !staging.is_clear()) {
    staging.Report(verified->output.stored_layers);
    LogEvent(LogLevel::kDebug, "NWOR: staged", {{"rows", staging.num_staged()}});
  }
  partial_->RankBlocks(verified->output.scores);
  partial_->CompareShadows(batch->entries, verified->output);
  if (batch->runs_ahead) LearnDrafts(batch);
  MaskForbidden(*batch, verified->output.logits);
  ChooseTokens(*batch, verified);
  for (const StepEntry& entry : batch->entries) {
    if (!options_.edit_choices) break;
    options_.edit_choices(
        entry.proposal.judged(), entry.proposal.num_rejudged(),
        std::span(verified->choices).subspan(entry.rows.first_output, entry.rows.num_outputs));
  }
  batch->experts_touched = parts_.target->config().PerSparseLayer(
      static_cast<double>(parts_.backend->expert_ops()->experts_read() - experts_before));
  batch->verify_seconds = watch.Seconds();
  return OkStatus();
}

Status Verifier::Forward(const StepBatch& batch, const PassPlan& plan, const KvView& kv,
                         ForwardOutput* output) {
  std::optional<StageRange> range;  // the pass itself writes the staged rows, layer by layer
  if (!parts_.kv->staging().is_clear()) range.emplace("NWOR_staging");
  return parts_.target->Forward(plan, kv, output,
                                [&](Pass* loaded) { PlaceDrafts(batch, plan, loaded); });
}

void Verifier::WaitForPrompts(const StepBatch& batch) {
  const bool ended = std::ranges::any_of(
      batch.prompts, [](const PromptChunk& prompt) { return prompt.run->prompt_left() <= 0; });
  if (ended && std::exchange(in_flight_, false)) parts_.backend->Synchronize();
}

void Verifier::PlaceDrafts(const StepBatch& batch, const PassPlan& plan, Pass* pass) const {
  std::vector<OutlineRows> outlines;
  for (const StepEntry& entry : batch.entries) {
    if (!entry.origin.is_outline) continue;
    const int root_row = entry.proposal.RootRow(entry.rows.first);
    outlines.push_back(
        {.request = entry.origin.request,
         .root_row = root_row,
         .nodes = entry.proposal.drafts().size(),
         .above = entry.view.partial ? entry.run->sequence.tail_len : entry.proposal.draft_root(),
         .position = plan.positions[root_row]});
  }
  if (!outlines.empty()) parts_.drafter->PlaceTrees(outlines, pass);
}

// A tree may have fewer nodes than rows were computed for it.
void Verifier::LearnDrafts(StepBatch* batch) const {
  std::vector<TokenTree> trees;
  for (const StepEntry& entry : batch->entries) {
    if (entry.origin.drafter_asked) trees.emplace_back(entry.proposal.drafts().tokens[0]);
  }
  parts_.drafter->FinishTrees(trees);
  for (StepEntry& entry : batch->entries) {
    if (entry.origin.is_outline) entry.proposal.SetDrafts(std::move(trees[entry.origin.request]));
  }
}

// On a device the masks are computed while the pass runs.
void Verifier::MaskForbidden(const StepBatch& batch, MatrixView logits) const {
  std::vector<int32_t> rows;
  std::vector<uint64_t> masks;
  for (const StepEntry& entry : batch.entries) {
    const BoundSampler bound = entry.sampler();
    if (!NeedsMasks(bound) || !DeviceChooses(bound, options_, parts_.backend)) continue;
    const Sampler& sampler = bound.sampler();
    const TokenTree& tree = entry.proposal.judged();
    const auto states =
        sampler.grammar().OfNodes(bound.GrammarState({}), tree.tokens, tree.parents);
    for (int node = 0; node < tree.size(); ++node) {
      const auto mask = sampler.AllowedTokens(states[node], logits.cols);
      rows.push_back(entry.rows.first_output + node);
      masks.insert(masks.end(), mask.begin(), mask.end());
    }
  }
  if (!rows.empty()) parts_.backend->token_ops()->MaskRows(logits, rows, masks);
}

void Verifier::ChooseTokens(const StepBatch& batch, VerifiedPass* verified) const {
  const ForwardOutput& output = verified->output;
  std::vector<RowDraw> draws(output.logits.rows);
  bool any = false;
  bool any_random = false;
  for (const StepEntry& entry : batch.entries) {
    const BoundSampler sampler = entry.sampler();
    if (!DeviceChooses(sampler, options_, parts_.backend)) continue;
    any = true;
    any_random |= !sampler.IsPlainGreedy();
    std::fill_n(draws.begin() + entry.rows.first_output, entry.rows.num_outputs,
                entry.run->sampler.DrawOf());
  }
  verified->choices.resize(draws.size());
  if (any_random) {
    parts_.target->DrawTokens(output, draws, verified->choices);
  } else if (any) {
    parts_.backend->token_ops()->Argmax(output.logits, verified->choices);
  }
}

}  // namespace talon
