// Where an answer stands in its grammar, for any tokens that it may have.
//
// The tokens belong to the sequence: each call is given the answer so far and a path below it. The
// states along the last answer are remembered, so that a step costs its new tokens only, and tokens
// that were taken back (provisional ones) need no word. Copyable: a copy is a fork with the same
// matcher. One thread at a time, const members too.
#ifndef TALON_GRAMMAR_CURSOR_H_
#define TALON_GRAMMAR_CURSOR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "grammar/matcher.h"

namespace talon {

class GrammarCursor {
 public:
  // Null: everything is allowed.
  explicit GrammarCursor(std::shared_ptr<Matcher> matcher) : matcher_(std::move(matcher)) {}

  bool active() const { return matcher_ != nullptr; }

  // The state after `answer` and then `path`; kDead if they do not match. REQUIRES: active().
  Matcher::StateId After(std::span<const int32_t> answer, std::span<const int32_t> path) const;
  // The state after one more token.
  Matcher::StateId Next(Matcher::StateId state, int32_t token) const {
    return matcher_->Next(state, token);
  }
  // The states after the nodes of a tree, parents before children; node 0 is at `root`.
  std::vector<Matcher::StateId> OfNodes(Matcher::StateId root, std::span<const int32_t> tokens,
                                        std::span<const int32_t> parents) const;
  bool Accepts(Matcher::StateId state) const { return matcher_->Accepts(state); }
  std::vector<Matcher::ForcedToken> ForcedTokens(Matcher::StateId state, int most) const {
    return matcher_->ForcedTokens(state, most);
  }
  bool IsForced(Matcher::StateId state, int32_t token) const {
    return matcher_->IsForced(state, token);
  }
  bool exhausted() const { return matcher_->exhausted(); }

  // Sets the bits of the tokens that may follow and clears those of all others. The `ends` may
  // follow where the text may end.
  void Allowed(Matcher::StateId state, std::span<const int32_t> ends,
               std::span<uint64_t> bits) const;

 private:
  std::shared_ptr<Matcher> matcher_;
  // Tokens of the last answer and the states after them, for as many as it had.
  mutable std::vector<int32_t> tokens_;
  mutable std::vector<Matcher::StateId> states_;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_CURSOR_H_
