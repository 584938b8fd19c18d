#include "engine/step/observe.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "base/math.h"
#include "observe/stage_range.h"

namespace talon {
void Observer::Observe(StepBatch* batch, const MatrixView& features) {
  const StageRange range("Observe");
  sync_->SendCommitted(features);
  for (StepEntry& entry : batch->entries) {
    if (!entry.commit.done) continue;
    ObserveEntry(&entry);
    KeepRemainder(&entry);
  }
}

void Observer::ObserveEntry(StepEntry* entry) {
  ActiveRequest& run = *entry->run;
  Verdict& verdict = entry->verdict;
  std::vector<int32_t> tokens;
  for (const EmittedToken& token : verdict.emitted) tokens.push_back(token.token);
  if (run.drafter_knows) {
    // The drafter observed provisional tokens when they were accepted.
    const auto confirmed = std::min<size_t>(entry->commit.confirmed, tokens.size());
    parts_.drafter->Observe(run.sequence.id, std::span<const int32_t>(tokens).subspan(confirmed));
  }
  const Proposal& proposal = entry->proposal;
  if (proposal.num_drafts() > 0 && !verdict.draft_path.empty()) {
    parts_.policy->ObserveTree(proposal.drafts(), verdict.draft_path, entry->origin.is_outline);
  }
  if (run.request.watched) {
    run.verified = VerifiedTree{proposal.tree().tokens, proposal.tree().parents, verdict.path};
  }
  if (entry->commit.provisional) return;
  if (run.sampler.has_grammar()) CountForced(run, tokens);
  run.sampler.Observe(tokens);
  run.result.finish = verdict.finish;
  if (verdict.broken) run.result.error = Internal("the model's logits are not finite");
  std::ranges::move(verdict.emitted, std::back_inserter(run.result.tokens));
}

// `tokens` follow those of the result.
void Observer::CountForced(const ActiveRequest& run, std::span<const int32_t> tokens) {
  const GrammarCursor& grammar = run.sampler.grammar();
  const size_t before = static_cast<size_t>(run.prompt_tokens) + run.result.tokens.size();
  Matcher::StateId state =
      run.sampler.GrammarState(std::span<const int32_t>(run.sequence.tokens).first(before));
  for (const int32_t token : tokens) {
    if (run.sampler.EndsRequest(token)) return;
    parts_.metrics->Add(Counter::kGrammarTokens, 1,
                        grammar.IsForced(state, token) ? "forced" : "chosen");
    state = grammar.Next(state, token);
  }
}

// Chunked verification: if the walk ended at a node of the unverified part, the next step goes on
// with that node's subtree instead of a new proposal.
void Observer::KeepRemainder(StepEntry* entry) {
  const int chunk = options_.scv_chunk_size;
  if (chunk <= 0) return;
  parts_.metrics->Add(Counter::kScvChunks, 1, "run");
  const TokenTree& uncut = entry->proposal.uncut();
  if (uncut.size() == 0) return;
  const Verdict& verdict = entry->verdict;
  const int next =
      verdict.finish != FinishReason::kNone
          ? -1
          : uncut.FindChild(verdict.draft_path.back(), verdict.acceptance.choices.back().token);
  if (next >= 0) {
    entry->run->next_drafts = Subtree(uncut, next);
  } else {
    parts_.metrics->Add(Counter::kScvChunks, CeilDiv(uncut.size() - chunk, chunk), "skipped");
  }
}

}  // namespace talon
