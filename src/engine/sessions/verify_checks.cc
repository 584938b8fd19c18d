#include "engine/sessions/verify_checks.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace talon {
namespace {

constexpr size_t kMaxIdBytes = 1024;
constexpr size_t kMaxStopTokens = 1024;

Status CheckTokens(const char* name, std::span<const int32_t> tokens, int vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return InvalidArgument("TOKEN_OUT_OF_RANGE: {} has token {} at {}, vocabulary {}", name,
                           tokens[i], i, vocab_size);
  }
  return OkStatus();
}

Status CheckLength(const char* name, size_t tokens, int limit) {
  if (tokens <= static_cast<size_t>(limit)) return OkStatus();
  return InvalidArgument("PROMPT_TOO_LONG: {} has {} tokens, limit {}", name, tokens, limit);
}

Status CheckShape(const DraftForest& drafts, const VerifyLimits& limits) {
  if (drafts.tokens.size() > static_cast<size_t>(limits.max_tree_nodes)) {
    return InvalidArgument("TREE_TOO_LARGE: {} nodes, limit {}", drafts.tokens.size(),
                           limits.max_tree_nodes);
  }
  const size_t nodes = drafts.tokens.size();
  if (drafts.parents.size() != nodes || drafts.probs.size() != nodes ||
      (!drafts.draws.empty() && drafts.draws.size() != nodes)) {
    return InvalidArgument("TREE_INVALID: {} tokens but {} parents, {} probs, {} draws", nodes,
                           drafts.parents.size(), drafts.probs.size(), drafts.draws.size());
  }
  for (size_t i = 0; i < nodes; ++i) {
    if (drafts.parents[i] < -1 || drafts.parents[i] >= static_cast<int32_t>(i)) {
      return InvalidArgument("TREE_INVALID: node {} has parent {}", i, drafts.parents[i]);
    }
    if (!std::isfinite(drafts.probs[i]) || drafts.probs[i] < 0) {
      return InvalidArgument("TREE_INVALID: node {} has probability {}", i, drafts.probs[i]);
    }
  }
  return OkStatus();
}

Status CheckDrafts(const DraftForest& drafts, const VerifyLimits& limits) {
  TALON_RETURN_IF_ERROR(CheckShape(drafts, limits));
  if (drafts.empty()) return OkStatus();
  TALON_RETURN_IF_ERROR(CheckTokens("draft_tree", drafts.tokens, limits.vocab_size));
  const std::vector<int32_t> depths = TreeDepths(drafts.parents);
  const int deepest = 1 + *std::max_element(depths.begin(), depths.end());
  if (deepest > limits.max_tree_depth) {
    return InvalidArgument("TREE_INVALID: depth {}, limit {}", deepest, limits.max_tree_depth);
  }
  std::set<std::pair<int32_t, int32_t>> seen;  // (parent, token)
  for (size_t i = 0; i < drafts.tokens.size(); ++i) {
    if (seen.emplace(drafts.parents[i], drafts.tokens[i]).second) continue;
    return InvalidArgument("TREE_INVALID: node {} repeats token {} of a sibling", i,
                           drafts.tokens[i]);
  }
  return OkStatus();
}

Status CheckSampling(const VerifyCall& call, int vocab_size) {
  if (!(call.temperature >= 0 && call.temperature <= 100)) {
    return InvalidArgument("BAD_TEMPERATURE: {}, must be 0 to 100", call.temperature);
  }
  if (call.stop_token_ids.size() > kMaxStopTokens) {
    return InvalidArgument("BAD_SAMPLING: {} stop_token_ids, limit {}", call.stop_token_ids.size(),
                           kMaxStopTokens);
  }
  TALON_RETURN_IF_ERROR(CheckTokens("stop_token_ids", call.stop_token_ids, vocab_size));
  return SamplingOfCall(call).Validate(vocab_size).WithContext("BAD_SAMPLING");
}

}  // namespace

Status CheckVerifyCall(const VerifyCall& call, const VerifyLimits& limits) {
  for (const std::string* id : {&call.request_id, &call.session_id}) {
    if (id->size() <= kMaxIdBytes) continue;
    return InvalidArgument("BAD_ID: an id of {} bytes, limit {}", id->size(), kMaxIdBytes);
  }
  TALON_RETURN_IF_ERROR(
      CheckLength("prompt_token_ids", call.prompt.size(), limits.max_prompt_tokens));
  TALON_RETURN_IF_ERROR(CheckLength("new_token_ids", call.delta.size(), limits.max_prompt_tokens));
  TALON_RETURN_IF_ERROR(CheckTokens("prompt_token_ids", call.prompt, limits.vocab_size));
  TALON_RETURN_IF_ERROR(CheckTokens("new_token_ids", call.delta, limits.vocab_size));
  TALON_RETURN_IF_ERROR(CheckDrafts(call.drafts, limits));
  return CheckSampling(call, limits.vocab_size);
}

TokenTree TreeOfCall(const DraftForest& drafts, int32_t root, int max_depth) {
  TokenTree tree(root);
  const bool drawn = !drafts.draws.empty();
  if (drawn) tree.draws.resize(1);
  std::vector<bool> keep = {true};
  for (int i = 0; i < drafts.size(); ++i) {
    tree.Add(drafts.parents[i] + 1, drafts.tokens[i], drafts.probs[i]);
    if (drawn) tree.draws.back() = drafts.draws[i];
  }
  for (const int32_t depth : TreeDepths(drafts.parents)) keep.push_back(depth < max_depth);
  return CanonicalTree(SelectNodes(tree, keep));
}

SamplingParams SamplingOfCall(const VerifyCall& call) {
  SamplingParams params;
  params.temperature = call.temperature;
  params.top_k = call.top_k;
  params.top_p = call.top_p;
  params.min_p = call.min_p;
  params.seed = call.seed;
  params.stop_token_ids = call.stop_token_ids;
  params.ignore_eos = true;
  return params;
}

}  // namespace talon
