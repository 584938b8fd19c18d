#include "engine/step/propose.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/step/accept.h"
#include "engine/step/fallback.h"
#include "observe/stage_range.h"

namespace talon {

void Proposer::Propose(StepBatch* batch) {
  const StageRange range("Propose");
  std::vector<Asked> asked;
  for (StepEntry& entry : batch->entries) {
    const ActiveRequest& run = *entry.run;
    if (run.plain_next) continue;
    if (run.next_drafts) {
      entry.proposal.SetDrafts(*run.next_drafts);
    } else if (const auto budget = BudgetFor(run, batch->shape); budget.max_nodes > 1) {
      asked.push_back({&entry, budget});
    }
  }
  if (!asked.empty()) AskDrafter(asked, batch);
  for (StepEntry& entry : batch->entries) {
    if (!entry.origin.is_outline) {
      CheckDrafts(&entry);
      if (entry.run->sampler.has_grammar()) DropForbidden(&entry);
      if (entry.origin.drafter_asked) Trim(batch->shape, &entry);
    }
    partial_->ChooseView(batch->shape, &entry);
    if (options_.scv_chunk_size > 0) entry.proposal.CutTo(options_.scv_chunk_size);
  }
}

void Proposer::AskDrafter(std::span<const Asked> asked, StepBatch* batch) {
  const Stopwatch watch(parts_.backend->time());
  std::vector<DraftRequest> requests;
  std::vector<TokenTree> trees;
  for (const auto& [entry, budget] : asked) {
    const ActiveRequest& run = *entry->run;
    const bool constrained = run.sampler.has_grammar();
    requests.push_back({.sequence = run.sequence.id,
                        .tokens = run.sequence.tokens,
                        .budget = budget,
                        .temperature = run.sampler.params().temperature,
                        .seed = run.sampler.seed(),
                        .grammar = constrained ? &run.sampler.grammar() : nullptr,
                        .grammar_state = constrained ? run.sampler.GrammarState(run.sequence.tokens)
                                                     : Matcher::kDead,
                        .sources = run.sources});
    trees.push_back(entry->proposal.drafts());
  }
  std::vector<bool> outlines(trees.size());
  if (RunsAhead()) {
    const int nodes = parts_.policy->NodesAhead(batch->shape, options_.budget.max_nodes);
    outlines = parts_.drafter->BeginTrees(requests, nodes, trees);
  } else {
    parts_.drafter->Propose(requests, trees);
  }
  batch->lookups_only = asked[0].budget.lookups_only;
  for (size_t i = 0; i < asked.size(); ++i) {
    // A lookup that finds nothing leaves a plain step.
    const bool drafted = !asked[i].budget.lookups_only || trees[i].size() > 1;
    asked[i].entry->origin = {.drafter_asked = drafted, .is_outline = outlines[i], .request = i};
    asked[i].entry->proposal.SetDrafts(std::move(trees[i]));
    batch->runs_ahead |= outlines[i];
  }
  batch->draft_seconds = watch.Seconds();
}

// Unless the host has to see trees before they are verified, as where it sends them to other ranks.
bool Proposer::RunsAhead() const {
  return parts_.target->leader() == nullptr && options_.nwor && options_.scv_chunk_size <= 0 &&
         options_.specpv.shadow_rate <= 0 && parts_.drafter->GrowsAhead();
}

DraftBudget Proposer::BudgetFor(const ActiveRequest& run, const StepShape& shape) const {
  if (!run.drafter_knows || run.tokens_left() <= 1 || run.partial.finish_pending) return {};
  const KvShape& kv = parts_.kv->shape();
  const int room = parts_.kv->pool().free_blocks() * kv.block_size / shape.sequences +
                   (kv.block_size - run.sequence.committed_len % kv.block_size) % kv.block_size;
  DraftBudget limit = options_.budget;
  const auto length = static_cast<int>(run.sequence.tokens.size());
  limit.max_nodes = std::min(limit.max_nodes, partial_->TreeRoom(run));
  if (const int most = run.request.max_draft_nodes; most > 0) {
    limit.max_nodes = std::min(limit.max_nodes, most);
  }
  limit.max_depth = std::min({limit.max_depth, run.tokens_left() - 1,
                              room - 1 - run.sequence.tail_len, options_.max_length - length});
  if (limit.max_depth < 1) return {};
  DraftBudget budget = parts_.policy->Budget(shape, limit);
  if (budget.max_nodes <= 1 && parts_.policy->AllowsLookups() && parts_.drafter->HasLookups()) {
    budget = limit;
    budget.lookups_only = true;
  }
  return budget;
}

void Proposer::CheckDrafts(StepEntry* entry) const {
  const Sequence& sequence = entry->run->sequence;
  const TokenTree& drafts = entry->proposal.drafts();
  const TreeLimits limits{.max_nodes = options_.budget.max_nodes,
                          .max_depth = options_.budget.max_depth,
                          .vocab_size = parts_.target->config().vocab_size,
                          .committed_len = sequence.committed_len + sequence.tail_len,
                          .max_length = options_.max_length};
  Status status = drafts.size() == 1 ? OkStatus() : ValidateTree(drafts, limits);
  const int32_t root = sequence.tokens.back();
  if (status.ok() && (drafts.size() == 0 || drafts.tokens[0] != root)) {
    status = InvalidArgument("tree: node 0 is not the sequence's last token {}", root);
  }
  if (status.ok()) return;
  ReportStepFallback({Counter::kSpecFallback, "tree", "invalid_tree"}, sequence.id, status,
                     parts_.metrics);
  entry->proposal.SetDrafts(TokenTree(root));
}

// Drafts that the grammar forbids cannot be accepted, so they are not verified.
void Proposer::DropForbidden(StepEntry* entry) {
  const TokenTree& drafts = entry->proposal.drafts();
  const Sampler& sampler = entry->run->sampler;
  const auto states = sampler.grammar().OfNodes(sampler.GrammarState(entry->run->sequence.tokens),
                                                drafts.tokens, drafts.parents);
  std::vector<bool> keep = {true};
  for (int i = 1; i < drafts.size(); ++i) {
    const int parent = drafts.parents[i];
    keep.push_back(keep[parent] && sampler.GrammarAllows(states[parent], drafts.tokens[i]));
  }
  entry->proposal.SetDrafts(SelectNodes(drafts, keep));
}

void Proposer::Trim(const StepShape& shape, StepEntry* entry) const {
  TokenTree drafts = entry->proposal.drafts();
  parts_.policy->Trim(shape, &drafts);
  entry->proposal.SetDrafts(std::move(drafts));
}

}  // namespace talon
