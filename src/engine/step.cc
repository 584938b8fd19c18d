#include "engine/step.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace talon {
namespace {

// The rows of one tree in the pass's logits, judged by the request's sampler.
class LogitRows : public TreeRows {
 public:
  LogitRows(Backend* backend, const MatrixView& logits, std::span<const int32_t> argmax,
            int first_row, const Sampler* sampler)
      : backend_(backend),
        logits_(logits),
        argmax_(argmax),
        first_row_(first_row),
        sampler_(sampler) {}

  Choice Choose(int node, std::span<const int32_t> path) override {
    if (sampler_->IsPlainGreedy()) return {.token = argmax_[first_row_ + node]};
    return sampler_->Choose(Fetch(node), path);
  }
  bool Distribution(int node, std::span<const int32_t> path, std::vector<float>* probs) override {
    return sampler_->Distribution(Fetch(node), path, probs);
  }

 private:
  std::span<float> Fetch(int node) {
    const MatrixView row = logits_.Rows(first_row_ + node, 1);
    host_.resize(row.cols);
    backend_->CopyOut(host_.data(), row.data, row.cols * sizeof(float));
    return host_;
  }

  Backend* backend_;
  MatrixView logits_;
  std::span<const int32_t> argmax_;
  int first_row_;
  const Sampler* sampler_;
  std::vector<float> host_;
};

// "no_blocks: kv: need ..." -> "no_blocks"
std::string ReasonOf(const Status& status) {
  return status.message().substr(0, status.message().find(':'));
}

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

}  // namespace

Step::Step(const Parts& parts, const StepOptions& options) : parts_(parts), options_(options) {}

Status Step::Run(std::span<ActiveRequest* const> decoding, std::span<const PromptChunk> prompts) {
  const Stopwatch watch;
  Begin(decoding);
  Propose();
  Status status = Plan(prompts);
  if (status.ok()) status = Verify();
  if (!status.ok()) {
    Abandon();
    return status;
  }
  Accept();
  Commit(prompts);
  Observe();
  Account(watch.Seconds(), prompts);
  return OkStatus();
}

void Step::Begin(std::span<ActiveRequest* const> decoding) {
  entries_.clear();
  draft_seconds_ = 0;
  int64_t context = 0;
  for (ActiveRequest* run : decoding) {
    entries_.push_back({.run = run, .tree = TokenTree(run->sequence.tokens.back())});
    context += run->sequence.committed_len;
  }
  const auto count = static_cast<int>(decoding.size());
  shape_ = {.sequences = count, .context = static_cast<int>(context / std::max(count, 1))};
}

// ---- Propose ----

void Step::Propose() {
  const Stopwatch watch;
  std::vector<DraftRequest> requests;
  std::vector<Entry*> asked;
  for (Entry& entry : entries_) {
    ActiveRequest& run = *entry.run;
    if (run.plain_next) {
      run.plain_next = false;
      run.remainder.reset();
    } else if (run.remainder) {
      entry.tree = std::move(*run.remainder);
      run.remainder.reset();
    } else if (const DraftBudget budget = BudgetFor(run); budget.max_nodes > 1 && Introduce(&run)) {
      requests.push_back({.sequence = run.sequence.id,
                          .tokens = run.sequence.tokens,
                          .budget = budget,
                          .temperature = run.sampler.params().temperature,
                          .seed = run.sampler.seed()});
      asked.push_back(&entry);
    }
  }
  if (!requests.empty()) {
    std::vector<TokenTree> trees;
    for (const Entry* entry : asked) trees.push_back(entry->tree);
    parts_.drafter->Propose(requests, trees);
    for (size_t i = 0; i < asked.size(); ++i) {
      asked[i]->tree = std::move(trees[i]);
      asked[i]->drafted_now = true;
      asked[i]->asked_depth = requests[i].budget.max_depth;
    }
    draft_seconds_ = watch.Seconds();
  }
  for (Entry& entry : entries_) {
    CheckProposal(&entry);
    if (entry.drafted_now) parts_.policy->Trim(shape_, &entry.tree);
    CutToChunk(&entry);
  }
}

