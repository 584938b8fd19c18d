#include "spec/drafters/heads/block_drafter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace talon {
namespace {

constexpr int kContextRows = 512;  // rows of the context made by one product
constexpr int kMaxBlocks = 32;     // blocks of one pass: logits of all their rows are large

}  // namespace

Result<std::unique_ptr<BlockDrafter>> BlockDrafter::Load(const BlockOptions& options,
                                                         const Decoder& target, Backend* backend,
                                                         Metrics* metrics) {
  std::unique_ptr<BlockDrafter> drafter(new BlockDrafter(options, backend, metrics));
  const BlockHead::Options head{.weights = options.weights,
                                .max_context_rows = kContextRows,
                                .max_blocks = std::min(kMaxBlocks, options.cache.max_sequences),
                                .max_length = options.cache.max_length,
                                .capture_layers = options.capture_layers};
  TALON_ASSIGN_OR_RETURN(
      drafter->head_, options.random
                          ? BlockHead::Random(*options.random, options.budget.max_depth + 1, target,
                                              backend, head, /*seed=*/1)
                          : BlockHead::Load(options.model_path, target, backend, head));
  const int vocabulary = drafter->head_->config().draft_vocab_size;
  if (options.budget.top_k > vocabulary) {
    return InvalidArgument("eagle_topk: {}, the draft vocabulary of {} has {} tokens",
                           options.budget.top_k, options.model_path, vocabulary);
  }
  TALON_RETURN_IF_ERROR(drafter->Allocate());
  return drafter;
}

Status BlockDrafter::Allocate() {
  const BlockConfig& config = head_->config();
  KvShape shape = head_->kv_shape();
  shape.block_size = options_.cache.block_size;
  shape.dtype = options_.cache.kv_dtype;
  shape.num_blocks = options_.cache.NumBlocks();
  shape.staging_rows = head_->max_blocks() * config.block_size;
  TALON_ASSIGN_OR_RETURN(kv_, KvCache::Create(backend_, shape, &own_metrics_,
                                              {.prefix_index = options_.cache.prefix_index}));
  for (Scratch* scratch : {&pending_, &ordered_}) {
    TALON_ASSIGN_OR_RETURN(*scratch,
                           NewScratch(backend_, head_->max_context_rows(), config.features_size()));
  }
  width_ = options_.budget.top_k;
  most_depth_ = std::min(options_.budget.max_depth, config.num_drafts());
  if (head_->has_markov()) return OkStatus();  // candidates depend on the path
  const BestFirstLimits limits{.trees = options_.cache.max_sequences,
                               .nodes = options_.budget.max_nodes,
                               .depth = most_depth_,
                               .width = width_};
  TALON_ASSIGN_OR_RETURN(search_,
                         backend_->token_ops()->NewBestFirstSearch(limits, head_->target_ids()));
  return OkStatus();
}

std::string_view BlockDrafter::name() const {
  const BlockConfig& config = head_->config();
  return config.markov ? "DSPARK" : config.causal ? "JETSPEC" : "DFLASH";
}

Status BlockDrafter::Begin(SequenceId sequence, std::span<const int32_t>) {
  const auto limit = static_cast<size_t>(options_.cache.max_sequences);
  if (states_.size() >= limit) {
    return ResourceExhausted("drafter: {} sequences, limit {}", states_.size() + 1, limit);
  }
  states_[sequence].sequence.id = sequence;
  return OkStatus();
}

void BlockDrafter::Recall(SequenceId sequence, std::span<const int32_t> tokens, int computed) {
  const auto at = states_.find(sequence);
  if (at == states_.end()) return;
  Sequence& draft = at->second.sequence;
  draft.tokens.assign(tokens.begin(), tokens.begin() + computed);
  const int known = kv_->prefix().Attach(&draft, computed);
  if (known == computed) return;
  const int block = options_.cache.block_size;
  if (kv_->prefix().Skip(&draft, computed).ok()) {
    at->second.missing = {known / block, computed / block};
  } else {
    draft.tokens.resize(known);  // no room: nothing is drafted for the sequence
  }
}

