#include "spec/drafters/standalone_drafter.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "spec/drafters/drawn_tree.h"

namespace talon {
namespace {

constexpr int kFeedRows = 512;  // rows of a pass that feeds a prompt

int CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<int>(at - a.begin());
}

// A tree's nodes without its root, as rows of a pass.
struct DraftForestRows {
  explicit DraftForestRows(const TokenTree& tree)
      : tokens(tree.tokens.begin() + 1, tree.tokens.end()) {
    for (int i = 1; i < tree.size(); ++i) parents.push_back(tree.parents[i] - 1);
  }
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;  // -1: a child of the root
};

}  // namespace

Result<std::unique_ptr<StandaloneDrafter>> StandaloneDrafter::Load(const StandaloneOptions& options,
                                                                   Backend* backend,
                                                                   Metrics* metrics) {
  if (options.model_path.empty()) {
    return InvalidArgument("drafter: STANDALONE needs --speculative-draft-model-path DIR");
  }
  std::unique_ptr<StandaloneDrafter> drafter(new StandaloneDrafter(options, backend, metrics));
  TALON_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(options.model_path));
  if (config.vocab_size != options.vocab_size) {
    return InvalidArgument("{}: the draft model has a vocabulary of {}, the target of {}",
                           options.model_path, config.vocab_size, options.vocab_size);
  }
  // Rows of a pass over drafts, and those staged for all their levels. Where requests differ, as
  // many grow at once as fit.
  const DraftBudget& budget = options.budget;
  const int beams = options.drawn_trees ? std::max(budget.top_k, budget.max_nodes)
                                        : options.cache.max_sequences * budget.top_k;
  const int staged = options.drawn_trees
                         ? std::max(budget.top_k * budget.max_depth, budget.max_nodes)
                         : beams * std::max(budget.max_depth, 1);
  TALON_ASSIGN_OR_RETURN(
      drafter->model_,
      Decoder::Load(options.model_path, backend,
                    {.weights = options.weights,
                     .activations = options.activations,
                     .max_rows = std::max(kFeedRows, beams),
                     .max_output_rows = std::max(options.cache.max_sequences, beams)}));
  DraftCacheShape cache = options.cache;
  cache.block_size = 16;
  cache.kv_dtype = DType::kBF16;
  // The longest sequence, and the drafts after it.
  cache.max_length = std::min(cache.max_length, config.max_context) + options.budget.max_depth;
  const KvShape shape{.num_layers = config.num_layers,
                      .kv_heads = config.num_kv_heads,
                      .head_dim = config.head_dim,
                      .block_size = cache.block_size,
                      .dtype = cache.kv_dtype,
                      .num_blocks = cache.NumBlocks(),
                      .staging_rows = staged};
  TALON_ASSIGN_OR_RETURN(drafter->kv_,
                         KvCache::Create(backend, shape, &drafter->own_metrics_,
                                         {.prefix_index = options.cache.prefix_index}));
  return drafter;
}

Status StandaloneDrafter::Begin(SequenceId sequence, std::span<const int32_t> prompt) {
  if (static_cast<int>(sequences_.size()) >= options_.cache.max_sequences) {
    return ResourceExhausted("drafter: {} sequences, limit {}", sequences_.size() + 1,
                             options_.cache.max_sequences);
  }
  Sequence& state = sequences_[sequence];
  state.id = sequence;
  if (static_cast<int>(prompt.size()) > model_->config().max_context) return OkStatus();
  state.tokens.assign(prompt.begin(), prompt.end());
  // All but the root, which Propose feeds for its logits.
  const auto to_feed = static_cast<int>(prompt.size()) - 1;
  for (int left = to_feed - kv_->prefix().Attach(&state, to_feed); left > 0;) {
    const int count = std::min(left, model_->max_rows());
    std::vector<TopKEntry> none;
    TALON_RETURN_IF_ERROR(RunFeeds({{&state, count, /*logits=*/false}}, 1, &none));
    left -= count;
  }
  return OkStatus();
}

void StandaloneDrafter::End(SequenceId sequence) {
  const auto at = sequences_.find(sequence);
  if (at == sequences_.end()) return;
  kv_->Free(&at->second);
  sequences_.erase(at);
}

