#include "spec/drafters/heads/eagle_drafter.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace talon {
namespace {

// Rows of all sequences that may wait for the next proposal. A batch that is not drafted for runs
// them whenever they are that many, so a large one has room for several steps.
constexpr int kFewestPendingRows = 512;
constexpr int kMostPendingRows = 2048;
constexpr int kPendingSteps = 16;

}  // namespace

Result<std::unique_ptr<EagleDrafter>> EagleDrafter::Load(const EagleOptions& options,
                                                         const Decoder& target, Backend* backend,
                                                         Metrics* metrics) {
  if (options.model_path.empty() && !options.random) {
    return InvalidArgument("drafter: EAGLE heads need --speculative-draft-model-path DIR");
  }
  std::unique_ptr<EagleDrafter> drafter(new EagleDrafter(options, backend, metrics));
  const int beams = options.cache.max_sequences * options.budget.top_k;
  // Every sequence keeps one row back, and some room must be left then.
  const int sequences = options.cache.max_sequences;
  const int pending = std::clamp(kPendingSteps * sequences, kFewestPendingRows, kMostPendingRows);
  const int rows = std::max(pending + sequences, beams);
  const EagleHead::Options head{.weights = options.weights,
                                .max_rows = rows,
                                .max_output_rows = std::max(beams, options.cache.max_sequences),
                                .max_length = options.cache.max_length,
                                .capture_layers = options.capture_layers,
                                .token_map = options.token_map,
                                .target_path = options.target_path};
  TALON_ASSIGN_OR_RETURN(
      drafter->head_, options.random ? EagleHead::Random(target, backend, head, /*seed=*/1)
                                     : EagleHead::Load(options.model_path, target, backend, head));
  const int vocabulary = drafter->head_->config().draft_vocab_size;
  if (options.budget.top_k > vocabulary) {
    return InvalidArgument("eagle_topk: {}, the draft vocabulary of {} has {} tokens",
                           options.budget.top_k, options.model_path, vocabulary);
  }
  KvShape shape = drafter->head_->kv_shape();
  shape.block_size = options.cache.block_size;
  shape.dtype = options.cache.kv_dtype;
  shape.num_blocks = options.cache.NumBlocks();
  shape.staging_rows = beams * std::max(options.budget.max_depth, 1);
  TALON_RETURN_IF_ERROR(drafter->Allocate(shape));
  return drafter;
}

Status EagleDrafter::Allocate(const KvShape& shape) {
  TALON_ASSIGN_OR_RETURN(kv_, KvCache::Create(backend_, shape, &own_metrics_,
                                              {.prefix_index = options_.cache.prefix_index}));
  const int rows = head_->max_rows();
  const EagleConfig& config = head_->config();
  TALON_ASSIGN_OR_RETURN(pending_, NewScratch(backend_, rows, config.features_size()));
  TALON_ASSIGN_OR_RETURN(ordered_, NewScratch(backend_, rows, config.features_size()));
  TALON_ASSIGN_OR_RETURN(inputs_, NewScratch(backend_, rows, config.hidden_size));
  if (options_.cache.prefix_index) {
    TALON_ASSIGN_OR_RETURN(edges_, NewScratch(backend_, shape.num_blocks, config.features_size()));
  }
  const EagleGrowth::Parts parts{
      .head = head_.get(), .kv = kv_.get(), .backend = backend_, .inputs = inputs_.all};
  TALON_ASSIGN_OR_RETURN(growth_,
                         EagleGrowth::Create(parts, options_.cache.max_sequences, options_.budget));
  free_slots_.resize(options_.cache.max_sequences);
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0);
  return OkStatus();
}

Status EagleDrafter::Begin(SequenceId sequence, std::span<const int32_t> prompt) {
  if (free_slots_.empty()) {
    return ResourceExhausted("drafter: {} sequences, limit {}", states_.size() + 1,
                             options_.cache.max_sequences);
  }
  State& state = states_[sequence];
  state.sequence.id = sequence;
  // Rows are known by the tokens they pair with, which begin with the second one.
  state.sequence.prefix_root = PrefixIndex::kRoot - 1 - prompt.front();
  state.slot = free_slots_.back();
  free_slots_.pop_back();
  return OkStatus();
}

