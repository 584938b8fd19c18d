#include "spec/drafters/merged_drafter.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace talon {

MergedDrafter::MergedDrafter(std::vector<Source> sources, const Clock& clock) : clock_(clock) {
  TALON_CHECK(!sources.empty() && sources.size() <= kMaxSources);
  for (Source& source : sources) {
    members_.emplace_back();
    members_.back().source = std::move(source);
  }
}

std::vector<std::string_view> MergedDrafter::source_names() const {
  std::vector<std::string_view> names;
  for (const Member& member : members_) names.push_back(member.source.drafter->name());
  return names;
}

size_t MergedDrafter::NumLookups() const {
  const auto count = std::ranges::count_if(
      members_, [](const Member& member) { return member.source.drafter->IsLookup(); });
  return static_cast<size_t>(count);
}

std::vector<int> MergedDrafter::capture_layers() const {
  for (const Member& member : members_) {
    std::vector<int> layers = member.source.drafter->capture_layers();
    if (!layers.empty()) return layers;
  }
  return {};
}

Status MergedDrafter::Begin(SequenceId sequence, std::span<const int32_t> prompt) {
  for (size_t i = 0; i < members_.size(); ++i) {
    const Status status = members_[i].source.drafter->Begin(sequence, prompt);
    if (status.ok()) continue;
    for (size_t begun = 0; begun < i; ++begun) members_[begun].source.drafter->End(sequence);
    return status;
  }
  last_[sequence] = {};
  return OkStatus();
}

void MergedDrafter::Recall(SequenceId sequence, std::span<const int32_t> tokens, int computed) {
  for (Member& member : members_) member.source.drafter->Recall(sequence, tokens, computed);
}

void MergedDrafter::Extend(std::span<const CommittedRows> batch, MatrixView features) {
  for (Member& member : members_) member.source.drafter->Extend(batch, features);
}

void MergedDrafter::Rewind(SequenceId sequence, int length) {
  for (Member& member : members_) member.source.drafter->Rewind(sequence, length);
  last_[sequence].cursor = -1;
}

void MergedDrafter::End(SequenceId sequence) {
  for (Member& member : members_) member.source.drafter->End(sequence);
  last_.erase(sequence);
}

// ---- Propose ----

void MergedDrafter::Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) {
  std::vector<Union> unions = NewStep(requests);
  for (const size_t index : ByCost()) Ask(index, requests, &unions);
  for (size_t i = 0; i < requests.size(); ++i) {
    trees[i] = Best(unions[i], requests[i].budget);
    last_[requests[i].sequence] = std::move(unions[i]);
  }
}

std::vector<MergedDrafter::Union> MergedDrafter::NewStep(std::span<const DraftRequest> requests) {
  Settle();
  step_ = {.watch = Stopwatch(clock_)};
  std::vector<Union> unions;
  for (const DraftRequest& request : requests) {
    step_.sequences.push_back(request.sequence);
    Union united{
        .tree = TokenTree(request.tokens.back()), .scores = {{}}, .depth = {0}, .cursor = 0};
    united.scores[0].fill(-1);
    unions.push_back(std::move(united));
  }
  return unions;
}

std::vector<size_t> MergedDrafter::ByCost() const {
  std::vector<size_t> order(members_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return members_[a].worth.proposal_seconds() < members_[b].worth.proposal_seconds();
  });
  return order;
}

void MergedDrafter::Ask(size_t index, std::span<const DraftRequest> requests,
                        std::vector<Union>* unions) {
  Member& member = members_[index];
  const StepPrices& prices = requests[0].budget.prices;
  const bool weighed = !member.worth.IsCheap(prices.token);
  Asking asking = Choose(index, weighed, requests, *unions);
  if (asking.owners.empty()) return;
  const Stopwatch watch(clock_);
  member.source.drafter->Propose(asking.requests, asking.trees);
  const double seconds = watch.Seconds();
  double rows = -RowsOf(*unions, asking, prices);
  for (size_t i = 0; i < asking.owners.size(); ++i) {
    Add(index, asking.trees[i], &(*unions)[asking.owners[i]]);
  }
  rows += RowsOf(*unions, asking, prices);
  const auto sequences = static_cast<double>(asking.owners.size());
  member.worth.ObserveProposal(seconds / sequences, rows / sequences);
}

