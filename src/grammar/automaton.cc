#include "grammar/automaton.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace talon {
namespace {

constexpr size_t kMostStates = 200'000;
constexpr size_t kMostLinks = 1'000'000;
constexpr size_t kMostConfigurations = 4096;  // configurations of one state
constexpr int kDeepestOpening = 2000;
constexpr size_t kMostPairsSearched = 512;
constexpr int kEnoughLength = 24;  // longer tokens are few
constexpr int kLongestSearched = 256;

// Clang 14, which builds the fuzzers, cannot compile std::ranges::unique.
template <typename T>
void SortAndRemoveRepeats(std::vector<T>* all) {
  std::ranges::sort(*all);
  all->erase(std::unique(all->begin(), all->end()), all->end());
}

}  // namespace

size_t Automaton::LinkHash::operator()(const Link& link) const {
  return MixHash(MixHash(static_cast<size_t>(link.head.kind), static_cast<size_t>(link.head.id)),
                 static_cast<size_t>(link.tail));
}

size_t Automaton::StateHash::operator()(const State& state) const {
  size_t hash = state.accepts ? 1 : 0;
  for (const Configuration& one : state.configurations) {
    hash = MixHash(MixHash(hash, static_cast<size_t>(one.rest)), static_cast<size_t>(one.after));
  }
  return hash;
}

Automaton::Automaton(Grammar* grammar) : grammar_(*grammar), exprs_(grammar->exprs()) {
  links_.emplace_back();
  Intern({});  // kDead
  const Opening opening = Open(Push(RuleSymbol(grammar_.start()), 0));
  start_ = Intern({.configurations = opening.configurations, .accepts = opening.accepts});
}

Automaton::Continuation Automaton::Push(const Symbol& head, Continuation tail) {
  const auto [at, is_new] =
      link_ids_.try_emplace(Link{head, tail}, static_cast<Continuation>(links_.size()));
  if (is_new) links_.push_back({head, tail});
  return at->second;
}

const Automaton::Opening& Automaton::Open(Continuation continuation) {
  const auto [at, is_new] = openings_.try_emplace(continuation);
  if (!is_new) return at->second;
  Opening opening;
  OpenInto(continuation, &opening, 0);
  SortAndRemoveRepeats(&opening.configurations);
  return openings_[continuation] = std::move(opening);
}

// Without left recursion this ends; the limit is for stacks of rules that may all be empty.
void Automaton::OpenInto(Continuation continuation, Opening* opening, int depth) {
  if (continuation == 0) {
    opening->accepts = true;
    return;
  }
  if (depth > kDeepestOpening || links_.size() > kMostLinks ||
      opening->configurations.size() > kMostConfigurations) {
    exhausted_ = true;
    return;
  }
  const Link link = links_[continuation];
  if (link.head.kind == Symbol::Kind::kTerminal) {
    if (link.head.id != ExprPool::kEmpty) {
      opening->configurations.push_back({link.head.id, link.tail});
    }
    if (exprs_.Nullable(link.head.id)) OpenInto(link.tail, opening, depth + 1);
    return;
  }
  for (const Grammar::Alternative& one : grammar_.rule(link.head.id).alternatives) {
    Continuation next = link.tail;
    for (size_t i = one.size(); i > 0; --i) next = Push(one[i - 1], next);
    OpenInto(next, opening, depth + 1);
  }
}

Automaton::StateId Automaton::Intern(State state) {
  const auto [at, is_new] = state_ids_.try_emplace(state, static_cast<StateId>(states_.size()));
  if (is_new) {
    states_.push_back(std::move(state));
    rows_.emplace_back();
  }
  return at->second;
}

Automaton::StateId Automaton::NextUnknown(StateId state, uint8_t byte) {
  if (state == kDead) return kDead;
  if (rows_[state].empty()) rows_[state].assign(exprs_.classes().size(), -1);
  const int byte_class = exprs_.classes().Of(byte);
  if (states_.size() >= kMostStates) {
    exhausted_ = true;
    return kDead;
  }
  const StateId next = Compute(state, byte);
  rows_[state][byte_class] = next;
  return next;
}

Automaton::StateId Automaton::Compute(StateId state, uint8_t byte) {
  State next;
  for (const Configuration& one : states_[state].configurations) {
    const ExprId rest = exprs_.Derive(one.rest, byte);
    if (exprs_.IsEmpty(rest)) continue;
    if (rest != ExprPool::kEmpty) next.configurations.push_back({rest, one.after});
    if (!exprs_.Nullable(rest)) continue;
    const Opening& opening = Open(one.after);
    next.accepts |= opening.accepts;
    next.configurations.insert(next.configurations.end(), opening.configurations.begin(),
                               opening.configurations.end());
  }
  if (next.configurations.size() > kMostConfigurations) exhausted_ = true;
  if (next.configurations.empty() && !next.accepts) return kDead;
  SortAndRemoveRepeats(&next.configurations);
  return Intern(std::move(next));
}

std::optional<uint8_t> Automaton::OnlyByte(StateId state) {
  if (state == kDead || Accepts(state)) return std::nullopt;
  std::optional<uint8_t> only;
  for (const std::vector<uint8_t>& bytes : exprs_.classes().bytes()) {
    if (Next(state, bytes[0]) == kDead) continue;
    if (only || bytes.size() > 1) return std::nullopt;
    only = bytes[0];
  }
  return only;
}

int Automaton::FreeLength(StateId state, ExprId character) {
  for (const Configuration& one : states_[state].configurations) {
    if (exprs_.AllowsAllText(one.rest, character)) return kAnyLength;
  }
  const auto known = free_lengths_.find(state);
  if (known != free_lengths_.end() && known->second >= kEnoughLength) return known->second;
  return SearchFreeLength(state, character);
}

// Level by level: after each, texts of one character more are allowed. States on the way have what
// is left of the length.
int Automaton::SearchFreeLength(StateId state, ExprId character) {
  std::set<std::pair<StateId, ExprId>> seen;
  std::vector<std::vector<StateId>> levels = {{state}};  // at the end of a character
  int length = 0;
  bool free = true;
  while (free && !levels.back().empty() && length < kLongestSearched) {
    std::vector<std::pair<StateId, ExprId>> open;
    for (const StateId one : levels.back()) {
      if (seen.insert({one, character}).second) open.push_back({one, character});
    }
    levels.emplace_back();
    while (!open.empty() && free) {
      const auto [from, rest] = open.back();
      open.pop_back();
      for (const std::vector<uint8_t>& bytes : exprs_.classes().bytes()) {
        const ExprId left = exprs_.Derive(rest, bytes[0]);
        if (left == ExprPool::kNone) continue;
        const StateId next = Next(from, bytes[0]);
        free = next != kDead && seen.size() <= kMostPairsSearched;
        if (!free) break;
        if (left == ExprPool::kEmpty) {
          levels.back().push_back(next);
        } else if (seen.insert({next, left}).second) {
          open.push_back({next, left});
        }
      }
    }
    if (free) ++length;
    SortAndRemoveRepeats(&levels.back());
  }
  if (free && levels.back().empty()) length = kAnyLength;
  for (int i = 0; i < static_cast<int>(levels.size()); ++i) {
    for (const StateId one : levels[i]) {
      int& known = free_lengths_[one];
      known = std::max(known, length == kAnyLength ? kAnyLength : length - i);
    }
  }
  return free_lengths_[state];
}

}  // namespace talon
