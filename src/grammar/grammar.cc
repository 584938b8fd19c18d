#include "grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "grammar/token_trie.h"

namespace talon {

int Grammar::AddRule(std::string name) {
  rules_.push_back({.name = std::move(name)});
  return static_cast<int>(rules_.size()) - 1;
}

Status Grammar::Finish(int start) {
  start_ = start;
  (void)Utf8Of(TokenTrie::PlainCharacters(), &exprs_);  // masks by slices need its bytes' classes
  exprs_.Freeze();  // first: searches for strings are shorter with classes of bytes
  TALON_RETURN_IF_ERROR(RemoveUnproductive());
  if (rules_[start].alternatives.empty()) {
    return InvalidArgument("no finite text can match '{}'", rules_[start].name);
  }
  return CheckLeftRecursion();
}

Status Grammar::RemoveUnproductive() {
  for (const Rule& rule : rules_) {
    for (const Alternative& one : rule.alternatives) {
      for (const Symbol& symbol : one) {
        if (symbol.kind == Symbol::Kind::kRule) continue;
        if (exprs_.IsEmpty(symbol.id) || exprs_.HasMatch(symbol.id)) continue;
        return InvalidArgument("'{}' is too complex: no text that matches was found", rule.name);
      }
    }
  }
  std::vector<bool> productive(rules_.size(), false);
  const auto is_productive = [&](const Symbol& symbol) {
    return symbol.kind == Symbol::Kind::kRule ? productive[symbol.id] : !exprs_.IsEmpty(symbol.id);
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = rules_.size(); i-- > 0;) {  // rules mostly use later ones
      if (productive[i]) continue;
      productive[i] = std::ranges::any_of(rules_[i].alternatives, [&](const Alternative& one) {
        return std::ranges::all_of(one, is_productive);
      });
      changed |= productive[i];
    }
  }
  for (Rule& rule : rules_) {
    std::erase_if(rule.alternatives,
                  [&](const Alternative& one) { return !std::ranges::all_of(one, is_productive); });
  }
  return OkStatus();
}

// Depth-first over the rules that may begin a rule; one that is met again on the way is a cycle.
Status Grammar::CheckLeftRecursion() const {
  std::vector<bool> nullable(rules_.size(), false);
  const auto is_nullable = [&](const Symbol& symbol) {
    return symbol.kind == Symbol::Kind::kRule ? nullable[symbol.id] : exprs_.Nullable(symbol.id);
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = rules_.size(); i-- > 0;) {
      if (nullable[i]) continue;
      nullable[i] = std::ranges::any_of(rules_[i].alternatives, [&](const Alternative& one) {
        return std::ranges::all_of(one, is_nullable);
      });
      changed |= nullable[i];
    }
  }
  std::vector<std::vector<int>> begins(rules_.size());
  for (size_t i = 0; i < rules_.size(); ++i) {
    for (const Alternative& one : rules_[i].alternatives) {
      for (const Symbol& symbol : one) {
        if (symbol.kind == Symbol::Kind::kRule) begins[i].push_back(symbol.id);
        if (!is_nullable(symbol)) break;
      }
    }
  }
  enum class Mark { kNew, kOpen, kDone };
  std::vector<Mark> marks(rules_.size(), Mark::kNew);
  std::vector<std::pair<int, size_t>> stack;  // a rule and how many of its beginnings were visited
  for (size_t root = 0; root < rules_.size(); ++root) {
    if (marks[root] != Mark::kNew) continue;
    stack.push_back({static_cast<int>(root), 0});
    marks[root] = Mark::kOpen;
    while (!stack.empty()) {
      auto& [rule, next] = stack.back();
      if (next == begins[rule].size()) {
        marks[rule] = Mark::kDone;
        stack.pop_back();
        continue;
      }
      const int child = begins[rule][next++];
      if (marks[child] == Mark::kOpen) {
        return InvalidArgument("rule '{}' begins with itself (left recursion)", rules_[child].name);
      }
      if (marks[child] == Mark::kNew) {
        marks[child] = Mark::kOpen;
        stack.push_back({child, 0});
      }
    }
  }
  return OkStatus();
}

}  // namespace talon