MergedDrafter::Asking MergedDrafter::Choose(size_t index, bool weighed,
                                            std::span<const DraftRequest> requests,
                                            std::span<const Union> unions) {
  if (requests[0].budget.lookups_only && !members_[index].source.drafter->IsLookup()) return {};
  std::vector<bool> asked(requests.size(), true);
  if (weighed) {
    const StepPrices& prices = requests[0].budget.prices;
    std::vector<double>& promised = step_.promised[index];
    for (const Union& united : unions) promised.push_back(PromiseOf(united, prices).tokens);
    asked = members_[index].worth.Choose(promised, prices);
  }
  const DraftBudget& most = members_[index].source.budget;
  Asking asking;
  for (size_t i = 0; i < requests.size(); ++i) {
    if ((requests[i].sources >> index & 1) == 0) asked[i] = false;
    if (!asked[i]) continue;
    asking.owners.push_back(i);
    asking.requests.push_back(requests[i]);
    DraftBudget& budget = asking.requests.back().budget;
    budget.max_nodes = std::min(budget.max_nodes, most.max_nodes);
    budget.max_depth = std::min(budget.max_depth, most.max_depth);
    budget.top_k = most.top_k;
    asking.trees.emplace_back(requests[i].tokens.back());
  }
  step_.asked[index] = std::move(asked);
  return asking;
}

// Sequences that have ended, or took part in no step since or in several, tell nothing; and then
// the time is not that of one step.
void MergedDrafter::Settle() {
  const double seconds = step_.watch.Seconds();
  for (size_t source = 0; source < members_.size(); ++source) {
    const std::vector<double>& promised = step_.promised[source];
    const std::vector<bool>& asked = step_.asked[source];
    bool whole = !promised.empty();
    std::vector<SourceWorth::Gained> gained;
    for (size_t i = 0; i < promised.size(); ++i) {
      const auto at = last_.find(step_.sequences[i]);
      const bool observed = at != last_.end() && at->second.observed == 1;
      whole &= observed;
      if (!observed) continue;
      gained.push_back({promised[i], asked[i], at->second.emitted});
    }
    members_[source].worth.ObserveTokens(gained);
    const bool any = std::ranges::find(asked, true) != asked.end();
    if (whole) members_[source].worth.ObserveStep(promised.size(), any, seconds);
  }
}

// ---- Ahead of the host ----

size_t MergedDrafter::GrowingAhead() const {
  const auto at = std::ranges::find_if(
      members_, [](const Member& member) { return member.source.drafter->GrowsAhead(); });
  return static_cast<size_t>(at - members_.begin());
}