void EagleDrafter::Recall(SequenceId sequence, std::span<const int32_t> tokens, int computed) {
  const auto at = states_.find(sequence);
  if (at == states_.end()) return;
  State& state = at->second;
  Sequence& draft = state.sequence;
  draft.tokens.assign(tokens.begin() + 1, tokens.begin() + 1 + computed);
  const int known = kv_->prefix().Attach(&draft, computed);
  if (known == computed) return;
  const int block = options_.cache.block_size;
  if (known + block == computed && RecallLastRow(&state)) return;
  if (kv_->prefix().Skip(&draft, computed).ok()) {
    state.missing = {known / block, computed / block};
  } else {
    draft.tokens.resize(known);  // no room: nothing is drafted for the sequence
  }
}

// The last block pairs its last row with another token than the known one does.
bool EagleDrafter::RecallLastRow(State* state) {
  const int32_t sibling = kv_->prefix().FindSibling(state->sequence);
  if (sibling == PrefixIndex::kNone) return false;
  if (!kv_->AttachCopy(&state->sequence, sibling, options_.cache.block_size - 1).ok()) return false;
  AddPending(state, std::array{sibling}, edges_.all);
  metrics_->Add(Counter::kKvPrefixDraftRowsRecomputed, 1);
  return true;
}

void EagleDrafter::End(SequenceId sequence) {
  const auto at = states_.find(sequence);
  if (at == states_.end()) return;
  State* const state = &at->second;
  const int block = options_.cache.block_size;
  if (options_.cache.prefix_index &&
      state->rows() / block > state->sequence.committed_len / block) {
    EagleOutput output;  // not used; a failure only costs later sequences some drafts
    if (const Status status = RunPending({&state, 1}, 0, &output); !status.ok()) GiveUp(status);
  }
  kv_->Free(&at->second.sequence);
  free_slots_.push_back(at->second.slot);
  states_.erase(at);
  CompactPending();
}

// Row length - 1 was paired with a token that is gone.
void EagleDrafter::Rewind(SequenceId sequence, int length) {
  State& state = states_.at(sequence);
  if (length - 1 < state.rows()) Cut(&state, std::max(length - 1, 0));
}

void EagleDrafter::Cut(State* state, int rows) {
  rows = state->missing.BeforeGap(rows, options_.cache.block_size);
  state->sequence.tokens.resize(rows);
  state->pending.resize(std::max(0, rows - state->sequence.committed_len));
  if (rows < state->sequence.committed_len) {
    const Status status = kv_->Rewind(&state->sequence, rows);
    TALON_CHECK(status.ok(), "rewinding to fewer rows cannot fail");
  }
  state->ranked = false;
}

// ---- Extend: follow the target ----

void EagleDrafter::Extend(std::span<const CommittedRows> batch, MatrixView features) {
  std::vector<std::pair<State*, std::span<const int32_t>>> added;
  std::vector<int32_t> rows;  // rows of all of them
  for (const CommittedRows& committed : batch) {
    const auto at = states_.find(committed.sequence);
    if (at == states_.end()) continue;
    State& state = at->second;
    if (committed.first < state.rows()) Cut(&state, committed.first);
    std::span<const int32_t> taken = committed.rows;
    if (committed.first > state.rows()) {
      const auto cut = [&](int known) { Cut(&state, known); };
      taken = TakeAfterGap(committed, committed.tokens.subspan(1), cut, &kv_->prefix(),
                           &state.sequence, &state.missing);
    }
    if (taken.empty()) continue;
    const auto successors = committed.tokens.subspan(state.rows() + 1, taken.size());
    state.sequence.tokens.insert(state.sequence.tokens.end(), successors.begin(), successors.end());
    added.emplace_back(&state, taken);
    rows.insert(rows.end(), taken.begin(), taken.end());
  }
  const auto count = static_cast<int>(rows.size());
  if (pending_used_ + count > pending_.all.rows && !MakeRoom()) return;
  if (pending_used_ + count > pending_.all.rows) {  // a prompt's
    for (const auto& [state, each] : added) AddPending(state, each, features);
    return;
  }
  // One copy for all: a device launches it once.
  if (count > 0) backend_->GatherRows(features, rows, pending_.all.Rows(pending_used_, count));
  for (const auto& [state, each] : added) {
    state->ranked = false;
    for (size_t i = 0; i < each.size(); ++i) state->pending.push_back(pending_used_++);
  }
}

void EagleDrafter::AddPending(State* state, std::span<const int32_t> rows, MatrixView features) {
  state->ranked = false;
  while (!rows.empty()) {
    if (pending_used_ == pending_.all.rows && !MakeRoom()) return;
    const auto count =
        std::min<size_t>(rows.size(), static_cast<size_t>(pending_.all.rows - pending_used_));
    backend_->GatherRows(features, rows.first(count),
                         pending_.all.Rows(pending_used_, static_cast<int>(count)));
    for (size_t i = 0; i < count; ++i) state->pending.push_back(pending_used_++);
    rows = rows.subspan(count);
  }
}

