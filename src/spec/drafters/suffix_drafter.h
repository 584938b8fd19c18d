// SUFFIX: drafts what followed the longest matching suffix of the context, by exact counts.
//
// Three sources: the sequence itself (prompt and output), the outputs of earlier requests, and a
// corpus given at the start. In each the longest suffix of the context that occurs is found, and a
// tree grows from it best first by path probability, the product of empirical next-token shares. It
// stops below min_path_prob and at length_factor times the matched length. The source whose tree
// promises most accepted tokens wins.
#ifndef TALON_SPEC_DRAFTERS_SUFFIX_DRAFTER_H_
#define TALON_SPEC_DRAFTERS_SUFFIX_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spec/drafter.h"
#include "spec/drafters/suffix_tree.h"

namespace talon {

struct SuffixOptions {
  int depth = 24;                        // tokens of match and continuation counted together
  size_t max_cached_requests = 10'000;   // the oldest outputs leave first
  size_t max_cached_tokens = 4'000'000;  // a second limit, about 130 bytes a token
  double length_factor = 1;              // draft depth <= factor * matched length
  double min_path_prob = 0.1;

  Status Validate() const;
};

class SuffixDrafter : public Drafter {
 public:
  // REQUIRES: options.Validate() is OK; `corpus` holds tokens of the vocabulary.
  explicit SuffixDrafter(const SuffixOptions& options = {},
                         std::span<const std::vector<int32_t>> corpus = {});

  std::string_view name() const override { return "SUFFIX"; }
  bool IsLookup() const override { return true; }
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override;
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override;
  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override;
  void Rewind(SequenceId sequence, int length) override;
  // The sequence's output joins the cache.
  void End(SequenceId sequence) override;

  size_t num_cached() const { return cached_sizes_.size(); }

 private:
  struct Sequence {
    SuffixTree tree;
    size_t prompt_length;
  };
  struct Draft {
    TokenTree tree;
    double expected = 0;  // accepted tokens, by the path probabilities
  };

  TokenTree DraftBest(const DraftRequest& request) const;
  Draft DraftFrom(const SuffixTree& source, const DraftRequest& request) const;
  void Cache(std::span<const int32_t> output);
  void DropOldestCached();

  SuffixOptions options_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  SuffixTree cache_;
  std::deque<size_t> cached_sizes_;  // tokens of each cached output in cache_, oldest first
  SuffixTree corpus_;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_SUFFIX_DRAFTER_H_
