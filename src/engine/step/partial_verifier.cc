#include "engine/step/partial_verifier.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/contain.h"
#include "spec/specpv/shadow.h"

namespace talon {
namespace {

BlockScorer ScorerOf(SpecPvSelector selector) {
  switch (selector) {
    case SpecPvSelector::kAttention:
      return BlockScorer::kAttention;
    case SpecPvSelector::kQuestBound:
      return BlockScorer::kQuestBound;
    case SpecPvSelector::kH2o:
      return BlockScorer::kH2o;
    default:
      return BlockScorer::kQuest;
  }
}

}  // namespace

void PartialVerifier::Admit(ActiveRequest* run) {
  PartialState& state = run->partial;
  if (!config_.enabled || state.admitted) return;
  state.admitted = true;
  state.config = WithOverrides(config_, run->request.specpv);
  if (run->request.specpv.off) return;
  const SpecPvRequest request{.prompt_tokens = run->prompt_tokens,
                              .max_tokens = run->request.sampling.max_tokens,
                              .max_depth = max_depth_,
                              .wants_logprobs = run->request.sampling.logprobs >= 0};
  const auto budget = SpecPvBudgetOf(state.config, request);
  if (!budget) return;
  state.governor.emplace(state.config, *budget);
  ReconsiderOne(/*sequences=*/1, run);
}

void PartialVerifier::Reconsider(std::span<ActiveRequest* const> runs) {
  for (ActiveRequest* run : runs) ReconsiderOne(static_cast<int>(runs.size()), run);
  SpreadRounds(runs);
}

double PartialVerifier::RoundSteps(const ActiveRequest& run) const {
  const PartialState& state = run.partial;
  double tokens = config_.buffer_tokens - state.payoff.draft_rows();
  if (state.exact()) tokens = std::min<double>(tokens, state.max_trunk);
  return std::min<double>(state.governor->interval(), tokens / state.payoff.draft_tokens());
}

void PartialVerifier::SpreadRounds(std::span<ActiveRequest* const> runs) const {
  const auto has_rounds = [](const ActiveRequest* run) {
    const PartialState& state = run->partial;
    return !run->finished() && state.governor && state.lists && state.pays;
  };
  const auto begins = [&](const ActiveRequest* run) {
    return has_rounds(run) && run->partial.partial_steps == 0;
  };
  const auto all = static_cast<double>(std::ranges::count_if(runs, has_rounds));
  const auto count = static_cast<double>(std::ranges::count_if(runs, begins));
  int nth = 0;
  for (ActiveRequest* run : runs) {
    if (!begins(run)) continue;
    ++nth;
    PartialState& state = run->partial;
    const double steps = std::max(1.0, RoundSteps(*run));
    if (steps >= count) {
      state.max_steps =
          nth == count ? GateState::kNoInterval : static_cast<int>(steps * nth / count);
      continue;
    }
    // Too short to be cut: those beyond a step's share begin later.
    state.max_steps = GateState::kNoInterval;
    if (nth > std::ceil(all / (steps + 1))) state.lists.reset();
  }
}

void PartialVerifier::ReconsiderOne(int sequences, ActiveRequest* run) {
  constexpr double kExpectedOdds = 0.03;
  PartialState& state = run->partial;
  if (!CouldBePartial(*run) || !state.exact() || run->sequence.tail_len > 0) return;
  EndRound(run);
  // A round ends with the request.
  const int room = std::min(config_.buffer_tokens, run->tokens_left() - 1);
  const double lost =
      parts_.policy->StepsLost({.sequences = sequences, .context = run->sequence.committed_len});
  const int trunk =
      state.payoff.Decide(PassesOf(*run, sequences), odds_.Odds(kExpectedOdds), lost, room);
  state.pays = trunk > 0;
  state.max_trunk = trunk;
  if (!state.pays) state.lists.reset();  // they become stale
}

void PartialVerifier::ObserveStep(const StepEntry& entry, int sequences,
                                  std::optional<double> draft_seconds) {
  PartialState& state = entry.run->partial;
  if (!CouldBePartial(*entry.run)) return;
  const int rows = entry.proposal.tree().size();
  const bool asked = entry.origin.drafter_asked;
  if (asked && draft_seconds) {
    const auto tokens = static_cast<double>(entry.verdict.acceptance.choices.size());
    state.payoff.RecordDraftStep(rows, tokens, *draft_seconds);
  }
  const PassSeconds passes = PassesOf(*entry.run, sequences);
  const auto& pass = entry.view.partial           ? passes.partial
                     : entry.proposal.has_trunk() ? passes.settling
                                                  : passes.full;
  state.round.seconds += pass(rows) + (asked ? state.payoff.draft_seconds() : 0);
  state.round.tokens +=
      entry.commit.provisional ? 0 : static_cast<int>(entry.verdict.emitted.size());
  state.round.partial |= entry.view.partial;
}

void PartialVerifier::EndRound(ActiveRequest* run) {
  PartialState& state = run->partial;
  const RoundSum round = std::exchange(state.round, {});
  if (round.tokens == 0) return;
  if (round.partial) {
    state.payoff.RecordRound(round.seconds, round.tokens);
  } else {
    state.payoff.RecordFullStep(round.tokens);
  }
}

int PartialVerifier::TreeRoom(const ActiveRequest& run) const {
  if (!config_.enabled) return std::numeric_limits<int>::max();
  return talon::TreeRoom(config_, run.sequence.tail_len, max_depth_);
}

bool PartialVerifier::CouldBePartial(const ActiveRequest& run) const {
  const PartialState& state = run.partial;
  return state.governor &&
         LongEnoughForPartial(state.config, state.governor->budget(), run.sequence.committed_len);
}

PassSeconds PartialVerifier::PassesOf(const ActiveRequest& run, int sequences) const {
  const int committed = run.sequence.committed_len;
  const int visible = run.partial.governor->budget().Total() * config_.block_size;
  const auto share = [policy = parts_.policy, sequences](int context, double factor) {
    return [=](double rows) {
      return factor * policy->PassSeconds({.sequences = sequences, .context = context}, rows) /
             sequences;
    };
  };
  return {.full = share(committed, 1),
          .partial = share(std::min(visible, committed), ratios_.partial()),
          .settling = share(committed, ratios_.settling())};
}

GateDecision PartialVerifier::Decide(const ActiveRequest& run, int nodes) const {
  if (!config_.enabled) return {};
  const PartialState& state = run.partial;
  GateState gate{.supported = state.governor.has_value(),
                 .pays = state.pays,
                 .selected = state.lists.has_value(),
                 .committed_len = run.sequence.committed_len,
                 .provisional_tokens = run.sequence.tail_len,
                 .partial_steps = state.partial_steps,
                 .max_trunk = state.max_trunk,
                 .tree_nodes = nodes,
                 .finish_pending = state.finish_pending,
                 .settle_requested = run.plain_next};
  if (state.governor) {
    gate.budget = state.governor->budget();
    gate.interval = std::min(state.governor->interval(), state.max_steps);
  }
  return DecideVerification(state.config, gate);
}

void PartialVerifier::ChooseView(const StepShape& shape, StepEntry* entry) const {
  Sequence& sequence = entry->run->sequence;
  ViewChoice& view = entry->view;
  GateDecision decision = Decide(*entry->run, entry->proposal.drafts().size());
  if (decision.partial && sequence.tail_first < 0) {
    view.tail = parts_.kv->staging().OpenTail(&sequence);
    view.opened_tail = view.tail.ok();
    if (!view.opened_tail) decision = {};
  }
  view.partial = decision.partial;
  view.select = decision.select;
  view.refresh = decision.reason;
  if (decision.partial || sequence.tail_len == 0) return;
  if (entry->origin.drafter_asked && !entry->origin.is_outline) {
    const StepShape whole{
        .sequences = shape.sequences, .context = sequence.committed_len, .partial = true};
    TokenTree drafts = entry->proposal.drafts();
    parts_.policy->TrimSettling(whole, sequence.tail_len, &drafts);
    entry->proposal.SetDrafts(std::move(drafts));
  }
  entry->proposal.AddTrunk(
      std::span(sequence.tokens).subspan(sequence.committed_len, sequence.tail_len),
      /*judged=*/entry->run->partial.exact());
}

void PartialVerifier::Abandon(StepEntry* entry) const {
  if (entry->view.opened_tail) parts_.kv->staging().CloseTail(&entry->run->sequence);
}

PartialView PartialVerifier::ViewOf(const ActiveRequest& run) const {
  const PartialLists& lists = *run.partial.lists;
  return {.block_ids = lists.block_ids,
          .num_lists = lists.layers * lists.kv_heads,
          .tokens = lists.visible_tokens};
}

bool PartialVerifier::HasCopy(const ActiveRequest& run) {
  return run.partial.lists && !run.partial.copied_blocks.empty();
}

PartialView PartialVerifier::CopyOf(const ActiveRequest& run) const {
  return {.block_ids = run.partial.copied_blocks,
          .num_lists = 1,
          .tokens = run.partial.lists->visible_tokens};
}

void PartialVerifier::DropTail(ActiveRequest* run) const {
  Sequence& sequence = run->sequence;
  if (run->partial.exact()) {
    sequence.tokens.resize(sequence.tokens.size() - sequence.tail_len);
    run->partial.text.reset();
    run->partial.finish_pending = false;
  }
  parts_.kv->staging().DropTail(&sequence);
}

void PartialVerifier::Settle(StepEntry* entry) {
  ActiveRequest& run = *entry->run;
  PartialState& state = run.partial;
  const ViewChoice& view = entry->view;
  if (!view.tail.ok()) GiveUp(&run, SpecPvFallbackReason::kInvariant, view.tail.message());
  if (view.refresh) {
    parts_.metrics->Add(Counter::kSpecPvRefresh, 1, RefreshReasonName(*view.refresh));
  }
  if (view.partial) {
    ++state.partial_steps;
    parts_.metrics->Observe(
        Histogram::kSpecPvVisibleRatio,
        static_cast<double>(state.lists->visible_tokens) / run.sequence.committed_len);
    entry->commit.provisional = state.exact();
    if (!state.exact()) run.result.stats.lossy = true;
    state.finish_pending =
        entry->commit.provisional && entry->verdict.finish != FinishReason::kNone;
    return;
  }
  if (const int rejudged = entry->proposal.num_rejudged(); rejudged > 0) {
    entry->commit.confirmed = entry->proposal.NumConfirmed(entry->verdict.path);
    CountTrunk(&run, rejudged, entry->commit.confirmed);
  }
  if (!view.select) return;
  // What the pass committed is right whatever the choice of blocks meets.
  const Status chosen = Contain([&] { Select(&run); });
  if (!chosen.ok()) GiveUp(&run, SpecPvFallbackReason::kInvariant, chosen.message());
}

Status PartialVerifier::RunShadows(std::span<StepEntry> entries) {
  for (StepEntry& entry : entries) {
    const ActiveRequest& run = *entry.run;
    const auto position = static_cast<int64_t>(run.sequence.tokens.size());
    if (!entry.view.partial || !DrawShadow(config_, run.sampler.seed(), position)) continue;
    TALON_ASSIGN_OR_RETURN(entry.shadow, shadow_.Run(run, entry.proposal.drafts()));
  }
  return OkStatus();
}

void PartialVerifier::CompareShadows(std::span<StepEntry> entries, const ForwardOutput& output) {
  for (StepEntry& entry : entries) {
    if (entry.shadow.empty()) continue;
    shadow_.Compare(entry.shadow, entry.proposal.drafts(), output, entry.rows.first_output,
                    entry.run);
  }
}

void PartialVerifier::RequestScores(const ActiveRequest& run, int row_begin, int row_end,
                                    int max_committed, PassBuilder* builder) {
  const int committed = run.sequence.committed_len;
  Ranking ranking{.run = &run,
                  .budget = run.partial.governor->budget(),
                  .min_full_blocks = (committed + 1) / config_.block_size,
                  .max_full_blocks = (committed + max_committed) / config_.block_size};
  if (config_.RanksBlocks()) {
    const bool root_only = config_.reduce == SpecPvReduce::kRoot;
    ranking.scored_blocks = committed / config_.block_size;
    ranking.first_column = builder->RequestScores(
        row_begin, root_only ? row_begin + 1 : row_end, ranking.scored_blocks,
        {.scorer = ScorerOf(config_.selector),
         .reduce = config_.reduce == SpecPvReduce::kMax ? ScoreReduce::kMax : ScoreReduce::kMean});
  }
  rankings_.push_back(std::move(ranking));
}

void PartialVerifier::RankBlocks(const MatrixView& scores) {
  std::vector<ColumnChoice> choices;
  size_t chosen = 0;
  for (Ranking& ranking : rankings_) {
    for (int full = ranking.min_full_blocks; full <= ranking.max_full_blocks; ++full) {
      const RankedBlocks blocks = RankedBlocksOf(ranking.budget, full, ranking.scored_blocks);
      ranking.first_chosen.push_back(chosen);
      choices.push_back({.begin = ranking.first_column + blocks.first,
                         .end = ranking.first_column + blocks.end,
                         .count = blocks.ranked});
      chosen += static_cast<size_t>(scores.rows) * blocks.ranked;
    }
  }
  if (chosen > 0) parts_.backend->kv_ops()->ChooseColumns(scores, choices);
}

ListShape PartialVerifier::NumLists() const {
  const ModelConfig& model = parts_.target->config();
  return {.layers = model.num_layers, .kv_heads = model.num_kv_heads};
}

std::vector<int32_t> PartialVerifier::RankedOf(const Ranking& ranking, int full_blocks) const {
  const int index = full_blocks - ranking.min_full_blocks;
  TALON_CHECK(0 <= index && full_blocks <= ranking.max_full_blocks);
  const RankedBlocks blocks = RankedBlocksOf(ranking.budget, full_blocks, ranking.scored_blocks);
  if (blocks.ranked == 0) return {};
  const std::span<const int32_t> all = parts_.backend->kv_ops()->ChosenColumns();
  const size_t first = ranking.first_chosen[index];
  const size_t count = static_cast<size_t>(NumLists().layers) * NumLists().kv_heads * blocks.ranked;
  TALON_CHECK(first + count <= all.size(), "{} ranked blocks, {} wanted", all.size(),
              first + count);
  const auto chosen = all.subspan(first, count);
  std::vector<int32_t> ranked(chosen.begin(), chosen.end());
  for (int32_t& column : ranked) column = column < 0 ? -1 : column - ranking.first_column;
  return ranked;
}

void PartialVerifier::Select(ActiveRequest* run) {
  const auto ranking = std::ranges::find(rankings_, run, &Ranking::run);
  TALON_CHECK(ranking != rankings_.end(), "no scores were asked for");
  const Sequence& sequence = run->sequence;
  const int full_blocks = sequence.committed_len / config_.block_size;
  const auto selection = MakeSelection(RankedOf(*ranking, full_blocks), NumLists(), ranking->budget,
                                       full_blocks, ranking->scored_blocks);
  if (!selection.ok()) {
    GiveUp(run, SpecPvFallbackReason::kNanScores, selection.status().message());
    return;
  }
  PartialState& state = run->partial;
  const std::vector<int>& windows = parts_.target->config().windows;
  state.lists = MakePartialLists(*selection, sequence.blocks, sequence.committed_len,
                                 config_.block_size, windows);
  if (!windows.empty() && state.lists->visible_tokens < std::ranges::max(windows)) {
    GiveUp(run, SpecPvFallbackReason::kNarrowView,
           fmt::format("view of {} tokens < sliding window {}", state.lists->visible_tokens,
                       std::ranges::max(windows)));
    return;
  }
  state.partial_steps = 0;
  state.copied_blocks.clear();
  if (parts_.kv->views().shape.num_blocks == 0) return;
  // What does not fit is read in place.
  auto copied = parts_.kv->CopyToView(&run->sequence, state.lists->block_ids);
  if (copied.ok()) state.copied_blocks = std::move(*copied);
}

void PartialVerifier::CountTrunk(ActiveRequest* run, int provisional, int confirmed) {
  const bool disagreed = confirmed < provisional;
  parts_.metrics->Add(Counter::kSpecPvConfirmedTokens, confirmed);
  parts_.metrics->Add(Counter::kSpecPvRolledBackTokens, provisional - confirmed);
  AgreementByDistance agreement;
  agreement.RecordTrunk(confirmed, disagreed);
  agreement.Publish(parts_.metrics);
  odds_.RecordTrunk(confirmed, disagreed);
  run->partial.payoff.RecordTrunk(confirmed, disagreed);
  if (run->partial.governor) run->partial.governor->RecordTrunk(confirmed, disagreed);
}

void PartialVerifier::GiveUp(ActiveRequest* run, SpecPvFallbackReason reason,
                             const std::string& detail) {
  ReportSpecPvFallback({reason, fmt::format("{} (sequence {})", detail, run->sequence.id)},
                       parts_.metrics);
  run->partial.governor.reset();
  run->partial.lists.reset();
}

}  // namespace talon
