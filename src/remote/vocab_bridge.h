// Maps tokens between a draft model and a target with different vocabularies, by their bytes.
// Special tokens map to special tokens only.
//
// Drafts are translated before the target sees them; a wrong guess costs speed, never the text.
// Immutable; thread-safe.
#ifndef TALON_REMOTE_VOCAB_BRIDGE_H_
#define TALON_REMOTE_VOCAB_BRIDGE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/remote_calls.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

class VocabBridge {
 public:
  // With `strict`, sizes or special tokens that differ are an error that names them. `target` must
  // outlive the bridge.
  static Result<std::unique_ptr<VocabBridge>> Build(const Tokenizer* target,
                                                    std::unique_ptr<Tokenizer> draft, bool strict);

  // Every token has the same id on both sides.
  bool identity() const { return identity_; }

  // A context as the drafter reads it. Where a token has no counterpart, the whole text is encoded
  // anew.
  Result<std::vector<int32_t>> ContextForDraft(std::span<const int32_t> target_tokens) const;

  // Drafts as the target reads them. A node without a counterpart is cut with what is below it;
  // siblings that become one token merge. The draw of a node is kept if all of it has counterparts.
  DraftForest ForTarget(const DraftForest& drafts) const;

  // -1: no counterpart.
  int32_t ToTarget(int32_t draft_token) const { return At(to_target_, draft_token); }
  int32_t ToDraft(int32_t target_token) const { return At(to_draft_, target_token); }

 private:
  VocabBridge(const Tokenizer* target, std::unique_ptr<Tokenizer> draft)
      : target_(target), draft_(std::move(draft)) {}

  static int32_t At(const std::vector<int32_t>& map, int32_t token) {
    return token >= 0 && token < static_cast<int32_t>(map.size()) ? map[token] : -1;
  }
  DraftProbs DrawForTarget(const DraftProbs& draw) const;

  const Tokenizer* target_;
  const std::unique_ptr<Tokenizer> draft_;
  bool identity_ = false;
  std::vector<int32_t> to_target_;  // by draft token
  std::vector<int32_t> to_draft_;   // by target token
};

}  // namespace talon

#endif  // TALON_REMOTE_VOCAB_BRIDGE_H_
