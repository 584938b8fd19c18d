#include "serve/grpc/wire_forest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace talon {
namespace {

// Log-probs are rounded, so that a certain token may be a little above 0.
constexpr float kLogProbSlack = 1e-3f;
// The same for the sum of a distribution; acceptance takes no draw that is farther off.
constexpr double kSumSlack = 1e-3;

Result<float> ProbOf(int node, float log_prob) {
  if (std::isnan(log_prob) || log_prob > kLogProbSlack) {
    return InvalidArgument("TREE_INVALID: node {} has log-prob {}", node, log_prob);
  }
  return std::min(std::exp(log_prob), 1.0f);
}

// The distribution a node says it was drawn from, ascending by token; repeated tokens are an error.
Result<DraftProbs> DrawOf(int node, const specsplit::TokenNode& from, const WireLimits& limits) {
  if (from.top_k_token_ids_size() != from.top_k_probs_size()) {
    return InvalidArgument("TREE_INVALID: node {} has {} top_k_token_ids and {} top_k_probs", node,
                           from.top_k_token_ids_size(), from.top_k_probs_size());
  }
  DraftProbs draw;
  for (int i = 0; i < from.top_k_probs_size(); ++i) {
    const float prob = from.top_k_probs(i);
    if (!(prob >= 0 && prob <= 1 + kLogProbSlack)) {
      return InvalidArgument("TREE_INVALID: node {} has probability {}", node, prob);
    }
    TALON_RETURN_IF_ERROR(CheckToken("top_k entry", i, from.top_k_token_ids(i), limits));
    draw.entries.emplace_back(from.top_k_token_ids(i), prob);
  }
  std::sort(draw.entries.begin(), draw.entries.end());
  const auto same_token = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(draw.entries.begin(), draw.entries.end(), same_token) !=
      draw.entries.end()) {
    return InvalidArgument("TREE_INVALID: node {} repeats a token in top_k_token_ids", node);
  }
  return draw;
}

double SumOf(const DraftProbs& draw) {
  double sum = 0;
  for (const auto& [token, prob] : draw.entries) sum += prob;
  return sum;
}

// Siblings differ, so each was drawn from what its earlier siblings left of the distribution.
// SpecSplit sends the whole one with each of them. Draws that do not sum to 1 are cut ones, which
// are not used, and stay as they are.
void TakeOutEarlierSiblings(DraftForest* forest) {
  std::map<int32_t, std::set<int32_t>> earlier;  // by parent
  for (int i = 0; i < static_cast<int>(forest->draws.size()); ++i) {
    std::set<int32_t>& siblings = earlier[forest->parents[i]];
    DraftProbs& draw = forest->draws[i];
    if (!siblings.empty() && std::abs(SumOf(draw) - 1) <= kSumSlack) {
      std::erase_if(draw.entries,
                    [&](const auto& entry) { return siblings.contains(entry.first); });
      const double left = SumOf(draw);
      for (auto& [token, prob] : draw.entries) {
        prob = static_cast<float>(prob / std::max(left, 1e-9));
      }
    }
    siblings.insert(forest->tokens[i]);
  }
}

// Level by level, which is depth order.
Result<DraftForest> FromNested(const TokenNodes& roots, const WireLimits& limits) {
  DraftForest forest;
  std::vector<const specsplit::TokenNode*> nodes;
  bool any_draw = false;
  const auto append = [&](const TokenNodes& children, int parent) {
    for (const specsplit::TokenNode& child : children) {
      nodes.push_back(&child);
      forest.parents.push_back(parent);
    }
  };
  append(roots, -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int index = static_cast<int>(i);
    forest.tokens.push_back(nodes[i]->token_id());
    TALON_ASSIGN_OR_RETURN(const float prob, ProbOf(index, nodes[i]->log_prob()));
    forest.probs.push_back(prob);
    TALON_ASSIGN_OR_RETURN(DraftProbs draw, DrawOf(index, *nodes[i], limits));
    any_draw |= !draw.empty();
    forest.draws.push_back(std::move(draw));
    append(nodes[i]->children(), index);
  }
  if (!any_draw) forest.draws.clear();
  TakeOutEarlierSiblings(&forest);
  return forest;
}

Status CheckFlatSizes(const specsplit::FlatTree& flat) {
  const int nodes = flat.token_ids_size();
  if (flat.parents_size() == nodes &&
      (flat.log_probs_size() == nodes || flat.log_probs_size() == 0)) {
    return OkStatus();
  }
  return InvalidArgument("TREE_INVALID: {} token_ids, {} parents, {} log_probs", nodes,
                         flat.parents_size(), flat.log_probs_size());
}

