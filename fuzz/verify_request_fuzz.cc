// Any bytes as a remote call or a worker's answer.
//
// The first byte chooses the message. Whatever is taken holds what the engine relies on: parents
// before children, depth order, tokens of the vocabulary, probabilities; and it survives being sent
// again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "serve/grpc/wire.h"

namespace talon {
namespace {

constexpr WireLimits kLimits = {
    .max_tree_nodes = 64, .max_tree_depth = 16, .max_prompt_tokens = 256, .vocab_size = 1000};

void CheckTokens(const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens) {
    TALON_CHECK(token >= 0 && token < kLimits.vocab_size, "token {}", token);
  }
}

void CheckForest(const DraftForest& forest) {
  TALON_CHECK(forest.size() <= kLimits.max_tree_nodes, "{} nodes", forest.size());
  TALON_CHECK(forest.parents.size() == forest.tokens.size(), "parents");
  TALON_CHECK(forest.probs.size() == forest.tokens.size(), "probs");
  TALON_CHECK(forest.draws.empty() || forest.draws.size() == forest.tokens.size(), "draws");
  CheckTokens(forest.tokens);
  for (int i = 0; i < forest.size(); ++i) {
    TALON_CHECK(forest.parents[i] >= -1 && forest.parents[i] < i, "node {}", i);
    TALON_CHECK(forest.probs[i] >= 0 && forest.probs[i] <= 1, "node {}", i);
  }
  const std::vector<int32_t> depths = TreeDepths(forest.parents);
  for (int i = 1; i < forest.size(); ++i) {
    TALON_CHECK(depths[i] >= depths[i - 1] && depths[i] < kLimits.max_tree_depth, "node {}", i);
  }
}

void FuzzVerifyCall(std::string_view bytes) {
  const auto call = DecodeVerifyCall(bytes, kLimits);
  if (!call.ok()) return;
  CheckTokens(call->prompt);
  CheckTokens(call->delta);
  CheckTokens(call->stop_token_ids);
  CheckForest(call->drafts);
  for (const TreeForm form : {TreeForm::kFlat, TreeForm::kNested}) {
    const auto again = DecodeVerifyCall(EncodeVerifyCall(*call, form), kLimits);
    TALON_CHECK(again.ok(), "{}", again.status().message());
    TALON_CHECK(again->drafts.tokens == call->drafts.tokens, "tokens");
    TALON_CHECK(again->drafts.parents == call->drafts.parents, "parents");
    TALON_CHECK(again->prompt == call->prompt, "prompt");
  }
}

void FuzzDraftCall(std::string_view bytes) {
  const auto call = DecodeDraftCall(bytes, kLimits);
  if (!call.ok()) return;
  CheckTokens(call->context);
  TALON_CHECK(DecodeDraftCall(EncodeDraftCall(*call), kLimits).ok(), "sent again");
}

void FuzzAnswers(std::string_view bytes) {
  const auto verified = DecodeVerifyAnswer(bytes, kLimits, nullptr);
  if (verified.ok()) CheckTokens(verified->accepted);
  const auto drafted = DecodeDraftAnswer(bytes, kLimits, nullptr);
  if (drafted.ok()) CheckForest(drafted->drafts);
  (void)DecodeEndSessionCall(bytes).ok();
  (void)DecodePingAnswer(bytes).ok();
}

}  // namespace
}  // namespace talon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      talon::FuzzVerifyCall(bytes);
      break;
    case 1:
      talon::FuzzDraftCall(bytes);
      break;
    default:
      talon::FuzzAnswers(bytes);
  }
  return 0;
}
