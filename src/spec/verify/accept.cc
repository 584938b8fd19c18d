#include "spec/verify/accept.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/sampling/sampling_math.h"

namespace talon {
namespace {

// Judges the children of a node with distribution `p`: the accepted child, or -1 and then `p` holds
// the residual that the bonus is drawn from.
using Judge = int (*)(const TokenTree&, std::span<const int> children, const BoundSampler&,
                      size_t path_length, const AcceptThresholds&, std::vector<float>* p);

std::vector<int> ChildrenOf(const TokenTree& tree, int node) {
  std::vector<int> children;
  for (int i = node + 1; i < tree.size(); ++i) {
    if (tree.parents[i] == node) children.push_back(i);
  }
  return children;
}

// The walk of the two rules that need the whole distribution.
Acceptance WalkByDistribution(const TokenTree& tree, TreeRows& rows, const BoundSampler& sampler,
                              const AcceptThresholds& thresholds, Judge judge) {
  Acceptance result;
  std::vector<int32_t> path_tokens;
  std::vector<float> p;
  for (int node = 0; node >= 0;) {
    result.path.push_back(node);
    if (!rows.Distribution(node, path_tokens, &p)) {
      result.dead_end = true;
      result.choices.push_back({.dead_end = true});
      return result;
    }
    const std::vector<int> children = ChildrenOf(tree, node);
    const int child = judge(tree, children, sampler, path_tokens.size(), thresholds, &p);
    int32_t token = 0;
    if (child >= 0) {
      token = tree.tokens[child];
    } else {
      const double u = UniformDraw(sampler.Key(path_tokens.size(), RandomStream::kResidual));
      token = DrawFromWeights(p, u);
    }
    result.choices.push_back({.token = token});
    path_tokens.push_back(token);
    node = child;
  }
  return result;
}

int JudgeByThreshold(const TokenTree& tree, std::span<const int> children,
                     const BoundSampler& sampler, size_t path_length,
                     const AcceptThresholds& thresholds, std::vector<float>* p) {
  const double coin = UniformDraw(sampler.Key(path_length, RandomStream::kAcceptCoin));
  const double acc = std::max(thresholds.acc, 1e-9f);
  double sum = 0;
  const std::vector<float> full = *p;
  for (const int child : children) {
    float& probability = (*p)[tree.tokens[child]];
    sum += probability;
    if (coin <= sum / acc || probability >= thresholds.single) return child;
    probability = 0;
  }
  // Everything was drafted and rejected: only rounding leads here, and any draw from p is right.
  if (std::all_of(p->begin(), p->end(), [](float value) { return value == 0; })) *p = full;
  return -1;
}

// A draw that can be trusted: it sums to 1 and could have produced the token.
bool ValidDraw(const DraftProbs& draw, int32_t token, size_t vocabulary) {
  double sum = 0;
  for (const auto& [id, probability] : draw.entries) {
    if (id < 0 || static_cast<size_t>(id) >= vocabulary || !(probability >= 0)) return false;
    sum += probability;
  }
  return std::abs(sum - 1) <= 1e-3 && draw.Of(token) > 0;
}

// r = norm(max(0, r - q)); false if nothing is left.
bool SubtractAndNormalise(const DraftProbs& q, std::vector<float>* r) {
  for (const auto& [id, probability] : q.entries) {
    (*r)[id] = std::max(0.0f, (*r)[id] - probability);
  }
  const double sum = std::accumulate(r->begin(), r->end(), 0.0);
  if (!(sum > 0)) return false;
  for (float& value : *r) value = static_cast<float>(value / sum);
  return true;
}

int JudgeByRejection(const TokenTree& tree, std::span<const int> children,
                     const BoundSampler& sampler, size_t path_length, const AcceptThresholds&,
                     std::vector<float>* r) {
  const std::vector<float> p = *r;
  uint32_t draw_index = 0;
  for (const int child : children) {
    const int32_t token = tree.tokens[child];
    const bool drawn = !tree.draws.empty() && ValidDraw(tree.draws[child], token, r->size());
    const DraftProbs q = drawn ? tree.draws[child] : DraftProbs{{{token, 1.0f}}};
    const double u = UniformDraw(sampler.Key(path_length, RandomStream::kAcceptCoin, draw_index++));
    if (u * q.Of(token) < (*r)[token]) return child;
    if (!SubtractAndNormalise(q, r)) {
      *r = p;
      return -1;
    }
  }
  return -1;
}

}  // namespace

Acceptance AcceptMatch(const TokenTree& tree, TreeRows& rows) {
  Acceptance result;
  std::vector<int32_t> path_tokens;
  for (int node = 0; node >= 0;) {
    result.path.push_back(node);
    result.choices.push_back(rows.Choose(node, path_tokens));
    if (result.choices.back().dead_end) {
      result.dead_end = true;
      break;
    }
    const int32_t token = result.choices.back().token;
    path_tokens.push_back(token);
    node = tree.FindChild(node, token);
  }
  return result;
}

Acceptance AcceptThreshold(const TokenTree& tree, TreeRows& rows, const BoundSampler& sampler,
                           const AcceptThresholds& thresholds) {
  return WalkByDistribution(tree, rows, sampler, thresholds, JudgeByThreshold);
}

Acceptance AcceptRejection(const TokenTree& tree, TreeRows& rows, const BoundSampler& sampler) {
  return WalkByDistribution(tree, rows, sampler, {}, JudgeByRejection);
}

}  // namespace talon