bool EagleDrafter::MakeRoom() {
  const Status status = Shorten();
  if (!status.ok()) {  // rows are lost: their sequences draft again from the next block on
    GiveUp(status);
    for (auto& [id, state] : states_) Cut(&state, state.sequence.committed_len);
  }
  CompactPending();
  return status.ok();
}

void EagleDrafter::GiveUp(const Status& why) {
  metrics_->Add(Counter::kSpecFallback, 1, "draft_failed");
  LogFallback("tree", fmt::format("draft_failed: {}; single-token step", why.message()));
}

// Moves the pending rows to the front of their buffer.
void EagleDrafter::CompactPending() {
  std::vector<int32_t> rows;
  for (auto& [id, state] : states_) {
    for (int32_t& row : state.pending) {
      rows.push_back(row);
      row = static_cast<int32_t>(rows.size()) - 1;
    }
  }
  pending_used_ = static_cast<int>(rows.size());
  if (rows.empty()) return;
  backend_->GatherRows(pending_.all, rows, ordered_.Rows(pending_used_));
  std::swap(pending_, ordered_);
}

Status EagleDrafter::Shorten() {
  std::vector<State*> states;
  for (auto& [id, state] : states_) {
    if (state.pending.size() > 1) states.push_back(&state);
  }
  EagleOutput output;
  return states.empty() ? OkStatus() : RunPending(states, /*held_back=*/1, &output);
}

Status EagleDrafter::Rank(std::span<State* const> ranked) {
  std::vector<State*> states;
  for (State* state : ranked) {
    if (!state->pending.empty()) states.push_back(state);
  }
  if (states.empty()) return OkStatus();
  EagleOutput output;
  TALON_RETURN_IF_ERROR(RunPending(states, /*held_back=*/0, &output));
  CompactPending();
  std::vector<int32_t> slots;
  for (State* state : states) {
    state->ranked = true;
    slots.push_back(state->slot);
  }
  growth_->RankRoots(slots, output);
  return OkStatus();
}

// One pass over the pending rows of `states`, but the last `held_back` of each; with none held
// back, the output of each sequence's last row. All or nothing, like every change of a cache.
Status EagleDrafter::RunPending(std::span<State* const> states, int held_back,
                                EagleOutput* output) {
  builder_.Reset();
  readers_.Reset();
  std::vector<Reservation> reservations;
  std::vector<int32_t> rows;
  Status status;
  for (State* state : states) {
    const auto count = static_cast<int>(state->pending.size()) - held_back;
    auto reservation = kv_->Reserve(state->sequence, count);
    status = reservation.status();
    if (!status.ok()) break;
    rows.insert(rows.end(), state->pending.begin(), state->pending.begin() + count);
    const int logits = held_back == 0 ? 1 : 0;
    builder_.AddPrompt(state->sequence, *reservation, logits);
    if (held_back == 0) {
      std::vector<int32_t> blocks = state->sequence.blocks;
      if (reservation->replaces_last_block) blocks.pop_back();
      blocks.insert(blocks.end(), reservation->new_blocks.begin(), reservation->new_blocks.end());
      const int last = state->sequence.committed_len + count - 1;
      std::vector<int32_t> chosen;
      readers_.AddReader(Window(*state, blocks, last + 1, &chosen), state->sequence.tokens[last],
                         last, reservation->slots.back(), count);
    }
    reservations.push_back(std::move(*reservation));
  }
  if (status.ok()) {
    const auto count = static_cast<int>(rows.size());
    backend_->GatherRows(pending_.all, rows, ordered_.Rows(count));
    head_->Fuse(ordered_.Rows(count), inputs_.Rows(count));
    status =
        head_->Forward(builder_.plan(), readers_.plan(), kv_->view(), inputs_.Rows(count), output);
  }
  int first_ordered = 0;
  Edges edges;
  for (size_t i = 0; i < reservations.size(); ++i) {
    State* state = states[i];
    const auto count = static_cast<int>(reservations[i].slots.size());
    if (status.ok()) {
      kv_->Advance(&state->sequence, std::move(reservations[i]), count, "prefill");
      AddEdges(*state, count, first_ordered, &edges);
      first_ordered += count;
      state->pending.erase(state->pending.begin(), state->pending.begin() + count);
    } else {
      kv_->Cancel(std::move(reservations[i]));
    }
  }
  if (!edges.rows.empty()) {
    backend_->CopyRows(ordered_.all, edges.rows, edges_.all, edges.blocks);
  }
  return status;
}