void StandaloneDrafter::Propose(std::span<const DraftRequest> requests,
                                std::span<TokenTree> trees) {
  std::vector<Drafting> batch;
  for (size_t i = 0; i < requests.size(); ++i) {
    const int context = model_->config().max_context;
    if (static_cast<int>(requests[i].tokens.size()) + requests[i].budget.max_depth > context) {
      continue;  // past the draft model's positions: nothing to propose
    }
    batch.push_back({.request = &requests[i],
                     .tree = &trees[i],
                     .sequence = &sequences_.at(requests[i].sequence),
                     .place = batch.size()});
  }
  if (batch.empty()) return;
  Status status = CatchUp(&batch);
  if (status.ok()) status = options_.drawn_trees ? DraftEach(&batch) : DraftAlike(&batch);
  if (!status.ok()) GiveUp(&batch, "draft_failed", status.message());
}

Status StandaloneDrafter::DraftAlike(std::vector<Drafting>* batch) {
  return BranchesOf(*batch->front().request) > 1 ? DraftTrees(batch) : DraftChains(batch);
}

// Requests that differ in what they want: those of as many branches go together, as far as there
// are rows for them.
Status StandaloneDrafter::DraftEach(std::vector<Drafting>* batch) {
  std::map<int, std::vector<Drafting>> groups;  // by branches
  for (const Drafting& one : *batch) {
    if (options_.sample && one.request->temperature > 0) {
      TALON_RETURN_IF_ERROR(DraftDrawn(one));
      continue;
    }
    const int branches = BranchesOf(*one.request);
    std::vector<Drafting>& group = groups[branches];
    group.push_back(one);
    if (HasRoomForMore(group, branches)) continue;
    TALON_RETURN_IF_ERROR(DraftAlike(&group));
    group.clear();
  }
  for (auto& [branches, group] : groups) {
    if (!group.empty()) TALON_RETURN_IF_ERROR(DraftAlike(&group));
  }
  return OkStatus();
}

// For one more of the largest there is.
bool StandaloneDrafter::HasRoomForMore(const std::vector<Drafting>& group, int branches) const {
  int staged = branches * options_.budget.max_depth;
  for (const Drafting& member : group) staged += branches * member.request->budget.max_depth;
  const int rows = static_cast<int>(group.size() + 1) * branches;
  return rows <= model_->max_output_rows() && staged <= kv_->shape().staging_rows;
}

void StandaloneDrafter::GiveUp(std::vector<Drafting>* batch, const std::string& reason,
                               const std::string& why) {
  metrics_->Add(Counter::kSpecFallback, 1, reason);
  LogFallback("tree", fmt::format("{}: {}; single-token step", reason, why));
  for (Drafting& one : *batch) one.tree->Truncate(1);
}

// Rewinds to what the sequence agrees with, feeds the rest, root included.
Status StandaloneDrafter::CatchUp(std::vector<Drafting>* batch) {
  for (Drafting& one : *batch) {
    const std::span<const int32_t> tokens = one.request->tokens;
    const int common = CommonPrefix(one.sequence->tokens, tokens);
    // The root is always fed again: its logits are needed.
    const int keep =
        std::min({common, one.sequence->committed_len, static_cast<int>(tokens.size()) - 1});
    TALON_RETURN_IF_ERROR(kv_->Rewind(one.sequence, keep));
    one.sequence->tokens.assign(tokens.begin(), tokens.end());
  }
  first_.assign(batch->size() * RankedSuccessors(), {});
  for (bool done = false; !done;) TALON_RETURN_IF_ERROR(FeedChunk(batch, &done));
  return OkStatus();
}

