// The second half of the step: what was accepted is committed, and everyone learns of it.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "engine/step/step.h"
#include "observe/stage_range.h"

namespace talon {
namespace {

// "no_blocks: kv: need ..." -> "no_blocks"
std::string ReasonOf(const Status& status) {
  return status.message().substr(0, status.message().find(':'));
}

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

}  // namespace

// ---- Commit ----

void Step::Commit(std::span<const PromptChunk> prompts) {
  const StageRange range(options_.nwor ? "NWOR_commit" : "Commit");
  followed_.clear();
  for (Entry& entry : entries_) CommitEntry(&entry);
  if (options_.nwor) parts_.kv->ClearStaging();
  for (size_t i = 0; i < prompts.size(); ++i) {
    ActiveRequest* run = prompts[i].run;
    const int first = run->sequence.committed_len;
    parts_.kv->Advance(&run->sequence, std::move(prompt_reservations_[i]), prompts[i].tokens,
                       "prefill");
    if (prompt_features_[i] < 0) continue;
    std::vector<int32_t> rows(prompts[i].tokens);
    std::iota(rows.begin(), rows.end(), prompt_features_[i]);
    Follow(*run, first, std::move(rows));
  }
}

void Step::CommitEntry(Entry* entry) {
  ActiveRequest& run = *entry->run;
  const std::vector<int32_t>& path = entry->acceptance.path;
  size_t rows = path.size();
  if (entry->finish != FinishReason::kNone) {
    // A finishing token that is itself a node is committed with its path (then C == len(tokens)),
    // but a provisional one stays the root: a full pass has yet to agree.
    const size_t kept = entry->unseen + entry->emitted.size();
    rows = std::min(rows, entry->partial ? kept : kept + 1);
  }
  const int old_length = run.sequence.committed_len + run.sequence.tail_len;
  const Status status = CommitRows(entry, rows);
  if (!status.ok()) {  // nothing of this step happened for the sequence; repeat it with [root]
    FallBack(Counter::kNworFallback, "nwor", ReasonOf(status), run.sequence.id, status);
    run.plain_next = true;
    if (entry->trunk > 0 && run.drafter_knows) {
      parts_.drafter->Rewind(run.sequence.id, static_cast<int>(run.sequence.tokens.size()));
    }
    return;
  }
  entry->committed = true;
  if (options_.nwor && !entry->partial) CountNwor(*entry, static_cast<int>(rows));
  SettlePartial(entry, old_length);
  for (const EmittedToken& token : entry->emitted) run.sequence.tokens.push_back(token.token);
  if (entry->provisional) {
    run.partial.text.emplace(std::move(*entry->text_after));
  } else {
    run.text = std::move(*entry->text_after);
  }
  if (entry->first_feature < 0) return;
  // A row is followed with the token after it, which the last one of a finished path may lack.
  const auto followed = std::min(rows, run.sequence.tokens.size() - 1 - old_length);
  std::vector<int32_t> accepted(path.begin(), path.begin() + static_cast<int64_t>(followed));
  for (int32_t& row : accepted) row += entry->first_feature;
  Follow(run, old_length, std::move(accepted));
}

// To blocks or, under a partial view, to the tail.
Status Step::CommitRows(Entry* entry, size_t count) {
  Sequence* sequence = &entry->run->sequence;
  const std::vector<int32_t>& path = entry->acceptance.path;
  std::vector<int32_t> accepted(path.begin(), path.begin() + static_cast<int64_t>(count));
  if (entry->partial) return parts_.kv->AppendTail(sequence, accepted);
  if (!options_.nwor) {
    return parts_.kv->CommitReserved(sequence, std::move(entry->reservation), accepted);
  }
  for (int32_t& row : accepted) row += entry->first_row;
  return parts_.kv->Commit(sequence, accepted);
}

// Partial verification's own books after a commit.
void Step::SettlePartial(Entry* entry, int old_length) {
  ActiveRequest& run = *entry->run;
  PartialState& state = run.partial;
  if (entry->partial) {
    ++state.partial_steps;
    parts_.metrics->Observe(
        Histogram::kSpecPvVisibleRatio,
        static_cast<double>(state.lists->visible_tokens) / run.sequence.committed_len);
    entry->provisional = state.exact();
    if (!state.exact()) run.result.stats.lossy = true;
    state.finish_pending = entry->provisional && entry->finish != FinishReason::kNone;
    return;
  }
  if (entry->trunk > 0 && state.exact()) {
    const auto accepted = static_cast<int>(entry->acceptance.path.size()) - 1;
    entry->confirmed = std::min(accepted, entry->trunk);
    partial_.CountTrunk(&run, entry->trunk, entry->confirmed);
    if (run.drafter_knows && entry->confirmed < entry->trunk) {
      parts_.drafter->Rewind(run.sequence.id, old_length + 1 + entry->confirmed);
    }
  }
  if (entry->select) partial_.Select(&run);
}

void Step::Follow(const ActiveRequest& run, int first, std::vector<int32_t> rows) {
  followed_.push_back({.sequence = run.sequence.id,
                       .tokens = run.sequence.tokens,
                       .first = first,
                       .rows = std::move(rows)});
}

void Step::CountNwor(const Entry& entry, int committed) {
  const int rejected = entry.num_rows - committed;
  parts_.metrics->Add(Counter::kNworTokensCommitted, committed);
  parts_.metrics->Add(Counter::kNworTokensRejected, rejected);
  parts_.metrics->Add(Counter::kNworBytesSaved,
                      static_cast<int64_t>(parts_.kv->shape().BytesPerToken()) * rejected);
}

// ---- Observe ----

void Step::Observe() {
  const StageRange range("Observe");
  if (!followed_.empty()) parts_.drafter->Extend(followed_, output_.features);
  for (Entry& entry : entries_) {
    if (!entry.committed) continue;
    ActiveRequest& run = *entry.run;
    std::vector<int32_t> tokens;
    for (const EmittedToken& token : entry.emitted) tokens.push_back(token.token);
    run.sampler.Observe(tokens);
    // Provisional tokens were told when they came up.
    const auto news =
        std::span<const int32_t>(tokens).subspan(std::min<size_t>(entry.confirmed, tokens.size()));
    if (run.drafter_knows) parts_.drafter->Observe(run.sequence.id, news);
    ObserveTree(entry);
    if (run.request.watched) {
      run.verified = VerifiedTree{entry.tree.tokens, entry.tree.parents, entry.acceptance.path};
    }
    KeepRemainder(&entry);
    CountEntry(entry);
    if (entry.provisional) continue;
    run.result.finish = entry.finish;
    if (entry.broken) run.result.error = Internal("the model's logits are not finite");
    std::move(entry.emitted.begin(), entry.emitted.end(), std::back_inserter(run.result.tokens));
  }
}

// The policy learns from the drafts, not from a trunk before them.
void Step::ObserveTree(const Entry& entry) {
  if (entry.trunk == 0) {
    if (entry.tree.size() > 1) parts_.policy->ObserveTree(entry.tree, entry.acceptance.path);
    return;
  }
  std::vector<int32_t> path;
  for (const int32_t node : entry.acceptance.path) {
    if (node >= entry.trunk) path.push_back(node - entry.trunk);
  }
  const TokenTree drafts = Subtree(entry.tree, entry.trunk);
  if (!path.empty() && drafts.size() > 1) parts_.policy->ObserveTree(drafts, path);
}

// Chunked verification: if the walk ended at a node of the unverified part, the next step goes on
// with that node's subtree instead of a new proposal.
void Step::KeepRemainder(Entry* entry) {
  const int chunk = options_.scv_chunk_size;
  if (chunk <= 0) return;
  parts_.metrics->Add(Counter::kScvChunks, 1, "run");
  if (entry->whole.size() == 0) return;
  const int next = entry->finish != FinishReason::kNone
                       ? -1
                       : entry->whole.FindChild(entry->acceptance.path.back(),
                                                entry->acceptance.choices.back().token);
  if (next >= 0) {
    entry->run->given = Subtree(entry->whole, next);
  } else {
    parts_.metrics->Add(Counter::kScvChunks, CeilDiv(entry->whole.size() - chunk, chunk),
                        "skipped");
  }
}

void Step::CountEntry(const Entry& entry) {
  RequestStats& stats = entry.run->result.stats;
  const int drafted = entry.tree.size() - 1 - entry.trunk;
  const int beyond_root = static_cast<int>(entry.acceptance.path.size()) - 1 - entry.trunk;
  const int accepted = std::max(beyond_root, 0);
  stats.passes += 1;
  if (!entry.provisional) stats.emitted += static_cast<int64_t>(entry.emitted.size());
  stats.drafted += drafted;
  stats.accepted += accepted;
  stats.partial_passes += entry.partial ? 1 : 0;
  stats.rows += entry.num_rows;
  stats.prefix_tokens_read += entry.prefix_read;
  parts_.metrics->Add(Counter::kSpecVerifyPasses, 1, ModeOf(entry));
  parts_.metrics->Observe(Histogram::kSpecTreeNodes, entry.tree.size());
  // Provisional tokens count when they are emitted, so that the mean is tau.
  parts_.metrics->Observe(Histogram::kSpecAcceptLength,
                          entry.provisional ? 0.0 : static_cast<double>(entry.emitted.size()),
                          SourceOf(entry));
  if (drafted == 0 || beyond_root < 0) return;
  const int deepest = TreeDepths(entry.tree.parents).back() - entry.trunk;
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

// Who made the drafts: the drafter, or a remote client.
std::string_view Step::SourceOf(const Entry& entry) const {
  if (entry.run->drafter_knows) return parts_.drafter->name();
  return entry.tree.size() - 1 - entry.trunk > 0 ? "REMOTE" : "none";
}

const char* Step::ModeOf(const Entry& entry) {
  if (entry.partial) return "partial";
  return entry.tree.size() - 1 - entry.trunk > 0 ? "full" : "plain";
}

// Of a pass over sequences of different modes, the one that costs most.
const char* Step::PassMode() const {
  if (entries_.empty()) return "prompt";
  const auto any = [this](std::string_view mode) {
    return std::any_of(entries_.begin(), entries_.end(),
                       [mode](const Entry& entry) { return ModeOf(entry) == mode; });
  };
  return any("full") ? "full" : any("partial") ? "partial" : "plain";
}

void Step::CountStep(bool drafted) {
  Metrics& metrics = *parts_.metrics;
  if (entries_.empty()) return;
  metrics.Observe(Histogram::kSpecVerifySeconds, verify_seconds_, PassMode());
  if (drafted) {
    metrics.Observe(Histogram::kSpecDraftSeconds, draft_seconds_, parts_.drafter->name());
  }
  if (const int64_t staged = metrics.Total(Counter::kNworStagedTokens); staged > 0) {
    const auto committed = static_cast<double>(metrics.Total(Counter::kNworTokensCommitted));
    metrics.Set(Gauge::kNworAcceptanceRatio, committed / static_cast<double>(staged));
  }
  if (!options_.specpv.enabled) return;
  int provisional = 0;
  for (const Entry& entry : entries_) {
    if (!entry.run->finished()) provisional += entry.run->sequence.tail_len;
  }
  metrics.Set(Gauge::kSpecPvProvisionalTokens, provisional);
}

// Whether the step says what steps cost. Those that settle provisional tokens or choose blocks do
// not, nor those in which the drafter had to catch up after a prompt or a pause, unless it was with
// a few of many sequences.
bool Step::IsOrdinary() {
  bool special = false;
  size_t caught_up = 0;
  for (Entry& entry : entries_) {
    special |= entry.trunk > 0 || entry.select;
    const bool drafted_before = std::exchange(entry.run->drafted_last, entry.drafted_now);
    caught_up += entry.drafted_now && !drafted_before ? 1 : 0;
  }
  return !special && 4 * caught_up <= entries_.size();
}

// What kind of pass it was for partial verification, if it was of one kind.
std::optional<PassKind> Step::KindOfPass(bool ordinary) const {
  const auto all = [this](auto is) { return std::all_of(entries_.begin(), entries_.end(), is); };
  if (!all([](const Entry& entry) { return entry.run->partial.exact(); })) return std::nullopt;
  if (all([](const Entry& entry) { return entry.trunk > 0; })) return PassKind::kSettling;
  if (!ordinary) return std::nullopt;
  if (all([](const Entry& entry) { return entry.partial; })) return PassKind::kPartial;
  const bool full = all(
      [this](const Entry& entry) { return !entry.partial && partial_.CouldBePartial(*entry.run); });
  return full ? std::optional(PassKind::kFull) : std::nullopt;
}

void Step::TimePass(double seconds, bool ordinary) {
  const std::optional<PassKind> kind = KindOfPass(ordinary);
  if (!kind) return;
  int64_t context = 0;
  for (const Entry& entry : entries_) context += entry.prefix_read;
  const auto count = static_cast<int>(entries_.size());
  partial_.ObservePass(*kind, {.sequences = count, .context = static_cast<int>(context / count)},
                       static_cast<double>(builder_.num_tree_rows()) / count, seconds);
}

void Step::Account(double seconds, std::span<const PromptChunk> prompts) {
  StepCost cost{
      .rows = builder_.num_tree_rows(), .draft_seconds = draft_seconds_, .total_seconds = seconds};
  for (Entry& entry : entries_) {
    RequestStats& stats = entry.run->result.stats;
    stats.decode_seconds += seconds;
    stats.draft_seconds += draft_seconds_;
    if (entry.partial) stats.partial_seconds += seconds;
    stats.verify_seconds += verify_seconds_;
    cost.emitted += static_cast<int>(entry.acceptance.choices.size());
    cost.drafted |= entry.drafted_now;
  }
  CountStep(cost.drafted);
  for (const PromptChunk& prompt : prompts) prompt.run->result.stats.prompt_seconds += seconds;
  const bool ordinary = IsOrdinary();
  if (!prompts.empty() || entries_.empty()) return;
  if (options_.specpv.enabled) TimePass(seconds, ordinary);
  if (!ordinary) return;
  parts_.policy->ObserveStep(shape_, cost);
  for (const Entry& entry : entries_) {
    partial_.ObserveStep(entry.tree.size(), static_cast<int>(entry.acceptance.choices.size()));
  }
}

}  // namespace talon
