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
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "compute/backend.h"
#include "grammar/cursor.h"
#include "spec/step_prices.h"
#include "spec/token_tree.h"

namespace talon {

struct DraftBudget {
  int max_nodes = 1;  // T, root included; 1 asks for nothing
  int max_depth = 0;  // D
  int top_k = 1;      // children per expansion, where a drafter branches by rank
  // A drafter stops where another level and its rows cost more than the tokens it would win.
  StepPrices prices;
  // Only sources that cost next to nothing are asked (Drafter::IsLookup).
  bool lookups_only = false;
};

struct DraftRequest {
  SequenceId sequence = 0;
  std::span<const int32_t> tokens;  // all tokens so far, the root last: [C + 1]
  DraftBudget budget;
  // For drafters that draw at random (rejection acceptance): the request's own temperature and
  // seed.
  float temperature = 0;
  uint64_t seed = 0;
  // What the text must match and where it stands after `tokens`; null: nothing.
  const GrammarCursor* grammar = nullptr;
  Matcher::StateId grammar_state = Matcher::kDead;
  // Bit i: source_names()[i] may propose. A drafter with one source need not look.
  uint32_t sources = kAllSources;
  static constexpr uint32_t kAllSources = ~uint32_t{0};
};

// Rows of the target that a pass has committed: positions [first, first + rows.size()).
struct CommittedRows {
  SequenceId sequence = 0;
  std::span<const int32_t> tokens;  // the sequence so far; at least one more than the rows
  int first = 0;
  std::vector<int32_t> rows;  // rows of the pass's features, one for each position
};

// Where a pass has a draft tree whose nodes the host does not know yet.
struct OutlineRows {
  size_t request = 0;  // as in BeginTrees
  int root_row = 0;    // the root's row in the pass; the drafts' rows follow it
  int nodes = 0;       // root included
  int above = 0;       // nodes of the sequence above the root
  int position = 0;    // the root's position
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;  // registry name, e.g. "NGRAM"
  // The names of the drafters that it is made of.
  virtual std::vector<std::string_view> source_names() const { return {name()}; }

  // Whether its proposals cost next to nothing.
  virtual bool IsLookup() const { return false; }
  // Whether it has such sources beside others.
  virtual bool HasLookups() const { return false; }

  // The target's layers whose input the drafter wants (Decoder::SetCaptureLayers).
  virtual std::vector<int> capture_layers() const { return {}; }

  // A new sequence with its prompt, before the target computes it. On failure the engine runs it
  // without this drafter.
  virtual Status Begin(SequenceId sequence, std::span<const int32_t> prompt) = 0;

  // After Begin: the target found the first `computed` rows in its prefix index and will not
  // compute them; `tokens` are the sequence's, one more than these at least.
  virtual void Recall(SequenceId sequence, std::span<const int32_t> tokens, int computed) {
    (void)sequence, (void)tokens, (void)computed;
  }

  // Grows trees[i], given as [root], within requests[i].budget. Trees keep the order rules of
  // token_tree.h and carry `probs`.
  virtual void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) = 0;

  // Whether a device grows trees ahead of the host here: then BeginTrees may be called for Propose.
  virtual bool GrowsAhead() const { return false; }
  // The same as Propose without waiting for the device. A tree that grows there is an outline: as
  // many nodes as it can have, at most `most_nodes`, and each as deep as it can be. PlaceTrees
  // writes its drafts into the loaded pass that verifies them; FinishTrees, after that pass was
  // waited for, tells the host what they were. Returns which trees are outlines: [requests].
  virtual std::vector<bool> BeginTrees(std::span<const DraftRequest> requests, int most_nodes,
                                       std::span<TokenTree> trees) {
    (void)most_nodes, (void)trees;
    return std::vector<bool>(requests.size());
  }
  virtual void PlaceTrees(std::span<const OutlineRows> outlines, Pass* pass) {
    (void)outlines, (void)pass;
  }
  // trees: [requests] of BeginTrees, of which outlines are replaced.
  virtual void FinishTrees(std::span<TokenTree> trees) { (void)trees; }

  // What the target has computed and kept in a pass, prompts included, with the captured features;
  // rows from `first` on replace those known before. `features` is valid during the call only.
  virtual void Extend(std::span<const CommittedRows> batch, MatrixView features) {
    (void)batch, (void)features;
  }

  // Tokens that were emitted in a step, in order, the bonus last: accepted, hence final.
  virtual void Observe(SequenceId sequence, std::span<const int32_t> emitted) = 0;

  // The device has begun a pass: time for what Observe has left for later.
  virtual void Learn() {}

  // The sequence now has only its first `length` tokens.
  virtual void Rewind(SequenceId sequence, int length) = 0;

  // The sequence is gone. What was learnt for other requests may stay.
  virtual void End(SequenceId sequence) = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTER_H_
