#include "spec/drafters/merged_drafter.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace talon {

MergedDrafter::MergedDrafter(std::vector<Source> sources) {
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
  std::vector<Union> unions;
  for (const DraftRequest& request : requests) {
    Settle(last_[request.sequence]);
    Union united{.tree = TokenTree(request.tokens.back()), .scores = {{}}, .depth = {0}};
    united.scores[0].fill(-1);
    unions.push_back(std::move(united));
  }
  for (const size_t index : ByCost()) Ask(index, requests, &unions);
  for (size_t i = 0; i < requests.size(); ++i) {
    trees[i] = Best(unions[i], requests[i].budget);
    unions[i].cursor = 0;
    last_[requests[i].sequence] = std::move(unions[i]);
  }
}

std::vector<size_t> MergedDrafter::ByCost() const {
  std::vector<size_t> order(members_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return members_[a].worth.proposal_seconds() < members_[b].worth.proposal_seconds();
  });
  return order;
}

// Asks one source for those sequences where it pays.
void MergedDrafter::Ask(size_t index, std::span<const DraftRequest> requests,
                        std::vector<Union>* unions) {
  Member& member = members_[index];
  std::vector<DraftRequest> asked;
  std::vector<size_t> owners;
  std::vector<TokenTree> proposals;
  for (size_t i = 0; i < requests.size(); ++i) {
    if ((requests[i].sources >> index & 1) == 0) continue;
    Union& united = (*unions)[i];
    const double token_seconds = requests[i].budget.seconds_per_token;
    if (!member.worth.IsCheap(token_seconds)) {
      const int bucket = SourceWorth::BucketOf(ExpectedTokens(united));
      united.bucket[index] = static_cast<int8_t>(bucket);
      united.asked[index] = member.worth.Pays(bucket, token_seconds);
      if (!united.asked[index]) continue;
    }
    asked.push_back(requests[i]);
    DraftBudget& budget = asked.back().budget;
    budget.max_nodes = std::min(budget.max_nodes, member.source.budget.max_nodes);
    budget.max_depth = std::min(budget.max_depth, member.source.budget.max_depth);
    budget.top_k = member.source.budget.top_k;
    owners.push_back(i);
    proposals.emplace_back(requests[i].tokens.back());
  }
  if (asked.empty()) return;
  const Stopwatch watch;
  member.source.drafter->Propose(asked, proposals);
  member.worth.ObserveProposal(watch.Seconds() / static_cast<double>(asked.size()));
  for (size_t i = 0; i < asked.size(); ++i) Add(index, proposals[i], &(*unions)[owners[i]]);
}

// A step is over: what it gave and took, for the next decisions of its kind.
void MergedDrafter::Settle(const Union& last) {
  if (last.observed != 1) return;  // not one whole step
  const double seconds = last.watch.Seconds();
  for (size_t source = 0; source < members_.size(); ++source) {
    if (last.bucket[source] < 0) continue;
    members_[source].worth.ObserveStep(last.bucket[source], last.asked[source], last.emitted,
                                       seconds);
  }
}

void MergedDrafter::Add(size_t source, const TokenTree& proposal, Union* united) const {
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

// Drafts of the union on the target's path, the root not counted.
double MergedDrafter::ExpectedTokens(const Union& united) const {
  std::vector<double> path(united.tree.size(), 1.0);
  double expected = 0;
  for (int i = 1; i < united.tree.size(); ++i) {
    path[i] = path[united.tree.parents[i]] * Estimate(united, i);
    expected += path[i];
  }
  return expected;
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
