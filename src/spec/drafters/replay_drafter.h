// Replays a known answer with errors, for measurements: chains whose tokens are right with a given
// probability each. Not in the registry.
#ifndef TALON_SPEC_DRAFTERS_REPLAY_DRAFTER_H_
#define TALON_SPEC_DRAFTERS_REPLAY_DRAFTER_H_

#include <algorithm>
#include <random>
#include <vector>

#include "spec/drafter.h"

namespace talon {

class ReplayDrafter : public Drafter {
 public:
  // `answer`: prompt and output of the one sequence that will run.
  ReplayDrafter(std::vector<int32_t> answer, int vocab_size, double acceptance, uint32_t seed)
      : answer_(std::move(answer)),
        vocab_size_(vocab_size),
        acceptance_(acceptance),
        random_(seed) {}

  std::string_view name() const override { return "REPLAY"; }
  Status Begin(SequenceId, std::span<const int32_t>) override { return OkStatus(); }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override {
    std::bernoulli_distribution right(acceptance_);
    for (size_t i = 0; i < requests.size(); ++i) {
      const size_t known = requests[i].tokens.size();
      const int length = std::min({requests[i].budget.max_nodes - 1, requests[i].budget.max_depth,
                                   static_cast<int>(answer_.size() - known)});
      for (int node = 0; node < length; ++node) {
        const int32_t token = answer_[known + node];
        trees[i].Add(node, right(random_) ? token : (token + 1) % vocab_size_,
                     static_cast<float>(acceptance_));
      }
    }
  }
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId, int) override {}
  void End(SequenceId) override {}

 private:
  std::vector<int32_t> answer_;
  int vocab_size_;
  double acceptance_;
  std::mt19937 random_;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_REPLAY_DRAFTER_H_
