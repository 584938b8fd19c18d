// NGRAM: drafts what followed the same tokens before, in this request, an earlier one or a corpus
// given at the start.
//
// Every suffix of the context that the trie knows is an anchor, longest first; what followed it
// hangs under the root, and equal continuations merge. Two ways to grow a tree from an anchor:
//   BFS   level by level, most recent children first; a long match is trusted, so it gets a narrow
//         and deep tree, a short one a wide and shallow tree;
//   PROB  best first by the product of shares, a child's share being its frequency over the sum of
//         the ten most frequent ones.
// Only emitted tokens are learnt. Lookups that copy one earlier occurrence are settings of this:
// for example the last occurrence of the current 12 tokens, drafting 48, is max_trie_depth 60,
// min_match = max_match = 12, breadths 1 and a budget of 49 nodes.
#ifndef TALON_SPEC_DRAFTERS_NGRAM_DRAFTER_H_
#define TALON_SPEC_DRAFTERS_NGRAM_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spec/drafter.h"
#include "spec/drafters/ngram_trie.h"

namespace talon {

struct NgramOptions {
  enum class Growth { kBfs, kProb };

  Growth growth = Growth::kBfs;
  int max_trie_depth = 18;
  size_t capacity = 10'000'000;  // trie nodes, about 50 bytes each when used
  int min_match = 1;             // tokens of context that must match
  int max_match = 0;             // 0 = max_trie_depth - 1, the most
  int min_breadth = 1;           // BFS, at the longest match
  int max_breadth = 10;          // BFS, at the shortest
  int min_frequency = 1;         // continuations seen less often are not drafted
  float min_share = 0;           // nor those with a lower share among their siblings

  Status Validate() const;
  int LongestMatch() const { return max_match > 0 ? max_match : max_trie_depth - 1; }
  // Children drafted at a node `level` below an anchor of `match_length` tokens (BFS).
  int Breadth(int match_length, int level) const;
};

class NgramDrafter : public Drafter {
 public:
  // REQUIRES: options.Validate() is OK; `corpus` holds tokens of the vocabulary. The documents of
  // the corpus count as text that was seen before.
  explicit NgramDrafter(const NgramOptions& options = {},
                        std::span<const std::vector<int32_t>> corpus = {});

  std::string_view name() const override { return "NGRAM"; }
  bool IsLookup() const override { return true; }
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override;
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override;
  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override;
  void Rewind(SequenceId sequence, int length) override;
  void End(SequenceId sequence) override;

  const NgramTrie& trie() const { return trie_; }

 private:
  struct Continuation {
    NgramTrie::NodeId node = NgramTrie::kNone;
    int frequency = 0;
    float share = 0;
  };
  class Growing;

  TokenTree Draft(const DraftRequest& request) const;
  void GrowBfs(NgramTrie::NodeId anchor, int match_length, Growing* growing) const;
  void GrowProb(NgramTrie::NodeId anchor, Growing* growing) const;
  std::vector<Continuation> Continuations(NgramTrie::NodeId node) const;

  NgramOptions options_;
  NgramTrie trie_;
  std::unordered_map<SequenceId, std::vector<int32_t>> sequences_;  // their tokens so far
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_NGRAM_DRAFTER_H_
