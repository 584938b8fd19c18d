// For tests: records what a drafter proposes.
#ifndef TALON_ENGINE_RECORDING_DRAFTER_H_
#define TALON_ENGINE_RECORDING_DRAFTER_H_

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "spec/drafter.h"

namespace talon {

// Everything a drafter proposed, by the length of the sequence it was asked for.
using Proposals = std::map<size_t, TokenTree>;

// Where both runs asked, they got the same tree, node for node. Returns how often both asked.
inline int ExpectSameProposals(const Proposals& a, const Proposals& b) {
  int compared = 0;
  for (const auto& [length, tree] : a) {
    const auto at = b.find(length);
    if (at == b.end()) continue;
    EXPECT_EQ(tree.tokens, at->second.tokens) << "at length " << length;
    EXPECT_EQ(tree.parents, at->second.parents) << "at length " << length;
    ++compared;
  }
  return compared;
}

// Asks the inner drafter only where `asks` allows, and notes what it proposed. With `discard` the
// target never sees it, so that every length is one step.
class RecordingDrafter : public Drafter {
 public:
  RecordingDrafter(std::unique_ptr<Drafter> inner, Proposals* proposals,
                   std::function<bool(size_t length)> asks, bool discard = false)
      : inner_(std::move(inner)),
        proposals_(proposals),
        asks_(std::move(asks)),
        discard_(discard) {}
  std::string_view name() const override { return inner_->name(); }
  std::vector<int> capture_layers() const override { return inner_->capture_layers(); }
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override {
    return inner_->Begin(sequence, prompt);
  }
  void Recall(SequenceId sequence, std::span<const int32_t> tokens, int computed) override {
    inner_->Recall(sequence, tokens, computed);
  }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    if (!asks_(requests[0].tokens.size())) return;
    inner_->Propose(requests, trees);
    for (size_t i = 0; i < requests.size(); ++i) {
      (*proposals_)[requests[i].tokens.size()] = trees[i];
      if (discard_) trees[i].Truncate(1);
    }
  }
  void Extend(std::span<const CommittedRows> batch, MatrixView features) override {
    inner_->Extend(batch, features);
  }
  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override {
    inner_->Observe(sequence, emitted);
  }
  void Rewind(SequenceId sequence, int length) override { inner_->Rewind(sequence, length); }
  void End(SequenceId sequence) override { inner_->End(sequence); }

 private:
  std::unique_ptr<Drafter> inner_;
  Proposals* proposals_;
  std::function<bool(size_t length)> asks_;
  bool discard_;
};

}  // namespace talon

#endif  // TALON_ENGINE_RECORDING_DRAFTER_H_