// One pass over the next missing tokens of all sequences, as many as fit.
Status StandaloneDrafter::FeedChunk(std::vector<Drafting>* batch, bool* done) {
  std::vector<Feed> feeds;
  std::vector<size_t> complete;  // sequences whose last token is fed in this pass
  int room = model_->max_rows();
  *done = true;
  for (size_t i = 0; i < batch->size(); ++i) {
    Sequence* sequence = (*batch)[i].sequence;
    const int missing = static_cast<int>(sequence->tokens.size()) - sequence->committed_len;
    const int count = std::min(missing, room);
    *done = *done && count == missing;
    if (count == 0) continue;
    feeds.push_back({sequence, count, /*logits=*/count == missing});
    if (count == missing) complete.push_back(i);
    room -= count;
  }
  const int k = RankedSuccessors();
  std::vector<TopKEntry> best;
  TALON_RETURN_IF_ERROR(RunFeeds(feeds, k, &best));
  for (size_t i = 0; i < complete.size(); ++i) {
    std::copy_n(best.begin() + static_cast<int64_t>(i) * k, k,
                first_.begin() + static_cast<int64_t>(complete[i]) * k);
  }
  return OkStatus();
}

// All or nothing, like every change of a cache.
Status StandaloneDrafter::RunFeeds(const std::vector<Feed>& feeds, int top_k,
                                   std::vector<TopKEntry>* best) {
  builder_.Reset();
  std::vector<Reservation> reservations;
  Status status;
  for (const Feed& feed : feeds) {
    auto reservation = kv_->Reserve(*feed.sequence, feed.count);
    status = reservation.status();
    if (!reservation.ok()) break;
    builder_.AddPrompt(*feed.sequence, *reservation, feed.logits ? 1 : 0);
    reservations.push_back(std::move(*reservation));
  }
  if (status.ok()) status = RunPass(top_k, best);
  for (size_t i = 0; i < reservations.size(); ++i) {
    if (status.ok()) {
      kv_->Advance(feeds[i].sequence, std::move(reservations[i]), feeds[i].count, "prefill");
    } else {
      kv_->Cancel(std::move(reservations[i]));
    }
  }
  return status;
}

Status StandaloneDrafter::RunPass(int top_k, std::vector<TopKEntry>* best) {
  ForwardOutput output;
  TALON_RETURN_IF_ERROR(model_->Forward(builder_.plan(), kv_->view(), &output));
  best->resize(static_cast<size_t>(output.logits.rows) * top_k);
  if (!best->empty()) backend_->token_ops()->TopK(output.logits, top_k, *best);
  return OkStatus();
}

int StandaloneDrafter::BranchesOf(const DraftRequest& request) const {
  const int most = options_.budget.top_k;
  return options_.drawn_trees ? std::min(request.budget.top_k, most) : most;
}

int StandaloneDrafter::RankedSuccessors() const {
  const int drawn_from = options_.sample ? std::min(kDrawnFrom, options_.vocab_size) : 1;
  if (options_.drawn_trees) return std::max(options_.budget.top_k, drawn_from);
  return options_.budget.top_k > 1 ? options_.budget.top_k : drawn_from;
}

std::span<const TopKEntry> StandaloneDrafter::FirstOf(const Drafting& one, int count) const {
  return std::span(first_).subspan(one.place * RankedSuccessors(), count);
}

bool StandaloneDrafter::ExtendChain(std::span<const TopKEntry> best, Drafting* one) {
  if (std::isnan(best[0].log_prob)) {
    metrics_->Add(Counter::kSpecFallback, 1, "draft_nan");
    return false;
  }
  const DraftRequest& request = *one->request;
  if (!options_.sample || request.temperature <= 0) {
    one->tip = one->tree->Add(one->tip, best[0].id, std::exp(best[0].log_prob));
    return true;
  }
  const DraftProbs probs = TemperedProbs(best, request.temperature);
  const uint64_t position = request.tokens.size() + one->tree->size() - 1;
  const int32_t token = DrawFrom(
      probs,
      UniformDraw({.seed = request.seed, .position = position, .stream = RandomStream::kDrafter}));
  one->tip = one->tree->Add(one->tip, token, probs.Of(token));
  one->tree->draws.resize(one->tree->tokens.size());
  one->tree->draws[one->tip] = probs;
  return true;
}