// The last token that is left is the next root, whose row comes with it.
void BlockDrafter::Rewind(SequenceId sequence, int length) {
  Cut(&states_.at(sequence), std::max(length - 1, 0));
}

void BlockDrafter::End(SequenceId sequence) {
  const auto at = states_.find(sequence);
  if (at == states_.end()) return;
  if (options_.cache.prefix_index) MakeRows();  // they may serve another sequence
  kv_->Free(&at->second.sequence);
  states_.erase(at);
}

void BlockDrafter::Cut(State* state, int rows) {
  if (rows >= state->rows()) return;
  rows = state->missing.BeforeGap(rows, options_.cache.block_size);
  state->sequence.tokens.resize(rows);
  state->pending.resize(std::max(0, rows - state->sequence.committed_len));
  if (rows < state->sequence.committed_len) {
    const Status status = kv_->Rewind(&state->sequence, rows);
    TALON_CHECK(status.ok(), "rewinding to fewer rows cannot fail");
  }
}

void BlockDrafter::GiveUp(const Status& why) {
  metrics_->Add(Counter::kSpecFallback, 1, "draft_failed");
  LogFallback("tree", fmt::format("draft_failed: {}; single-token step", why.message()));
}

// ---- Extend: follow the target ----

void BlockDrafter::Extend(std::span<const CommittedRows> batch, MatrixView features) {
  std::vector<int32_t> rows;  // to be copied: one copy for all that fit
  const auto copy = [&] {
    const auto count = static_cast<int>(rows.size());
    if (count > 0) backend_->GatherRows(features, rows, pending_.all.Rows(pending_used_, count));
    pending_used_ += count;
    rows.clear();
  };
  for (const CommittedRows& committed : batch) {
    const auto at = states_.find(committed.sequence);
    if (at == states_.end()) continue;
    State& state = at->second;
    Cut(&state, committed.first);
    std::span<const int32_t> taken = committed.rows;
    if (committed.first > state.rows()) {
      const auto cut = [&](int known) { Cut(&state, known); };
      taken = TakeAfterGap(committed, committed.tokens, cut, &kv_->prefix(), &state.sequence,
                           &state.missing);
    }
    if (taken.empty()) continue;
    const auto known = committed.tokens.first(committed.first + committed.rows.size());
    state.sequence.tokens.assign(known.begin(), known.end());
    for (const int32_t row : taken) {
      const int place = pending_used_ + static_cast<int>(rows.size());
      state.pending.push_back(place);
      rows.push_back(row);
      if (place + 1 < pending_.all.rows) continue;
      copy();
      if (!MakeRows()) break;
    }
  }
  copy();
}

bool BlockDrafter::MakeRows() {
  std::vector<State*> states;
  for (auto& [id, state] : states_) {
    if (!state.pending.empty()) states.push_back(&state);
  }
  const Status status = states.empty() ? OkStatus() : AddContext(states);
  if (!status.ok()) GiveUp(status);
  for (State* state : states) state->pending.clear();
  pending_used_ = 0;
  return status.ok();
}

// All or nothing.
Status BlockDrafter::AddContext(std::span<State* const> states) {
  builder_.Reset();
  std::vector<Reservation> reservations;
  std::vector<int32_t> rows;
  Status status;
  for (const State* state : states) {
    auto reservation = kv_->Reserve(state->sequence, static_cast<int>(state->pending.size()));
    status = reservation.status();
    if (!status.ok()) break;
    builder_.AddPrompt(state->sequence, *reservation);
    rows.insert(rows.end(), state->pending.begin(), state->pending.end());
    reservations.push_back(std::move(*reservation));
  }
  if (status.ok()) {
    const auto count = static_cast<int>(rows.size());
    const bool in_order = count == rows.back() + 1 && std::ranges::is_sorted(rows);
    if (!in_order) backend_->GatherRows(pending_.all, rows, ordered_.Rows(count));
    status = head_->AddContext(builder_.plan(), kv_->view(),
                               in_order ? pending_.Rows(count) : ordered_.Rows(count));
  }
  for (size_t i = 0; i < reservations.size(); ++i) {
    if (status.ok()) {
      kv_->Advance(&states[i]->sequence, std::move(reservations[i]),
                   static_cast<int>(states[i]->pending.size()), "prefill");
    } else {
      kv_->Cancel(std::move(reservations[i]));
    }
  }
  return status;
}

