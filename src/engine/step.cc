#include "engine/step.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/stage_range.h"
#include "spec/specpv/shadow.h"

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

}  // namespace

Step::Step(const Parts& parts, const StepOptions& options)
    : parts_(parts),
      options_(options),
      partial_({.backend = parts.backend,
                .kv = parts.kv,
                .metrics = parts.metrics,
                .policy = parts.policy},
               options.specpv, options.budget.max_depth),
      shadow_(parts.backend, parts.target, parts.kv, parts.metrics) {
  if (parts_.drafter != nullptr) capture_layers_ = parts_.drafter->capture_layers();
}

Status Step::Run(std::span<ActiveRequest* const> decoding, std::span<const PromptChunk> prompts) {
  StageRange range("Step");
  range.Note("sequences", decoding.size());
  range.Note("prompt_chunks", prompts.size());
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
  runs_ahead_ = false;
  int64_t context = 0;
  for (ActiveRequest* run : decoding) {
    Introduce(run);
    entries_.push_back({.run = run, .tree = TokenTree(run->sequence.tokens.back())});
    const PartialState& partial = run->partial;
    context += partial.lists ? partial.lists->visible_tokens + run->sequence.tail_len
                             : run->sequence.committed_len;
  }
  const auto count = static_cast<int>(decoding.size());
  shape_ = {.sequences = count, .context = static_cast<int>(context / std::max(count, 1))};
  if (count > 0) parts_.policy->BeginStep(shape_);
}

void Step::Suspend(ActiveRequest* run) {
  if (run->sequence.tail_len > 0 && run->partial.exact()) partial_.Unwind(run);
  run->partial.lists.reset();
  run->remainder.reset();
  if (run->drafter_knows) parts_.drafter->End(run->sequence.id);
  run->drafter_knows = false;
}

// ---- Propose ----

void Step::Propose() {
  const StageRange range("Propose");
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
    } else if (const DraftBudget budget = BudgetFor(run); budget.max_nodes > 1) {
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
    runs_ahead_ = RunsAhead(asked) && parts_.drafter->BeginTrees(requests, trees);
    if (!runs_ahead_) parts_.drafter->Propose(requests, trees);
    for (size_t i = 0; i < asked.size(); ++i) {
      asked[i]->tree = std::move(trees[i]);
      asked[i]->drafted_now = true;
      asked[i]->is_outline = runs_ahead_ && asked[i]->tree.size() > 1;
      asked[i]->draft_request = i;
    }
    draft_seconds_ = watch.Seconds();
  }
  for (Entry& entry : entries_) {
    if (!entry.is_outline) CheckProposal(&entry);
    if (entry.drafted_now && !entry.is_outline) parts_.policy->Trim(shape_, &entry.tree);
    ChooseView(&entry);
    CutToChunk(&entry);
  }
}

// Whether the step reads a partial view of the prefix. If not, what was provisional is part of the
// tree: judged again (exact), or only computed again (fast).
void Step::ChooseView(Entry* entry) {
  ActiveRequest& run = *entry->run;
  const GateDecision decision = partial_.Decide(&run, entry->tree.size());
  entry->partial = decision.partial;
  entry->select = decision.select;
  if (entry->partial || run.sequence.tail_len == 0) return;
  const Sequence& sequence = run.sequence;
  entry->trunk = sequence.tail_len;
  entry->unseen = run.partial.exact() ? 0 : entry->trunk;
  if (entry->drafted_now) {
    const StepShape whole{.sequences = shape_.sequences, .context = sequence.committed_len};
    parts_.policy->TrimSettling(whole, entry->trunk, &entry->tree);
  }
  entry->tree = WithTrunk(
      std::span(sequence.tokens).subspan(sequence.committed_len, sequence.tail_len), entry->tree);
  if (run.partial.exact()) {
    partial_.Unwind(&run);
  } else {
    parts_.kv->DropTail(&run.sequence);
  }
}

bool Step::RunsAhead(std::span<Entry* const> asked) const {
  const bool sees_trees_first = !options_.nwor || options_.scv_chunk_size > 0 ||
                                options_.specpv.shadow_rate > 0 || parts_.policy->TrimsTrees();
  return !sees_trees_first && std::all_of(asked.begin(), asked.end(), [](const Entry* entry) {
    return entry->run->sampler.IsPlainGreedy();
  });
}

bool Step::WantsDrafts(const ActiveRequest& run) const {
  return run.drafter_knows && run.tokens_left() > 1 && !run.partial.finish_pending;
}