std::vector<bool> MergedDrafter::BeginTrees(std::span<const DraftRequest> requests, int most_nodes,
                                            std::span<TokenTree> trees) {
  const size_t ahead = GrowingAhead();
  std::vector<Union> unions = NewStep(requests);
  for (const size_t index : ByCost()) {
    if (index != ahead) Ask(index, requests, &unions);
  }
  for (size_t i = 0; i < requests.size(); ++i) trees[i] = Best(unions[i], requests[i].budget);

  std::vector<bool> outlines(requests.size());
  ahead_ = Choose(ahead, /*weighed=*/true, requests, unions);
  if (!ahead_.owners.empty()) {
    const std::vector<bool> grown =
        members_[ahead].source.drafter->BeginTrees(ahead_.requests, most_nodes, ahead_.trees);
    for (size_t i = 0; i < ahead_.owners.size(); ++i) {
      if (!grown[i]) continue;
      outlines[ahead_.owners[i]] = true;
      trees[ahead_.owners[i]] = ahead_.trees[i];
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    last_[requests[i].sequence] = std::move(unions[i]);
  }
  return outlines;
}

void MergedDrafter::PlaceTrees(std::span<const OutlineRows> outlines, Pass* pass) {
  std::vector<OutlineRows> own(outlines.begin(), outlines.end());
  for (OutlineRows& outline : own) {
    const auto at = std::ranges::find(ahead_.owners, outline.request);
    outline.request = static_cast<size_t>(at - ahead_.owners.begin());
  }
  members_[GrowingAhead()].source.drafter->PlaceTrees(own, pass);
}

void MergedDrafter::FinishTrees(std::span<TokenTree> trees) {
  const size_t ahead = GrowingAhead();
  for (size_t i = 0; i < ahead_.owners.size(); ++i) {
    ahead_.trees[i] = TokenTree(ahead_.requests[i].tokens.back());
  }
  members_[ahead].source.drafter->FinishTrees(ahead_.trees);
  for (size_t i = 0; i < ahead_.owners.size(); ++i) {
    Union& united = last_[ahead_.requests[i].sequence];
    Add(ahead, ahead_.trees[i], &united);
    TokenTree& tree = trees[ahead_.owners[i]];
    tree = std::move(ahead_.trees[i]);
  }
  ahead_ = {};
}

void MergedDrafter::Add(size_t source, const TokenTree& proposal, Union* united) {
  std::vector<int> place(proposal.size(), 0);  // its nodes' indices in the union
  for (int i = 1; i < proposal.size(); ++i) {
    const int parent = place[proposal.parents[i]];
    int node = united->tree.FindChild(parent, proposal.tokens[i]);
    if (node < 0) {
      node = united->tree.Add(parent, proposal.tokens[i], 0);
      united->scores.emplace_back().fill(-1);
      united->depth.push_back(united->depth[parent] + 1);
    }
    united->scores[node][source] = proposal.probs[i];
    place[i] = node;
  }
}

double MergedDrafter::Estimate(const Union& united, int node) const {
  double missed = 1;
  for (size_t source = 0; source < members_.size(); ++source) {
    const float score = united.scores[node][source];
    if (score < 0) continue;
    missed *= 1 - members_[source].calibration.Estimate(united.depth[node], score);
  }
  return 1 - missed;
}

MergedDrafter::Promise MergedDrafter::PromiseOf(const Union& united,
                                                const StepPrices& prices) const {
  std::vector<double> path(united.tree.size(), 1.0);
  Promise promise;
  for (int i = 1; i < united.tree.size(); ++i) {
    path[i] = path[united.tree.parents[i]] * Estimate(united, i);
    if (path[i] * prices.token < prices.row) continue;
    ++promise.rows;
    promise.tokens += path[i];
  }
  return promise;
}

double MergedDrafter::RowsOf(std::span<const Union> unions, const Asking& asking,
                             const StepPrices& prices) const {
  double rows = 0;
  for (const size_t owner : asking.owners) rows += PromiseOf(unions[owner], prices).rows;
  return rows;
}

// The most likely nodes; of equal ones those of the earlier source. A parent is always likelier
// than its child, so the kept nodes are a tree.
TokenTree MergedDrafter::Best(const Union& united, const DraftBudget& budget) const {
  TokenTree all = united.tree;
  std::vector<double> path(all.size(), 1.0);
  for (int i = 1; i < all.size(); ++i) {
    const double estimate = Estimate(united, i);
    all.probs[i] = static_cast<float>(estimate);
    path[i] = path[all.parents[i]] * estimate;
  }
  std::vector<int> order(all.size() - 1);
  std::iota(order.begin(), order.end(), 1);
  const auto first_source = [&](int node) {
    const auto& scores = united.scores[node];
    return std::find_if(scores.begin(), scores.end(), [](float score) { return score >= 0; });
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    if (path[a] != path[b]) return path[a] > path[b];
    return first_source(a) - united.scores[a].begin() < first_source(b) - united.scores[b].begin();
  });
  std::vector<bool> kept(all.size(), false);
  kept[0] = true;
  int room = budget.max_nodes - 1;
  for (const int node : order) {
    if (room == 0) break;
    if (united.depth[node] > budget.max_depth || !kept[all.parents[node]]) continue;
    kept[node] = true;
    --room;
  }
  return CanonicalTree(SelectNodes(all, kept));
}

// ---- Observe ----

// Every child of a node on the path was tried, proposed to the target or not: its choice is known.
void MergedDrafter::Observe(SequenceId sequence, std::span<const int32_t> emitted) {
  for (Member& member : members_) member.source.drafter->Observe(sequence, emitted);
  const auto at = last_.find(sequence);
  if (at == last_.end()) return;
  Union& united = at->second;
  ++united.observed;
  united.emitted += static_cast<int>(emitted.size());
  const TokenTree& tree = united.tree;
  for (const int32_t token : emitted) {
    if (united.cursor < 0) return;
    int next = -1;
    for (int i = united.cursor + 1; i < tree.size(); ++i) {
      if (tree.parents[i] != united.cursor) continue;
      const bool accepted = tree.tokens[i] == token;
      if (accepted) next = i;
      for (size_t source = 0; source < members_.size(); ++source) {
        const float score = united.scores[i][source];
        if (score >= 0) members_[source].calibration.Record(united.depth[i], score, accepted);
      }
    }
    united.cursor = next;
  }
}

}  // namespace talon