bool Step::WantsDrafts(const ActiveRequest& run) const {
  return parts_.drafter != nullptr && run.request.speculate && run.tokens_left() > 1;
}

DraftBudget Step::BudgetFor(const ActiveRequest& run) const {
  if (!WantsDrafts(run)) return {};
  const KvShape& kv = parts_.kv->shape();
  const int room = parts_.kv->free_blocks() * kv.block_size / shape_.sequences +
                   (kv.block_size - run.sequence.committed_len % kv.block_size) % kv.block_size;
  DraftBudget limit = options_.budget;
  limit.max_depth = std::min({limit.max_depth, run.tokens_left() - 1, room - 1,
                              options_.max_length - 1 - run.sequence.committed_len});
  if (limit.max_depth < 1) return {};
  return parts_.policy->Budget(shape_, limit);
}

bool Step::Introduce(ActiveRequest* run) {
  if (run->drafter_knows) return true;
  const Status status = parts_.drafter->Begin(run->sequence.id, run->sequence.tokens);
  if (!status.ok()) {
    FallBack(Counter::kSpecFallback, "tree", "drafter_refused", run->sequence.id, status);
    run->request.speculate = false;
    return false;
  }
  run->drafter_knows = true;
  return true;
}

void Step::CheckProposal(Entry* entry) {
  const Sequence& sequence = entry->run->sequence;
  const TreeLimits limits{.max_nodes = options_.budget.max_nodes,
                          .max_depth = options_.budget.max_depth,
                          .vocab_size = parts_.target->config().vocab_size,
                          .committed_len = sequence.committed_len,
                          .max_length = options_.max_length};
  Status status = entry->tree.size() == 1 ? OkStatus() : ValidateTree(entry->tree, limits);
  const int32_t root = sequence.tokens.back();
  if (status.ok() && (entry->tree.size() == 0 || entry->tree.tokens[0] != root)) {
    status = InvalidArgument("tree: node 0 is not the sequence's last token {}", root);
  }
  if (status.ok()) return;
  FallBack(Counter::kSpecFallback, "tree", "invalid_tree", sequence.id, status);
  entry->tree = TokenTree(root);
}

void Step::CutToChunk(Entry* entry) {
  if (options_.scv_chunk_size <= 0 || entry->tree.size() <= options_.scv_chunk_size) return;
  entry->whole = entry->tree;
  entry->tree.Truncate(options_.scv_chunk_size);
}

// ---- Plan, Stage, Verify ----

Status Step::Plan(std::span<const PromptChunk> prompts) {
  builder_.Reset();
  for (Entry& entry : entries_) {
    if (!options_.nwor) ReserveTree(&entry);
    entry.first_row = builder_.AddTree(entry.run->sequence, entry.tree, entry.reservation.slots);
  }
  prompt_reservations_.clear();
  for (const PromptChunk& prompt : prompts) {
    auto reservation = parts_.kv->Reserve(prompt.run->sequence, prompt.tokens);
    if (!reservation.ok()) return reservation.status();
    prompt_reservations_.push_back(std::move(*reservation));
    builder_.AddPrompt(prompt.run->sequence, prompt_reservations_.back());
  }
  return options_.nwor ? parts_.kv->BeginStaging(builder_.num_tree_rows()) : OkStatus();
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
  const Stopwatch watch;
  TALON_RETURN_IF_ERROR(parts_.target->Forward(builder_.plan(), parts_.kv->view(), &output_));
  if (options_.nwor) parts_.kv->MarkAllStaged();
  const bool any_greedy = std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.run->sampler.IsPlainGreedy();
  });
  argmax_.resize(builder_.num_tree_rows());
  if (any_greedy) parts_.backend->Argmax(output_.logits, argmax_);
  verify_seconds_ = watch.Seconds();
  return OkStatus();
}

// ---- Accept ----

