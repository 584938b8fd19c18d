#include "spec/drafters/suffix_drafter.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "base/check.h"
#include "base/valid_values.h"

namespace talon {
namespace {

using Cursor = SuffixTree::Cursor;

bool DescendAll(const SuffixTree& source, std::span<const int32_t> run, Cursor* cursor) {
  *cursor = source.Root();
  return std::ranges::all_of(run, [&](int32_t token) { return source.Descend(token, cursor); });
}

// The cursor of the longest suffix of `context` that is followed by something; length 0 if none is.
// If a run is followed by something, so are its suffixes: the first miss ends the search.
Cursor LongestMatch(const SuffixTree& source, std::span<const int32_t> context) {
  Cursor best;
  const size_t limit = std::min<size_t>(context.size(), source.depth() - 1);
  for (size_t length = 1; length <= limit; ++length) {
    Cursor cursor;
    if (!DescendAll(source, context.last(length), &cursor) || !source.HasNext(cursor)) break;
    best = cursor;
  }
  return best;
}

// A node that may join the tree.
struct Pending {
  double path_prob = 0;
  int order = 0;  // equal probabilities: first come, first served
  int parent = 0;
  int32_t token = 0;
  float share = 0;
  int depth = 0;
  Cursor parent_cursor;

  bool operator<(const Pending& other) const {
    return path_prob != other.path_prob ? path_prob < other.path_prob : order > other.order;
  }
};

// Grows one tree from one source, best candidates first.
class Growing {
 public:
  Growing(const SuffixTree& source, const DraftRequest& request, double min_path_prob)
      : source_(source),
        request_(request),
        min_path_prob_(min_path_prob),
        tree_(request.tokens.back()) {}

  void Run(const Cursor& match, int max_depth) {
    if (max_depth > 0) Expand({.node = 0, .cursor = match});
    while (!candidates_.empty() && tree_.size() < request_.budget.max_nodes) {
      const Pending best = candidates_.top();
      candidates_.pop();
      const int node = tree_.Add(best.parent, best.token, best.share);
      expected_ += best.path_prob;
      if (best.depth == max_depth) continue;
      Cursor cursor = best.parent_cursor;
      source_.Descend(best.token, &cursor);
      Expand({.node = node, .depth = best.depth, .path_prob = best.path_prob, .cursor = cursor});
    }
  }

  TokenTree tree() const { return CanonicalTree(tree_); }
  double expected() const { return expected_; }

 private:
  struct Place {
    int node = 0;
    int depth = 0;
    double path_prob = 1;
    Cursor cursor;
  };

  void Expand(Place place) {
    if (place.cursor.length == source_.depth()) place.cursor = Reanchor(place.node);
    const int64_t total = source_.Continuations(place.cursor, &continuations_);
    for (const auto& [token, count] : continuations_) {
      const double share = static_cast<double>(count) / static_cast<double>(total);
      if (place.path_prob * share < min_path_prob_) break;  // most frequent first
      candidates_.push({.path_prob = place.path_prob * share,
                        .order = order_++,
                        .parent = place.node,
                        .token = token,
                        .share = static_cast<float>(share),
                        .depth = place.depth + 1,
                        .parent_cursor = place.cursor});
    }
  }

  // Where the counted depth ends, half of it as context goes on.
  Cursor Reanchor(int node) const {
    std::vector<int32_t> run;
    const size_t length = source_.depth() / 2;
    for (; node > 0 && run.size() < length; node = tree_.parents[node]) {
      run.push_back(tree_.tokens[node]);
    }
    const size_t from_context = std::min(length - run.size(), request_.tokens.size());
    const auto context = request_.tokens.last(from_context);
    run.insert(run.end(), context.rbegin(), context.rend());
    std::ranges::reverse(run);
    Cursor cursor;
    return DescendAll(source_, run, &cursor) ? cursor : Cursor{.length = source_.depth()};
  }