// Each level feeds the tips of all chains; the last level needs no pass.
Status StandaloneDrafter::DraftChains(std::vector<Drafting>* batch) {
  const auto ranked = static_cast<size_t>(RankedSuccessors());
  std::vector<TopKEntry> best;
  std::vector<Drafting*> growing;
  for (Drafting& one : *batch) {
    growing.push_back(&one);
    const std::span<const TopKEntry> first = FirstOf(one, static_cast<int>(ranked));
    best.insert(best.end(), first.begin(), first.end());
  }
  const LevelPrice price{.prices = batch->front().request->budget.prices, .times = &level_times_};
  for (int depth = 1; !growing.empty(); ++depth) {
    std::vector<Drafting*> next;
    std::vector<Feed> feeds;
    double mass = 0;
    for (size_t i = 0; i < growing.size(); ++i) {
      Drafting& one = *growing[i];
      if (!ExtendChain(std::span(best).subspan(i * ranked, ranked), &one)) continue;
      const DraftBudget& budget = one.request->budget;
      if (depth >= budget.max_depth || one.tree->size() >= budget.max_nodes) continue;
      one.sequence->tokens.push_back(one.tree->tokens[one.tip]);
      feeds.push_back({one.sequence, 1, /*logits=*/true});
      next.push_back(&one);
      one.reach *= one.tree->probs[one.tip];
      mass += one.reach;
    }
    growing = std::move(next);
    if (growing.empty() || !price.Pays(mass, static_cast<int>(growing.size()))) break;
    const Stopwatch watch(backend_->time());
    TALON_RETURN_IF_ERROR(RunFeeds(feeds, static_cast<int>(ranked), &best));
    price.Observe(watch.Seconds());
  }
  return OkStatus();
}

// All beams of a level run in one pass, staged; nothing of them is kept.
Status StandaloneDrafter::DraftTrees(std::vector<Drafting>* batch) {
  const int k = BranchesOf(*batch->front().request);
  std::vector<GrowingTree> trees;
  int staged = 0;
  for (size_t i = 0; i < batch->size(); ++i) {
    const Drafting& one = (*batch)[i];
    const DraftBudget& budget = one.request->budget;
    GrowingTree growing{.tree = {k, budget.max_depth, budget.max_nodes, options_.min_prob},
                        .prefix = *one.sequence,
                        .position = one.sequence->committed_len,
                        .staging_base = staged,
                        .owner = i};
    staged += k * budget.max_depth;
    growing.has_nan = !growing.tree.Start(FirstOf(one, k));
    trees.push_back(std::move(growing));
  }
  const LevelPrice price{.prices = batch->front().request->budget.prices, .times = &level_times_};
  TALON_RETURN_IF_ERROR(GrowTrees(
      trees, price, [&](std::span<GrowingTree* const> level, std::vector<TopKEntry>* best) {
        builder_.Reset();
        for (const GrowingTree* growing : level) AddBeam(*growing, &builder_);
        return RunPass(k, best);
      }));
  for (const GrowingTree& growing : trees) {
    const Drafting& one = (*batch)[growing.owner];
    if (growing.has_nan) {
      metrics_->Add(Counter::kSpecFallback, 1, "draft_nan");
    } else {
      *one.tree = growing.tree.Build(one.request->tokens.back());
    }
  }
  return OkStatus();
}

// The levels of one drawn tree, staged; nothing of them is kept.
Status StandaloneDrafter::DraftDrawn(const Drafting& one) {
  const DraftRequest& request = *one.request;
  const int ranked = RankedSuccessors();
  DrawnTree drawn(request.tokens.back(), {.beams = request.budget.top_k,
                                          .max_depth = request.budget.max_depth,
                                          .max_nodes = request.budget.max_nodes,
                                          .temperature = request.temperature,
                                          .seed = request.seed,
                                          .position = request.tokens.size()});
  const std::span<const TopKEntry> first = FirstOf(one, ranked);
  std::vector<TopKEntry> best(first.begin(), first.end());
  while (drawn.wants_growth()) {
    if (!drawn.Grow(best, ranked)) {
      metrics_->Add(Counter::kSpecFallback, 1, "draft_nan");
      return OkStatus();
    }
    if (!drawn.wants_growth()) break;
    const DraftForestRows rows(drawn.tree());
    builder_.Reset();
    builder_.AddForest(*one.sequence, one.sequence->committed_len, rows.tokens, rows.parents,
                       drawn.frontier() - 1, /*staging_base=*/0);
    TALON_RETURN_IF_ERROR(RunPass(ranked, &best));
  }
  *one.tree = drawn.tree();
  return OkStatus();
}

}  // namespace talon