// Block ends among the last `count` rows of a sequence, which are rows of ordered_.
void EagleDrafter::AddEdges(const State& state, int count, int first_ordered, Edges* edges) const {
  if (!options_.cache.prefix_index) return;
  const int end = state.sequence.committed_len;
  const int block = options_.cache.block_size;
  for (int row = (end - count) / block * block + block - 1; row < end; row += block) {
    edges->rows.push_back(first_ordered + row - (end - count));
    edges->blocks.push_back(state.sequence.blocks[row / block]);
  }
}

// ---- Propose: grow trees ----

void EagleDrafter::Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) {
  std::vector<State*> states;
  for (const DraftRequest& request : requests) states.push_back(&states_.at(request.sequence));
  std::vector<std::vector<int32_t>> chosen;
  std::vector<GrowingTree> growing;
  Status status = Rank(states);
  if (status.ok()) {
    growing = NewTrees(requests, states, &chosen);
    status = growth_->Grow(growing, requests[0].budget.prices);
  }
  if (status.ok()) return BuildTrees(growing, trees);
  GiveUp(status);
  for (TokenTree& tree : trees) tree.Truncate(1);
}

std::vector<bool> EagleDrafter::BeginTrees(std::span<const DraftRequest> requests, int most_nodes,
                                           std::span<TokenTree> trees) {
  std::vector<State*> states;
  std::vector<DraftRequest> limited(requests.begin(), requests.end());
  for (DraftRequest& request : limited) {
    states.push_back(&states_.at(request.sequence));
    request.budget.max_nodes = std::min(request.budget.max_nodes, most_nodes);
  }
  begun_.clear();
  Status status = Rank(states);
  if (status.ok()) {
    std::vector<std::vector<int32_t>> chosen;
    begun_ = NewTrees(limited, states, &chosen);
    status = growth_->GrowAhead(begun_, requests[0].budget.prices);
  }
  if (!status.ok()) {
    GiveUp(status);
    begun_.clear();
  }
  std::vector<bool> outlines(requests.size());
  for (const GrowingTree& one : begun_) {
    trees[one.owner] = one.tree.Outline(requests[one.owner].tokens.back());
    outlines[one.owner] = trees[one.owner].size() > 1;
  }
  return outlines;
}

void EagleDrafter::PlaceTrees(std::span<const OutlineRows> outlines, Pass* pass) {
  growth_->LoadTrees(begun_, outlines, pass);
}

void EagleDrafter::FinishTrees(std::span<TokenTree> trees) {
  if (!begun_.empty()) growth_->FollowDevice(begun_);
  BuildTrees(begun_, trees);
  begun_.clear();
}

std::vector<GrowingTree> EagleDrafter::NewTrees(std::span<const DraftRequest> requests,
                                                std::span<State* const> states,
                                                std::vector<std::vector<int32_t>>* chosen) const {
  std::vector<GrowingTree> growing;
  chosen->resize(states.size());
  const int k = options_.budget.top_k;
  for (size_t i = 0; i < states.size(); ++i) {
    const State& state = *states[i];
    // Rewound or just begun: the next committed row makes it known again.
    if (!state.ranked || state.rows() + 1 != static_cast<int>(requests[i].tokens.size())) continue;
    const DraftBudget& budget = requests[i].budget;
    const int steps = std::min(budget.max_depth, options_.budget.max_depth);
    growing.push_back({.tree = {k, steps, budget.max_nodes, options_.min_prob},
                       .prefix = Window(state, state.sequence.blocks, state.rows(), &(*chosen)[i]),
                       .position = state.rows(),
                       .staging_base = static_cast<int>(i) * k * options_.budget.max_depth,
                       .owner = i,
                       .slot = state.slot});
  }
  return growing;
}

void EagleDrafter::BuildTrees(std::span<const GrowingTree> growing, std::span<TokenTree> trees) {
  for (const GrowingTree& one : growing) {
    if (one.has_nan) {
      metrics_->Add(Counter::kSpecFallback, 1, "draft_nan");
    } else {
      trees[one.owner] = one.tree.Build(trees[one.owner].tokens[0]);
    }
  }
}

PrefixView EagleDrafter::Window(const State& state, std::span<const int32_t> blocks, int rows,
                                std::vector<int32_t>* chosen) const {
  return VisibleRows(options_.window, state.missing, blocks, rows, options_.cache.block_size,
                     chosen);
}

}  // namespace talon