// ---- Propose: one pass, then the trees ----

void BlockDrafter::Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) {
  MakeRows();
  const auto blocks = static_cast<size_t>(head_->max_blocks());
  for (size_t first = 0; first < requests.size(); first += blocks) {
    BlockOutput output;
    auto growing = RunBlocks(requests, first, &output);
    if (!growing.ok()) {
      GiveUp(growing.status());
    } else if (head_->has_markov()) {
      GrowByPath(*growing);
      BuildTrees(*growing, trees);
    } else if (!growing->empty()) {
      std::vector<TopKEntry> best;
      TopK(output.logits, &best);
      for (Growing& one : *growing) {
        GrowByDepth(std::span(best).subspan(static_cast<size_t>(one.first_output) * width_), &one);
      }
      BuildTrees(*growing, trees);
    }
  }
}

Result<std::vector<BlockDrafter::Growing>> BlockDrafter::RunBlocks(
    std::span<const DraftRequest> requests, size_t first, BlockOutput* output) {
  std::vector<Growing> growing = PlanBlocks(requests, first);
  if (growing.empty()) return growing;
  TALON_RETURN_IF_ERROR(head_->Forward(builder_.plan(), kv_->view(), output));
  return growing;
}

void BlockDrafter::BuildTrees(std::span<const Growing> growing, std::span<TokenTree> trees) {
  for (const Growing& one : growing) {
    if (one.has_nan) {
      metrics_->Add(Counter::kSpecFallback, 1, "draft_nan");
    } else {
      trees[one.owner] = one.tree.Build();
    }
  }
}

std::vector<BlockDrafter::Growing> BlockDrafter::PlanBlocks(std::span<const DraftRequest> requests,
                                                            size_t first) {
  const BlockConfig& config = head_->config();
  std::vector<Growing> growing;
  std::vector<int32_t> tokens(static_cast<size_t>(config.block_size), config.mask_token);
  std::vector<int32_t> chosen;
  int outputs = 0;
  builder_.Reset();
  const size_t end = std::min(requests.size(), first + static_cast<size_t>(head_->max_blocks()));
  for (size_t i = first; i < end; ++i) {
    const State& state = states_.at(requests[i].sequence);
    const DraftBudget& budget = requests[i].budget;
    const int rows = state.sequence.committed_len;
    const int depth = std::min(budget.max_depth, most_depth_);
    // Rewound, lost or just begun: the next committed row may make it known again.
    if (rows + 1 != static_cast<int>(requests[i].tokens.size())) continue;
    if (depth < 1 || budget.max_nodes < 2) continue;
    tokens[0] = requests[i].tokens.back();
    // Rows that no wanted row sees are left out.
    const int used = config.causal ? config.first_draft_row() + depth : config.block_size;
    builder_.AddBlock(VisibleRows(options_.window, state.missing, state.sequence.blocks, rows,
                                  options_.cache.block_size, &chosen),
                      {.position = rows,
                       .tokens = std::span(tokens).first(static_cast<size_t>(used)),
                       .causal = config.causal,
                       .first_output = config.first_draft_row(),
                       .outputs = depth,
                       .staging_base = static_cast<int>(growing.size()) * config.block_size});
    growing.push_back({.tree = {tokens[0], {budget.max_nodes, depth, options_.min_prob}},
                       .owner = i,
                       .first_output = outputs});
    outputs += depth;
  }
  return growing;
}

void BlockDrafter::GrowByDepth(std::span<const TopKEntry> best, Growing* one) const {
  const auto width = static_cast<size_t>(width_);
  int node = BestFirstTree::kRoot;
  do {
    if (!one->tree.wants_successors(node)) continue;
    const auto depth = static_cast<size_t>(one->tree.depth(node));
    one->has_nan = !one->tree.AddSuccessors(node, best.subspan(depth * width, width));
  } while (!one->has_nan && (node = one->tree.Take()) != BestFirstTree::kRoot);
}

