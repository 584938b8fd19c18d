// Follows a grammar through text, byte by byte: a deterministic automaton that grows as it is used.
//
// A configuration is what is left of the terminal under way and a continuation, the symbols that
// must follow it: a stack. A state is the set of configurations that the text so far allows. Stacks
// and states are hash-consed, so a step that was taken before costs one look-up, and a state can be
// kept by its number. Memory is bounded: exhausted() after too many states, and then no byte is
// allowed that was not known before.
//
// States are alive: from each, some text completes the grammar, unless a search for it gave up. One
// thread at a time.
#ifndef TALON_GRAMMAR_AUTOMATON_H_
#define TALON_GRAMMAR_AUTOMATON_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace talon {

class Automaton {
 public:
  using StateId = int32_t;
  static constexpr StateId kDead = 0;

  // The grammar must outlive it and be finished.
  explicit Automaton(Grammar* grammar);

  StateId start() const { return start_; }
  StateId Next(StateId state, uint8_t byte) {
    const std::vector<StateId>& row = rows_[state];
    const StateId known = row.empty() ? -1 : row[exprs_.classes().Of(byte)];
    return known >= 0 ? known : NextUnknown(state, byte);
  }
  StateId Next(StateId state, std::string_view bytes) {
    for (size_t i = 0; i < bytes.size() && state != kDead; ++i) {
      state = Next(state, static_cast<uint8_t>(bytes[i]));
    }
    return state;
  }
  // Whether the text may end here.
  bool Accepts(StateId state) const { return states_[state].accepts; }
  // The only byte that may follow, if the text may not end.
  std::optional<uint8_t> OnlyByte(StateId state);
  // A length such that every text of as many characters or fewer, each matched by `character` (the
  // same in all calls), may follow: kAnyLength, or what a search with a limit has found.
  static constexpr int kAnyLength = std::numeric_limits<int>::max();
  int FreeLength(StateId state, ExprId character);

  bool exhausted() const { return exhausted_ || exprs_.exhausted(); }
  size_t size() const { return states_.size(); }
  ExprPool& exprs() { return exprs_; }

 private:
  using Continuation = int32_t;  // 0: nothing more
  struct Link {
    Symbol head;
    Continuation tail = 0;
    bool operator==(const Link&) const = default;
  };
  struct Configuration {
    ExprId rest = 0;  // rest of the terminal under way
    Continuation after = 0;
    auto operator<=>(const Configuration&) const = default;
  };
  struct State {
    std::vector<Configuration> configurations;  // sorted
    bool accepts = false;
    bool operator==(const State&) const = default;
  };
  struct LinkHash {
    size_t operator()(const Link& link) const;
  };
  struct StateHash {
    size_t operator()(const State& state) const;
  };
  // What may come when a terminal has ended: the beginnings of what follows.
  struct Opening {
    std::vector<Configuration> configurations;
    bool accepts = false;
  };

  Continuation Push(const Symbol& head, Continuation tail);
  const Opening& Open(Continuation continuation);
  void OpenInto(Continuation continuation, Opening* opening, int depth);
  StateId Intern(State state);
  StateId NextUnknown(StateId state, uint8_t byte);
  StateId Compute(StateId state, uint8_t byte);
  int SearchFreeLength(StateId state, ExprId character);

  Grammar& grammar_;
  ExprPool& exprs_;
  std::vector<Link> links_;
  std::unordered_map<Link, Continuation, LinkHash> link_ids_;
  std::unordered_map<Continuation, Opening> openings_;
  std::vector<State> states_;
  std::vector<std::vector<StateId>> rows_;  // [size][classes], -1: not computed
  std::unordered_map<State, StateId, StateHash> state_ids_;
  std::unordered_map<StateId, int> free_lengths_;  // at least; of states that searches went through
  StateId start_ = kDead;
  bool exhausted_ = false;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_AUTOMATON_H_