void Step::Accept() {
  for (Entry& entry : entries_) {
    const Sampler& sampler = entry.run->sampler;
    LogitRows rows(parts_.backend, output_.logits, argmax_, entry.first_row, &sampler);
    const bool random = sampler.params().temperature > 0;
    if (random && options_.accept == AcceptMode::kThreshold && options_.thresholds.lossy()) {
      entry.acceptance = AcceptThreshold(entry.tree, rows, sampler, options_.thresholds);
      entry.run->result.stats.lossy = true;
    } else if (random && options_.accept == AcceptMode::kRejection) {
      entry.acceptance = AcceptRejection(entry.tree, rows, sampler);
    } else {
      entry.acceptance = AcceptMatch(entry.tree, rows);
    }
    Emit(&entry);
  }
}

// Tokens in emission order up to the first that ends the request; later ones never happened.
void Step::Emit(Entry* entry) {
  ActiveRequest& run = *entry->run;
  entry->text_after = run.text;
  const Acceptance& acceptance = entry->acceptance;
  const auto emitted_before = static_cast<int>(run.result.tokens.size());
  const auto length_before = static_cast<int>(run.sequence.tokens.size());
  for (size_t i = 0; i < acceptance.choices.size(); ++i) {
    const Choice& choice = acceptance.choices[i];
    if (choice.dead_end) {
      entry->finish = FinishReason::kDeadEnd;
      return;
    }
    entry->emitted.push_back({.token = choice.token,
                              .drafted = i + 1 < acceptance.path.size(),
                              .log_prob = choice.log_prob,
                              .top = choice.top});
    const auto count = static_cast<int>(entry->emitted.size());
    if (run.sampler.EndsRequest(choice.token) || entry->text_after->Push(choice.token)) {
      entry->finish = FinishReason::kStop;
    } else if (emitted_before + count >= run.request.sampling.max_tokens ||
               length_before + count >= options_.max_length) {
      entry->finish = FinishReason::kLength;
    }
    if (entry->finish != FinishReason::kNone) return;
  }
}

// ---- Commit ----

void Step::Commit(std::span<const PromptChunk> prompts) {
  for (Entry& entry : entries_) CommitEntry(&entry);
  if (options_.nwor) parts_.kv->ClearStaging();
  for (size_t i = 0; i < prompts.size(); ++i) {
    ActiveRequest* run = prompts[i].run;
    parts_.kv->Advance(&run->sequence, std::move(prompt_reservations_[i]), prompts[i].tokens,
                       "prefill");
    // The drafter reads the prompt when the target has, so its time counts as the prompt's.
    if (run->prompt_left() == 0 && WantsDrafts(*run)) Introduce(run);
  }
}

void Step::CommitEntry(Entry* entry) {
  ActiveRequest& run = *entry->run;
  const std::vector<int32_t>& path = entry->acceptance.path;
  // A finishing token that is itself a node is committed with its path (then C == len(tokens)).
  const size_t rows = entry->finish == FinishReason::kNone
                          ? path.size()
                          : std::min(path.size(), entry->emitted.size() + 1);
  std::vector<int32_t> accepted(path.begin(), path.begin() + static_cast<int64_t>(rows));
  Status status;
  if (options_.nwor) {
    for (int32_t& row : accepted) row += entry->first_row;
    status = parts_.kv->Commit(&run.sequence, accepted);
  } else {
    status = parts_.kv->CommitReserved(&run.sequence, std::move(entry->reservation), accepted);
  }
  if (!status.ok()) {  // nothing of this step happened for the sequence; repeat it with [root]
    FallBack(Counter::kNworFallback, "nwor", ReasonOf(status), run.sequence.id, status);
    run.plain_next = true;
    return;
  }
  entry->committed = true;
  if (options_.nwor) CountNwor(*entry, static_cast<int>(rows));
  for (const EmittedToken& token : entry->emitted) run.sequence.tokens.push_back(token.token);
  run.text = std::move(*entry->text_after);
}

void Step::CountNwor(const Entry& entry, int committed) {
  const int rejected = entry.tree.size() - committed;
  parts_.metrics->Add(Counter::kNworTokensCommitted, committed);
  parts_.metrics->Add(Counter::kNworTokensRejected, rejected);
  parts_.metrics->Add(Counter::kNworBytesSaved,
                      static_cast<int64_t>(parts_.kv->shape().BytesPerToken()) * rejected);
}

