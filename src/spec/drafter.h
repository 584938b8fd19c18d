// The drafter: proposes a tree of tokens for each sequence of a batch.
//
// A drafter keeps its own state per sequence and follows the target through Begin, Observe, Rewind
// and End; it never touches the target's KV. It may propose nothing (the tree [root]). What it
// proposes cannot change the text, only the speed. Used by the engine's thread only.
#ifndef TALON_SPEC_DRAFTER_H_
#define TALON_SPEC_DRAFTER_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "spec/token_tree.h"

namespace talon {

struct DraftBudget {
  int max_nodes = 1;  // T, root included; 1 asks for nothing
  int max_depth = 0;  // D
  int top_k = 1;      // children per expansion, where a drafter branches by rank
};

struct DraftRequest {
  SequenceId sequence = 0;
  std::span<const int32_t> tokens;  // all tokens so far, the root last: [C + 1]
  DraftBudget budget;
  // For drafters that draw at random (rejection acceptance): the request's own temperature and
  // seed.
  float temperature = 0;
  uint64_t seed = 0;
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;  // registry name, e.g. "NGRAM"

  // A new sequence with its prompt. On failure the engine runs it without this drafter.
  virtual Status Begin(SequenceId sequence, std::span<const int32_t> prompt) = 0;

  // Grows trees[i], given as [root], within requests[i].budget. Trees keep the order rules of
  // token_tree.h and carry `probs`.
  virtual void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) = 0;

  // Tokens that were emitted in a step, in order, the bonus last: accepted, hence final.
  virtual void Observe(SequenceId sequence, std::span<const int32_t> emitted) = 0;

  // The sequence now has only its first `length` tokens.
  virtual void Rewind(SequenceId sequence, int length) = 0;

  // The sequence is gone. What was learnt for other requests may stay.
  virtual void End(SequenceId sequence) = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTER_H_