DraftBudget Step::BudgetFor(const ActiveRequest& run) const {
  if (!WantsDrafts(run)) return {};
  const KvShape& kv = parts_.kv->shape();
  const int room = parts_.kv->free_blocks() * kv.block_size / shape_.sequences +
                   (kv.block_size - run.sequence.committed_len % kv.block_size) % kv.block_size;
  DraftBudget limit = options_.budget;
  const auto length = static_cast<int>(run.sequence.tokens.size());
  limit.max_nodes = std::min(limit.max_nodes, partial_.TreeRoom(run));
  if (const int asked = run.request.max_draft_nodes; asked > 0) {
    limit.max_nodes = std::min(limit.max_nodes, asked);
  }
  limit.max_depth = std::min({limit.max_depth, run.tokens_left() - 1,
                              room - 1 - run.sequence.tail_len, options_.max_length - length});
  if (limit.max_depth < 1) return {};
  return parts_.policy->Budget(shape_, limit);
}

// The drafter hears of a sequence before the target computes its first row, and follows from there.
void Step::Introduce(ActiveRequest* run) {
  if (parts_.drafter == nullptr || !run->request.speculate || run->drafter_knows) return;
  const Status status = parts_.drafter->Begin(run->sequence.id, run->sequence.tokens);
  run->drafter_knows = status.ok();
  const Sequence& sequence = run->sequence;
  if (status.ok() && sequence.committed_len > 0) {
    parts_.drafter->Recall(sequence.id, sequence.tokens, sequence.committed_len);
  }
  if (status.ok()) return;
  FallBack(Counter::kSpecFallback, "tree", "drafter_refused", run->sequence.id, status);
  run->request.speculate = false;
}

void Step::CheckProposal(Entry* entry) {
  const Sequence& sequence = entry->run->sequence;
  const TreeLimits limits{.max_nodes = options_.budget.max_nodes,
                          .max_depth = options_.budget.max_depth,
                          .vocab_size = parts_.target->config().vocab_size,
                          .committed_len = sequence.committed_len + sequence.tail_len,
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
  if (entry->trunk > 0) return;  // a settling pass is one pass
  entry->whole = entry->tree;
  entry->tree.Truncate(options_.scv_chunk_size);
}

// ---- Plan, Stage, Verify ----

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
  if (reads_views_) parts_.backend->JoinCopies();
  TALON_RETURN_IF_ERROR(parts_.target->Forward(builder_.plan(), PassKv(), &output_,
                                               [&](Pass* pass) { PlaceDrafts(pass); }));
  if (options_.nwor) parts_.kv->MarkAllStaged();
  partial_.RankBlocks(output_.scores);
  for (Entry& entry : entries_) {
    if (entry.shadow.empty()) continue;
    shadow_.Compare(entry.shadow, entry.tree, output_, entry.first_output, entry.run);
  }
  const bool any_greedy = std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.run->sampler.IsPlainGreedy();
  });
  argmax_.resize(builder_.plan().output_rows.size());
  if (any_greedy) parts_.backend->Argmax(output_.logits, argmax_);
  if (runs_ahead_) LearnDrafts();
  verify_seconds_ = watch.Seconds();
  return OkStatus();
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

// ---- Accept ----

void Step::Accept() {
  const StageRange range("Accept");
  for (Entry& entry : entries_) {
    const Sampler& sampler = entry.run->sampler;
    LogitRows rows(parts_.backend, output_.logits, argmax_, entry.first_output, &sampler);
    const TokenTree tail = entry.unseen > 0 ? Subtree(entry.tree, entry.unseen) : TokenTree();
    const TokenTree& judged = entry.unseen > 0 ? tail : entry.tree;
    const bool random = sampler.params().temperature > 0;
    if (random && options_.accept == AcceptMode::kThreshold && options_.thresholds.lossy()) {
      entry.acceptance = AcceptThreshold(judged, rows, sampler, options_.thresholds);
      entry.run->result.stats.lossy = true;
    } else if (random && options_.accept == AcceptMode::kRejection) {
      entry.acceptance = AcceptRejection(judged, rows, sampler);
    } else {
      entry.acceptance = AcceptMatch(judged, rows);
    }
    if (entry.unseen > 0) {
      std::vector<int32_t>& path = entry.acceptance.path;
      for (int32_t& node : path) node += entry.unseen;
      std::vector<int32_t> trunk(entry.unseen);
      std::iota(trunk.begin(), trunk.end(), 0);
      path.insert(path.begin(), trunk.begin(), trunk.end());
    }
    Emit(&entry);
  }
}

// Tokens in emission order up to the first that ends the request; later ones never happened.
void Step::Emit(Entry* entry) {
  ActiveRequest& run = *entry->run;
  entry->text_after = run.partial.text ? *run.partial.text : run.text;
  const Acceptance& acceptance = entry->acceptance;
  const int emitted_before = run.num_generated();
  const auto length_before = static_cast<int>(run.sequence.tokens.size());
  for (size_t i = 0; i < acceptance.choices.size(); ++i) {
    const Choice& choice = acceptance.choices[i];
    if (choice.dead_end) {
      entry->finish = FinishReason::kDeadEnd;
      return;
    }
    entry->emitted.push_back({.token = choice.token,
                              .drafted = i + 1 + entry->unseen < acceptance.path.size(),
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
