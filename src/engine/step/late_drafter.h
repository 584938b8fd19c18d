// A drafter that learns what was emitted while the device runs the next pass, if it is not asked
// before: then what its tables cost is not waited for.
#ifndef TALON_ENGINE_STEP_LATE_DRAFTER_H_
#define TALON_ENGINE_STEP_LATE_DRAFTER_H_

#include <memory>
#include <utility>
#include <vector>

#include "spec/drafter.h"

namespace talon {

class LateDrafter : public Drafter {
 public:
  explicit LateDrafter(std::unique_ptr<Drafter> inner) : inner_(std::move(inner)) {}

  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override {
    steps_.push_back({sequence, emitted.size()});
    tokens_.insert(tokens_.end(), emitted.begin(), emitted.end());
  }
  // Tells the inner drafter of all that was observed, in its order.
  void Learn() override {
    std::span<const int32_t> left = tokens_;
    for (const auto& [sequence, count] : steps_) {
      inner_->Observe(sequence, left.first(count));
      left = left.subspan(count);
    }
    steps_.clear();
    tokens_.clear();
  }

  // The rest is for a drafter that knows it all.
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override {
    return Informed().Begin(sequence, prompt);
  }
  void Recall(SequenceId sequence, std::span<const int32_t> tokens, int computed) override {
    Informed().Recall(sequence, tokens, computed);
  }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    Informed().Propose(requests, trees);
  }
  std::vector<bool> BeginTrees(std::span<const DraftRequest> requests, int most_nodes,
                               std::span<TokenTree> trees) override {
    return Informed().BeginTrees(requests, most_nodes, trees);
  }
  void PlaceTrees(std::span<const OutlineRows> outlines, Pass* pass) override {
    Informed().PlaceTrees(outlines, pass);
  }
  void FinishTrees(std::span<TokenTree> trees) override { Informed().FinishTrees(trees); }
  void Extend(std::span<const CommittedRows> batch, MatrixView features) override {
    Informed().Extend(batch, features);
  }
  void Rewind(SequenceId sequence, int length) override { Informed().Rewind(sequence, length); }
  void End(SequenceId sequence) override { Informed().End(sequence); }

  std::string_view name() const override { return inner_->name(); }
  std::vector<std::string_view> source_names() const override { return inner_->source_names(); }
  bool IsLookup() const override { return inner_->IsLookup(); }
  bool HasLookups() const override { return inner_->HasLookups(); }
  bool GrowsAhead() const override { return inner_->GrowsAhead(); }
  std::vector<int> capture_layers() const override { return inner_->capture_layers(); }

 private:
  struct Emitted {
    SequenceId sequence = 0;
    size_t count = 0;
  };

  Drafter& Informed() {
    Learn();
    return *inner_;
  }

  std::unique_ptr<Drafter> inner_;
  std::vector<Emitted> steps_;
  std::vector<int32_t> tokens_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_LATE_DRAFTER_H_