// ---- Observe ----

void Step::Observe() {
  for (Entry& entry : entries_) {
    if (!entry.committed) continue;
    ActiveRequest& run = *entry.run;
    std::vector<int32_t> tokens;
    for (const EmittedToken& token : entry.emitted) tokens.push_back(token.token);
    run.sampler.Observe(tokens);
    if (run.drafter_knows) parts_.drafter->Observe(run.sequence.id, tokens);
    if (entry.tree.size() > 1) parts_.policy->ObserveTree(entry.tree, entry.acceptance.path);
    KeepRemainder(&entry);
    CountEntry(entry);
    run.result.finish = entry.finish;
    std::move(entry.emitted.begin(), entry.emitted.end(), std::back_inserter(run.result.tokens));
  }
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
    entry->run->remainder = Subtree(entry->whole, next);
  } else {
    parts_.metrics->Add(Counter::kScvChunks, CeilDiv(entry->whole.size() - chunk, chunk),
                        "skipped");
  }
}

void Step::CountEntry(const Entry& entry) {
  RequestStats& stats = entry.run->result.stats;
  const auto accepted = static_cast<int>(entry.acceptance.path.size()) - 1;
  stats.passes += 1;
  stats.emitted += static_cast<int64_t>(entry.emitted.size());
  stats.drafted += entry.tree.size() - 1;
  stats.accepted += accepted;
  const bool speculative = entry.tree.size() > 1;
  parts_.metrics->Add(Counter::kSpecVerifyPasses, 1, speculative ? "full" : "plain");
  if (!speculative) return;
  const int deepest = TreeDepths(entry.tree.parents).back();
  for (int depth = 1; depth <= std::min(deepest, RequestStats::kMaxDepth); ++depth) {
    if (depth - 1 > accepted) break;  // tried: the parent was accepted
    ++stats.tried_at_depth[depth - 1];
    if (depth > accepted) continue;
    ++stats.accepted_at_depth[depth - 1];
    parts_.metrics->Add(Counter::kSpecAcceptedAtDepth, 1, std::to_string(depth));
  }
  const std::string_view drafter = parts_.drafter->name();
  parts_.metrics->Add(Counter::kSpecDraftTokens, entry.tree.size() - 1, drafter);
  parts_.metrics->Add(Counter::kSpecAcceptedTokens, accepted, drafter);
}

void Step::Account(double seconds, std::span<const PromptChunk> prompts) {
  StepCost cost{
      .rows = builder_.num_tree_rows(), .draft_seconds = draft_seconds_, .total_seconds = seconds};
  for (Entry& entry : entries_) {
    RequestStats& stats = entry.run->result.stats;
    stats.decode_seconds += seconds;
    stats.draft_seconds += draft_seconds_;
    stats.verify_seconds += verify_seconds_;
    cost.emitted += static_cast<int>(entry.acceptance.choices.size());
    cost.drafted |= entry.drafted_now;
    cost.draft_depth = std::max(cost.draft_depth, entry.asked_depth);
  }
  for (const PromptChunk& prompt : prompts) prompt.run->result.stats.prompt_seconds += seconds;
  if (prompts.empty() && !entries_.empty()) parts_.policy->ObserveStep(shape_, cost);
}

// ---- Failures ----

void Step::FallBack(Counter counter, const char* feature, const std::string& reason,
                    SequenceId sequence, const Status& why) {
  parts_.metrics->Add(counter, 1, reason);
  LogFallback(feature, fmt::format("{}; single-token step (sequence {}: {})", reason, sequence,
                                   why.message()));
}

void Step::Abandon() {
  for (Entry& entry : entries_) parts_.kv->Cancel(std::move(entry.reservation));
  for (Reservation& reservation : prompt_reservations_) {
    parts_.kv->Cancel(std::move(reservation));
  }
  parts_.kv->ClearStaging();
}

}  // namespace talon
