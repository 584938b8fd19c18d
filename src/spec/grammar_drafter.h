// GRAMMAR: what an answer's grammar leaves no choice about, as a chain.
//
// The bytes that must follow are certain; only how the target cuts them into tokens is a guess. It
// costs no pass, and proposes nothing for requests without a grammar.
#ifndef TALON_SPEC_GRAMMAR_DRAFTER_H_
#define TALON_SPEC_GRAMMAR_DRAFTER_H_

#include "spec/drafter.h"

namespace talon {

class GrammarDrafter : public Drafter {
 public:
  std::string_view name() const override { return "GRAMMAR"; }
  bool IsLookup() const override { return true; }
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override;

  // Nothing is kept: the request says where its grammar stands.
  Status Begin(SequenceId, std::span<const int32_t>) override { return OkStatus(); }
  void Observe(SequenceId, std::span<const int32_t>) override {}
  void Rewind(SequenceId, int) override {}
  void End(SequenceId) override {}
};

}  // namespace talon

#endif  // TALON_SPEC_GRAMMAR_DRAFTER_H_
