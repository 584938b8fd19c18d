#include "engine/step/step.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/stage_range.h"

namespace talon {
namespace {

// The rows of one tree in the pass's logits, judged by the request's sampler.
class LogitRows : public TreeRows {
 public:
  // `choices` of the tree's rows, or empty: the host makes them.
  LogitRows(Backend* backend, const MatrixView& logits, std::span<const int32_t> choices,
            const Sampler* sampler)
      : backend_(backend), logits_(logits), choices_(choices), sampler_(sampler) {}

  Choice Choose(int node, std::span<const int32_t> path) override {
    Choice choice = choices_.empty()
                        ? sampler_->Choose(Fetch(node), path)
                        : Choice{.token = choices_[node], .dead_end = choices_[node] < 0};
    // Where no logit is a number, the argmax is column 0 and a draw finds nothing: no other row
    // needs a second look.
    if (choice.token > 0 || HasFiniteLogit(node)) return choice;
    broken_ = true;
    return {.dead_end = true};
  }
  bool Distribution(int node, std::span<const int32_t> path, std::vector<float>* probs) override {
    if (sampler_->Distribution(Fetch(node), path, probs)) return true;
    broken_ = !HasFiniteLogit(node);
    return false;
  }

  // Whether the walk ended at a row without any finite logit.
  bool broken() const { return broken_; }

 private:
  // Of the row as the model left it; most rows show it at once.
  bool HasFiniteLogit(int node) {
    float first = 0;
    backend_->CopyOut(&first, logits_.Rows(node, 1).data, sizeof(first));
    if (std::isfinite(first)) return true;
    return std::ranges::any_of(Fetch(node), [](float logit) { return std::isfinite(logit); });
  }

  std::span<float> Fetch(int node) {
    const MatrixView row = logits_.Rows(node, 1);
    host_.resize(row.cols);
    backend_->CopyOut(host_.data(), row.data, row.cols * sizeof(float));
    return host_;
  }

  Backend* backend_;
  MatrixView logits_;
  std::span<const int32_t> choices_;
  const Sampler* sampler_;
  std::vector<float> host_;
  bool broken_ = false;
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
  run->given.reset();
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
      run.given.reset();
    } else if (run.given) {
      entry.tree = std::move(*run.given);
      run.given.reset();
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
                                options_.specpv.shadow_rate > 0 ||
                                parts_.policy->TrimsTrees(shape_, options_.budget.max_nodes);
  return !sees_trees_first && std::all_of(asked.begin(), asked.end(), [this](const Entry* entry) {
    return DeviceChooses(entry->run->sampler);
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

// ---- Accept ----

void Step::Accept() {
  const StageRange range("Accept");
  for (Entry& entry : entries_) {
    const Sampler& sampler = entry.run->sampler;
    const int outputs = entry.num_rows - entry.unseen;
    std::span<const int32_t> choices;
    if (DeviceChooses(sampler)) choices = std::span(choices_).subspan(entry.first_output, outputs);
    LogitRows rows(parts_.backend, output_.logits.Rows(entry.first_output, outputs), choices,
                   &sampler);
    const TokenTree tail = entry.unseen > 0 ? Subtree(entry.tree, entry.unseen) : TokenTree();
    const TokenTree& judged = entry.unseen > 0 ? tail : entry.tree;
    const bool random = sampler.params().temperature > 0;
    const AcceptMode mode = entry.run->accept.value_or(options_.accept);
    if (random && mode == AcceptMode::kThreshold && options_.thresholds.lossy()) {
      entry.acceptance = AcceptThreshold(judged, rows, sampler, options_.thresholds);
      entry.run->result.stats.lossy = true;
    } else if (random && mode == AcceptMode::kRejection) {
      entry.acceptance = AcceptRejection(judged, rows, sampler);
    } else {
      entry.acceptance = AcceptMatch(judged, rows);
    }
    entry.broken = rows.broken();
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
      entry->finish = entry->broken ? FinishReason::kError : FinishReason::kDeadEnd;
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