// Any order with parents first; sorted by depth here.
Result<DraftForest> FromFlat(const specsplit::FlatTree& flat, const WireLimits& limits) {
  TALON_RETURN_IF_ERROR(CheckFlatSizes(flat));
  const int nodes = flat.token_ids_size();
  for (int i = 0; i < nodes; ++i) {
    if (flat.parents(i) < -1 || flat.parents(i) >= i) {
      return InvalidArgument("TREE_INVALID: node {} has parent {}", i, flat.parents(i));
    }
  }
  const std::vector<int32_t> depths =
      TreeDepths({flat.parents().data(), static_cast<size_t>(nodes)});
  for (int i = 0; i < nodes; ++i) {
    if (depths[i] >= limits.max_tree_depth) {
      return InvalidArgument("TREE_INVALID: node {} has depth {}, limit {}", i, depths[i] + 1,
                             limits.max_tree_depth);
    }
  }
  std::vector<int> order(nodes);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return depths[a] < depths[b]; });
  std::vector<int> renamed(nodes);
  DraftForest forest;
  for (const int from : order) {
    renamed[from] = forest.size();
    forest.tokens.push_back(flat.token_ids(from));
    forest.parents.push_back(flat.parents(from) < 0 ? -1 : renamed[flat.parents(from)]);
    TALON_ASSIGN_OR_RETURN(const float prob,
                           ProbOf(from, flat.log_probs_size() == 0 ? 0 : flat.log_probs(from)));
    forest.probs.push_back(prob);
  }
  return forest;
}

Status CheckSiblingsDiffer(const DraftForest& forest) {
  std::set<std::pair<int32_t, int32_t>> seen;  // (parent, token)
  for (int i = 0; i < forest.size(); ++i) {
    if (!seen.emplace(forest.parents[i], forest.tokens[i]).second) {
      return InvalidArgument("TREE_INVALID: node {} repeats token {} of a sibling", i,
                             forest.tokens[i]);
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckToken(const char* what, int64_t index, int32_t token, const WireLimits& limits) {
  if (token >= 0 && (limits.vocab_size == 0 || token < limits.vocab_size)) return OkStatus();
  return InvalidArgument("TOKEN_OUT_OF_RANGE: {} {} is token {}, vocabulary {}", what, index, token,
                         limits.vocab_size);
}

Status CheckTokens(const char* what, const std::vector<int32_t>& tokens, const WireLimits& limits) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    TALON_RETURN_IF_ERROR(CheckToken(what, static_cast<int64_t>(i), tokens[i], limits));
  }
  return OkStatus();
}

Result<DraftForest> ReadForest(const TokenNodes& nested, const specsplit::FlatTree& flat,
                               const WireLimits& limits) {
  if (!nested.empty() && flat.token_ids_size() > 0) {
    return InvalidArgument("TREE_INVALID: both draft_tree and flat_tree are given");
  }
  // A flat tree without tokens may still be wrong.
  TALON_ASSIGN_OR_RETURN(DraftForest forest,
                         nested.empty() ? FromFlat(flat, limits) : FromNested(nested, limits));
  TALON_RETURN_IF_ERROR(CheckTokens("node", forest.tokens, limits));
  TALON_RETURN_IF_ERROR(CheckSiblingsDiffer(forest));
  return forest;
}

void WriteNested(const DraftForest& forest, TokenNodes* roots) {
  std::vector<specsplit::TokenNode*> nodes;
  for (int i = 0; i < forest.size(); ++i) {
    const int parent = forest.parents[i];
    specsplit::TokenNode* node = parent < 0 ? roots->Add() : nodes[parent]->add_children();
    node->set_token_id(forest.tokens[i]);
    node->set_log_prob(std::log(forest.probs[i]));
    if (!forest.draws.empty()) {
      for (const auto& [token, prob] : forest.draws[i].entries) {
        node->add_top_k_token_ids(token);
        node->add_top_k_probs(prob);
      }
    }
    nodes.push_back(node);
  }
}

void WriteFlat(const DraftForest& forest, specsplit::FlatTree* flat) {
  *flat->mutable_token_ids() = {forest.tokens.begin(), forest.tokens.end()};
  *flat->mutable_parents() = {forest.parents.begin(), forest.parents.end()};
  for (const float prob : forest.probs) flat->add_log_probs(std::log(prob));
}

}  // namespace talon