  const SuffixTree& source_;
  const DraftRequest& request_;
  double min_path_prob_;
  TokenTree tree_;
  double expected_ = 0;
  int order_ = 0;
  std::priority_queue<Pending> candidates_;
  std::vector<SuffixTree::Continuation> continuations_;
};

}  // namespace

Status SuffixOptions::Validate() const {
  constexpr Range kFactorRange{.low = 0, .high = 64, .above_low = true};
  TALON_RETURN_IF_ERROR(CheckRange("suffix: depth", depth, {2, SuffixTree::kMaxDepth}));
  TALON_RETURN_IF_ERROR(CheckRange("suffix: length_factor", length_factor, kFactorRange));
  return CheckRange("suffix: min_path_prob", min_path_prob, {0, 1});
}

SuffixDrafter::SuffixDrafter(const SuffixOptions& options,
                             std::span<const std::vector<int32_t>> corpus)
    : options_(options),
      cache_(options.depth, SuffixTree::Removal::kOldest),
      corpus_(options.depth, SuffixTree::Removal::kOldest) {
  TALON_CHECK(options.Validate().ok(), "{}", options.Validate().message());
  for (const std::vector<int32_t>& document : corpus) {
    corpus_.Append(document);
    corpus_.EndDocument();
  }
}

Status SuffixDrafter::Begin(SequenceId sequence, std::span<const int32_t> prompt) {
  const auto [at, is_new] = sequences_.try_emplace(
      sequence, Sequence{.tree = SuffixTree(options_.depth, SuffixTree::Removal::kNewest),
                         .prompt_length = prompt.size()});
  if (!is_new) return InvalidArgument("suffix: sequence {} has already begun", sequence);
  at->second.tree.Append(prompt);
  return OkStatus();
}

void SuffixDrafter::Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) {
  for (size_t i = 0; i < requests.size(); ++i) trees[i] = DraftBest(requests[i]);
}

void SuffixDrafter::Observe(SequenceId sequence, std::span<const int32_t> emitted) {
  const auto at = sequences_.find(sequence);
  if (at != sequences_.end()) at->second.tree.Append(emitted);
}

void SuffixDrafter::Rewind(SequenceId sequence, int length) {
  const auto at = sequences_.find(sequence);
  if (at == sequences_.end() || static_cast<size_t>(length) >= at->second.tree.size()) return;
  at->second.tree.RemoveNewest(at->second.tree.size() - length);
  at->second.prompt_length = std::min<size_t>(at->second.prompt_length, length);
}

void SuffixDrafter::End(SequenceId sequence) {
  const auto at = sequences_.find(sequence);
  if (at == sequences_.end()) return;
  Cache(at->second.tree.text().subspan(at->second.prompt_length));
  sequences_.erase(at);
}

TokenTree SuffixDrafter::DraftBest(const DraftRequest& request) const {
  Draft best{.tree = TokenTree(request.tokens.back())};
  const auto consider = [&](const SuffixTree& source) {
    Draft draft = DraftFrom(source, request);
    if (draft.expected > best.expected) best = std::move(draft);
  };
  const auto at = sequences_.find(request.sequence);
  if (at != sequences_.end()) consider(at->second.tree);
  consider(cache_);
  consider(corpus_);
  return std::move(best.tree);
}

SuffixDrafter::Draft SuffixDrafter::DraftFrom(const SuffixTree& source,
                                              const DraftRequest& request) const {
  const Cursor match = LongestMatch(source, request.tokens);
  if (match.length == 0) return {};
  const int reach = static_cast<int>(options_.length_factor * match.length);
  Growing growing(source, request, options_.min_path_prob);
  growing.Run(match, std::min(reach, request.budget.max_depth));
  return {.tree = growing.tree(), .expected = growing.expected()};
}

void SuffixDrafter::Cache(std::span<const int32_t> output) {
  output = output.last(std::min(output.size(), options_.max_cached_tokens));
  if (output.empty() || options_.max_cached_requests == 0) return;
  while (num_cached() >= options_.max_cached_requests) DropOldestCached();
  while (num_cached() > 0 && cache_.size() + output.size() > options_.max_cached_tokens) {
    DropOldestCached();
  }
  const size_t before = cache_.size();
  cache_.Append(output);
  cache_.EndDocument();
  cached_sizes_.push_back(cache_.size() - before);
}

void SuffixDrafter::DropOldestCached() {
  cache_.RemoveOldest(cached_sizes_.front());
  cached_sizes_.pop_front();
}

}  // namespace talon
