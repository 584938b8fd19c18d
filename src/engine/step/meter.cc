#include "engine/step/meter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"

namespace talon {
namespace {

const char* ModeOf(const StepEntry& entry) {
  if (entry.view.partial) return "partial";
  return entry.proposal.num_drafts() > 0 ? "full" : "plain";
}

int NumChoices(const StepEntry& entry) {
  return static_cast<int>(entry.verdict.acceptance.choices.size());
}

}  // namespace

const char* PassMode(std::span<const StepEntry> entries) {
  if (entries.empty()) return "prompt";
  const auto any = [&](std::string_view mode) {
    return std::ranges::any_of(entries,
                               [&](const StepEntry& entry) { return ModeOf(entry) == mode; });
  };
  return any("full") ? "full" : any("partial") ? "partial" : "plain";
}

void StepMeter::Account(const StepBatch& batch, int tree_rows, double seconds) {
  for (const StepEntry& entry : batch.entries) {
    if (!entry.rows.direct) CountNwor(entry);
    if (entry.commit.done) CountEntry(entry);
  }
  StepCost cost{.rows = tree_rows, .draft_seconds = batch.draft_seconds, .total_seconds = seconds};
  for (const StepEntry& entry : batch.entries) {
    cost.emitted += NumChoices(entry);
    cost.drafted |= entry.origin.drafter_asked;
  }
  cost.ahead = batch.runs_ahead;
  cost.lookups_only = batch.lookups_only;
  AddSeconds(batch, seconds);
  CountStep(batch, cost.drafted);
  const bool ordinary = IsOrdinary(batch.entries);
  if (options_.specpv.enabled) TimeStep(batch, tree_rows, seconds, ordinary);
  if (!batch.prompts.empty() || batch.entries.empty()) return;
  if (!ordinary) {
    const double plain_steps = static_cast<double>(cost.emitted) / batch.shape.sequences;
    if (IsExtra(batch.entries)) parts_.policy->Charge(batch.shape, seconds, plain_steps);
    return;
  }
  parts_.policy->ObserveStep(batch.shape, cost);
}

void StepMeter::CountEntry(const StepEntry& entry) {
  RequestStats& stats = entry.run->result.stats;
  const auto emitted = entry.commit.provisional ? 0 : entry.verdict.emitted.size();
  stats.passes += 1;
  stats.emitted += static_cast<int64_t>(emitted);
  stats.partial_passes += entry.view.partial ? 1 : 0;
  stats.rows += entry.rows.count;
  stats.prefix_tokens_read += entry.rows.prefix_read;
  Metrics& metrics = *parts_.metrics;
  metrics.Add(Counter::kSpecVerifyPasses, 1, ModeOf(entry));
  metrics.Observe(Histogram::kSpecTreeNodes, entry.proposal.tree().size());
  // Provisional tokens count when they are emitted, so that the mean is tau.
  metrics.Observe(Histogram::kSpecAcceptLength, static_cast<double>(emitted), SourceOf(entry));
  CountDrafts(entry);
}

// Every staged row is committed, to blocks or a tail, or rejected. A failed commit rejects all.
void StepMeter::CountNwor(const StepEntry& entry) {
  ActiveRequest& run = *entry.run;
  Metrics& metrics = *parts_.metrics;
  const int committed = entry.commit.rows;
  const int rejected = entry.rows.count - committed;
  metrics.Add(Counter::kNworTokensCommitted, committed, entry.view.partial ? "tail" : "blocks");
  metrics.Add(Counter::kNworTokensRejected, rejected);
  if (entry.commit.done) {
    metrics.Add(Counter::kNworBytesSaved,
                static_cast<int64_t>(parts_.kv->shape().BytesPerToken()) * rejected);
  }
  LogEvent(LogLevel::kDebug, "NWOR: committed",
           {{"sequence", run.sequence.id}, {"rows", committed}, {"rejected", rejected}});
  run.staged_rows += entry.rows.count;
  run.accepted_rows += committed;
  if (!run.finished()) return;
  LogEvent(LogLevel::kInfo, "NWOR: committed",
           {{"request", run.result.id},
            {"rows", run.accepted_rows},
            {"acceptance",
             static_cast<double>(run.accepted_rows) / static_cast<double>(run.staged_rows)}});
}

void StepMeter::CountDrafts(const StepEntry& entry) {
  RequestStats& stats = entry.run->result.stats;
  const int drafted = entry.proposal.num_drafts();
  const int path = static_cast<int>(entry.verdict.draft_path.size());
  const int accepted = std::max(path - 1, 0);
  stats.drafted += drafted;
  stats.accepted += accepted;
  if (drafted == 0 || path == 0) return;
  const int deepest = TreeDepths(entry.proposal.drafts().parents).back();
  for (int depth = 1; depth <= std::min(deepest, RequestStats::kMaxDepth); ++depth) {
    if (depth - 1 > accepted) break;  // tried: the parent was accepted
    ++stats.tried_at_depth[depth - 1];
    if (depth > accepted) continue;
    ++stats.accepted_at_depth[depth - 1];
    parts_.metrics->Add(Counter::kSpecAcceptedAtDepth, 1, std::to_string(depth));
  }
  parts_.metrics->Add(Counter::kSpecDraftTokens, drafted, SourceOf(entry));
  parts_.metrics->Add(Counter::kSpecAcceptedTokens, accepted, SourceOf(entry));
}

std::string_view StepMeter::SourceOf(const StepEntry& entry) const {
  if (entry.run->drafter_knows) return parts_.drafter->name();
  return entry.proposal.num_drafts() > 0 ? "REMOTE" : "none";
}

void StepMeter::AddSeconds(const StepBatch& batch, double seconds) const {
  const bool plain = batch.prompts.empty() && std::ranges::all_of(batch.entries, [](const auto& e) {
                       return !e.origin.drafter_asked && e.rows.count == 1 && !e.view.partial;
                     });
  for (const StepEntry& entry : batch.entries) {
    RequestStats& stats = entry.run->result.stats;
    stats.decode_seconds += seconds;
    if (plain) {
      ++stats.plain_passes;
      stats.plain_seconds += seconds;
    }
    stats.draft_seconds += batch.draft_seconds;
    stats.verify_seconds += batch.verify_seconds;
    if (entry.view.partial) stats.partial_seconds += seconds;
  }
  for (const PromptChunk& prompt : batch.prompts) {
    prompt.run->result.stats.prompt_seconds += seconds;
  }
}

void StepMeter::CountStep(const StepBatch& batch, bool drafted) {
  if (batch.entries.empty()) return;
  Metrics& metrics = *parts_.metrics;
  metrics.Observe(Histogram::kSpecVerifySeconds, batch.verify_seconds, PassMode(batch.entries));
  if (batch.experts_touched > 0) {
    metrics.Observe(Histogram::kExpertsTouched, batch.experts_touched);
  }
  if (drafted) {
    metrics.Observe(Histogram::kSpecDraftSeconds, batch.draft_seconds, parts_.drafter->name());
  }
  if (const int64_t staged = metrics.Total(Counter::kNworStagedTokens); staged > 0) {
    const auto committed = static_cast<double>(metrics.Total(Counter::kNworTokensCommitted));
    metrics.Set(Gauge::kNworAcceptanceRatio, committed / static_cast<double>(staged));
  }
  if (!options_.specpv.enabled) return;
  int provisional = 0;
  for (const StepEntry& entry : batch.entries) {
    if (!entry.run->finished()) provisional += entry.run->sequence.tail_len;
  }
  metrics.Set(Gauge::kSpecPvProvisionalTokens, provisional);
}

bool StepMeter::IsOrdinary(std::span<const StepEntry> entries) {
  bool special = false;
  size_t caught_up = 0;
  for (const StepEntry& entry : entries) {
    special |= entry.proposal.has_trunk() || entry.view.select;
    const bool asked = entry.origin.drafter_asked;
    const bool asked_before = std::exchange(entry.run->drafted_last, asked);
    caught_up += asked && !asked_before ? 1 : 0;
  }
  return !special && 4 * caught_up <= entries.size();
}

bool StepMeter::IsExtra(std::span<const StepEntry> entries) {
  return std::ranges::none_of(entries, [](const StepEntry& entry) {
    const int drafts = entry.proposal.num_drafts();
    const bool first = drafts > 0 && entry.run->result.stats.drafted <= drafts;
    return entry.proposal.has_trunk() || first;
  });
}

std::optional<PassKind> StepMeter::KindOfPass(std::span<const StepEntry> entries,
                                              bool ordinary) const {
  const auto all = [&](auto is) { return std::ranges::all_of(entries, is); };
  if (!all([](const StepEntry& entry) { return entry.run->partial.exact(); })) return std::nullopt;
  if (all([](const StepEntry& entry) { return entry.proposal.has_trunk(); })) {
    return PassKind::kSettling;
  }
  if (!ordinary) return std::nullopt;
  if (all([](const StepEntry& entry) { return entry.view.partial; })) return PassKind::kPartial;
  const bool full = all([this](const StepEntry& entry) {
    return !entry.view.partial && partial_->CouldBePartial(*entry.run);
  });
  return full ? std::optional(PassKind::kFull) : std::nullopt;
}

void StepMeter::TimeStep(const StepBatch& batch, int tree_rows, double seconds, bool ordinary) {
  if (batch.entries.empty()) return;
  int64_t context = 0;
  for (const StepEntry& entry : batch.entries) context += entry.rows.prefix_read;
  const auto count = static_cast<int>(batch.entries.size());
  const StepShape shape{.sequences = count, .context = static_cast<int>(context / count)};
  const double by_curve = parts_.policy->PassSeconds(shape, static_cast<double>(tree_rows) / count);
  const double pass_seconds = seconds - batch.draft_seconds;
  std::optional<double> draft_seconds;  // for each sequence, by the curve
  if (batch.prompts.empty() && by_curve > 0 && pass_seconds > 0) {
    if (ordinary) draft_seconds = batch.draft_seconds / pass_seconds * by_curve / count;
    const std::optional<PassKind> kind = KindOfPass(batch.entries, ordinary);
    if (kind) partial_->ObservePass(*kind, pass_seconds / by_curve);
  }
  for (const StepEntry& entry : batch.entries) {
    if (entry.commit.done) partial_->ObserveStep(entry, count, draft_seconds);
  }
}

}  // namespace talon