// One node of every tree at a time, so that they share a product.
void BlockDrafter::GrowByPath(std::span<Growing> growing) {
  while (!std::ranges::all_of(growing, &Growing::done)) {
    RankNodes(growing);
    for (Growing& one : growing) {
      if (one.done) continue;
      one.node = one.tree.Take();
      one.done = one.node == BestFirstTree::kRoot;
    }
  }
}

void BlockDrafter::RankNodes(std::span<Growing> growing) {
  std::vector<Growing*> ranked;
  std::vector<int32_t> rows;
  std::vector<int32_t> tokens;
  for (Growing& one : growing) {
    if (one.done || !one.tree.wants_successors(one.node)) continue;
    ranked.push_back(&one);
    rows.push_back(one.first_output + one.tree.depth(one.node));
    tokens.push_back(one.tree.token(one.node));
  }
  if (ranked.empty()) return;
  std::vector<TopKEntry> best;
  TopK(head_->Following(rows, tokens), &best);
  const auto width = static_cast<size_t>(width_);
  for (size_t i = 0; i < ranked.size(); ++i) {
    Growing& one = *ranked[i];
    one.has_nan = !one.tree.AddSuccessors(one.node, std::span(best).subspan(i * width, width));
    one.done = one.has_nan;
  }
}

// ---- Ahead of the host ----

std::vector<bool> BlockDrafter::BeginTrees(std::span<const DraftRequest> requests, int most_nodes,
                                           std::span<TokenTree> trees) {
  std::vector<DraftRequest> limited(requests.begin(), requests.end());
  for (DraftRequest& request : limited) {
    request.budget.max_nodes = std::min(request.budget.max_nodes, most_nodes);
  }
  std::vector<bool> outlines(requests.size());
  begun_.clear();
  MakeRows();
  const auto blocks = static_cast<size_t>(head_->max_blocks());
  for (size_t first = 0; first < requests.size(); first += blocks) {
    BlockOutput output;
    auto growing = RunBlocks(limited, first, &output);
    if (!growing.ok()) GiveUp(growing.status());
    if (!growing.ok() || growing->empty()) continue;
    std::vector<BlockRows> rows;
    for (Growing& one : *growing) {
      rows.push_back({.tree = static_cast<int>(begun_.size()),
                      .first = one.first_output,
                      .depth = one.tree.limits().max_depth});
      trees[one.owner] = one.tree.Outline(width_);
      outlines[one.owner] = true;
      begun_.push_back(std::move(one));
    }
    search_->Rank(rows, output.logits);
  }
  return outlines;
}

void BlockDrafter::PlaceTrees(std::span<const OutlineRows> outlines, Pass* pass) {
  std::vector<TreePlace> places;
  for (const OutlineRows& outline : outlines) {
    const auto one = std::ranges::find(begun_, outline.request, &Growing::owner);
    TALON_CHECK(one != begun_.end());
    places.push_back({.tree = static_cast<int>(one - begun_.begin()),
                      .levels = one->tree.limits().max_depth,
                      .root_row = outline.root_row,
                      .nodes = outline.nodes,
                      .above = outline.above,
                      .position = outline.position,
                      .min_score = one->tree.min_score()});
  }
  search_->LoadTrees(pass, places);
}

void BlockDrafter::FinishTrees(std::span<TokenTree> trees) {
  if (begun_.empty()) return;
  const std::span<const TopKEntry> rankings = search_->Read();
  std::vector<TopKEntry> best(rankings.begin(), rankings.end());
  for (TopKEntry& entry : best) entry.id = head_->target_ids()[entry.id];
  const auto each = static_cast<size_t>(most_depth_) * width_;
  for (size_t i = 0; i < begun_.size(); ++i) {
    GrowByDepth(std::span(best).subspan(i * each, each), &begun_[i]);
  }
  BuildTrees(begun_, trees);
  begun_.clear();
}

void BlockDrafter::TopK(const MatrixView& logits, std::vector<TopKEntry>* best) {
  best->resize(static_cast<size_t>(logits.rows) * width_);
  backend_->token_ops()->TopK(logits, width_, *best);
  for (TopKEntry& entry : *best) entry.id = head_->target_ids()[entry.id];
}

}  // namespace talon
