#include "grammar/expr.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace talon {
namespace {

// States that a search meets before it gives up, and when all searches together have met many.
constexpr size_t kMostStatesSearched = 20000;
constexpr size_t kMostStatesInAll = 200'000;
constexpr size_t kFewStates = 100;
constexpr size_t kMostDigitStates = 16;
constexpr int64_t kMostNumbers = 1'000'000'000'000;
constexpr size_t kMostTextStates = 64;
constexpr int kMostRows = 65536;  // rows of 1 KiB
constexpr size_t kMostNodes = 2'000'000;
constexpr size_t kMostParts = 16'000'000;  // parts of all nodes

}  // namespace

size_t ExprPool::SetHash::operator()(const ByteSet& set) const {
  size_t hash = 0;
  for (const uint64_t word : set.words()) hash = MixHash(hash, word);
  return hash;
}

ExprPool::ExprPool() {
  nodes_.Intern({.kind = Kind::kNone}, {});
  nodes_.Intern({.kind = Kind::kEmpty, .nullable = true}, {});
}

ExprId ExprPool::Bytes(const ByteSet& set) {
  if (set.empty()) return kNone;
  const auto [at, is_new] = set_ids_.try_emplace(set, static_cast<int32_t>(sets_.size()));
  if (is_new) sets_.push_back(set);
  return nodes_.Intern({.kind = Kind::kBytes, .set = at->second}, {});
}

ExprId ExprPool::Literal(std::string_view text) {
  ExprId result = kEmpty;
  for (auto at = text.rbegin(); at != text.rend(); ++at) result = Concat(Byte(*at), result);
  return result;
}

// Kept right-associated, so that equal sequences are equal expressions. Without recursion: a text
// has as many parts as bytes.
ExprId ExprPool::Concat(ExprId first, ExprId second) {
  if (first == kNone || second == kNone) return kNone;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  std::vector<ExprId> before;
  for (; nodes_[first].kind == Kind::kConcat; first = nodes_.PartOf(first, 1)) {
    before.push_back(nodes_.PartOf(first, 0));
  }
  for (;; first = before.back(), before.pop_back()) {
    const bool nullable = Nullable(first) && Nullable(second);
    second = nodes_.Intern({.kind = Kind::kConcat, .nullable = nullable}, {first, second});
    if (before.empty()) return second;
  }
}

ExprId ExprPool::Sequence(std::span<const ExprId> parts) {
  ExprId result = kEmpty;
  for (size_t i = parts.size(); i > 0; --i) result = Concat(parts[i - 1], result);
  return result;
}

// Nested ones become one list, sorted and without repeats.
void ExprPool::Flatten(Kind kind, std::vector<ExprId>* parts) const {
  std::vector<ExprId> flat;
  for (const ExprId part : *parts) {
    if (nodes_[part].kind == kind) {
      flat.insert(flat.end(), nodes_.PartsOf(part).begin(), nodes_.PartsOf(part).end());
    } else {
      flat.push_back(part);
    }
  }
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  *parts = std::move(flat);
}

ExprId ExprPool::Or(std::vector<ExprId> parts) {
  std::erase(parts, kNone);
  Flatten(Kind::kOr, &parts);
  ByteSet merged;
  std::erase_if(parts, [&](ExprId part) {
    if (nodes_[part].kind != Kind::kBytes) return false;
    merged = merged | sets_[nodes_[part].set];
    return true;
  });
  if (!merged.empty()) {
    const ExprId bytes = Bytes(merged);
    parts.insert(std::ranges::lower_bound(parts, bytes), bytes);
  }
  const bool nullable = std::ranges::any_of(parts, [&](ExprId part) { return Nullable(part); });
  if (parts.size() > 1 && parts[0] == kEmpty && nullable) {
    const auto others =
        std::count_if(parts.begin() + 1, parts.end(), [&](ExprId part) { return Nullable(part); });
    if (others > 0) parts.erase(parts.begin());
  }
  if (parts.empty()) return kNone;
  if (parts.size() == 1) return parts[0];
  return nodes_.Intern({.kind = Kind::kOr, .nullable = nullable}, parts);
}

ExprId ExprPool::AnyOf(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return AnyOfSorted(texts, 0);
}

// The texts share their first `from` bytes, which are left out. Recursion ends where they part.
ExprId ExprPool::AnyOfSorted(std::span<const std::string> texts, size_t from) {
  if (texts.empty()) return kNone;
  const std::string_view first = texts.front();
  if (texts.size() == 1) return Literal(first.substr(from));
  const auto differ = std::ranges::mismatch(first.substr(from), texts.back().substr(from));
  const size_t fork = static_cast<size_t>(differ.in1 - first.begin());
  std::vector<ExprId> parts;
  if (first.size() == fork) {
    parts.push_back(kEmpty);
    texts = texts.subspan(1);
  }
  while (!texts.empty()) {
    size_t same = 1;
    while (same < texts.size() && texts[same][fork] == texts[0][fork]) ++same;
    parts.push_back(Concat(Byte(texts[0][fork]), AnyOfSorted(texts.first(same), fork + 1)));
    texts = texts.subspan(same);
  }
  return Concat(Literal(first.substr(from, fork - from)), Or(std::move(parts)));
}

ExprId ExprPool::And(std::vector<ExprId> parts) {
  if (std::ranges::find(parts, kNone) != parts.end() || parts.empty()) return kNone;
  Flatten(Kind::kAnd, &parts);
  if (parts.size() > 1) std::erase(parts, Not(kNone));
  if (parts.empty()) return Not(kNone);
  const bool nullable = std::ranges::all_of(parts, [&](ExprId part) { return Nullable(part); });
  if (parts[0] == kEmpty) return nullable ? kEmpty : kNone;
  if (parts.size() == 1) return parts[0];
  return nodes_.Intern({.kind = Kind::kAnd, .nullable = nullable, .may_be_empty = true}, parts);
}

ExprId ExprPool::Not(ExprId inner) {
  if (nodes_[inner].kind == Kind::kNot) return nodes_.PartOf(inner, 0);
  return nodes_.Intern({.kind = Kind::kNot, .nullable = !Nullable(inner), .may_be_empty = true},
                       {inner});
}

ExprId ExprPool::Repeat(ExprId inner, int min, int max) {
  if (max == 0 || inner == kEmpty) return kEmpty;
  if (inner == kNone) return min == 0 ? kEmpty : kNone;
  if (min == 1 && max == 1) return inner;
  if (min == 0 && max == 1) return Optional(inner);
  if (Nullable(inner)) min = 0;
  return nodes_.Intern({.kind = Kind::kRepeat, .nullable = min == 0, .min = min, .max = max},
                       {inner});
}

ExprId ExprPool::Multiple(int64_t divisor, int64_t remainder, bool started) {
  has_multiples_ = true;
  return nodes_.Intern({.kind = Kind::kMultiple,
                        .nullable = started && remainder == 0,
                        .min = divisor,
                        .max = remainder},
                       {});
}

ExprId ExprPool::Derive(ExprId expr, uint8_t byte) {
  if (nodes_[expr].row < 0) {
    if (used_rows_ >= kMostRows || nodes_.size() >= kMostNodes) {
      exhausted_ = true;
      return kNone;
    }
    if (used_rows_ % kBlockRows == 0) rows_.emplace_back(kBlockRows * classes_.size(), -1);
    nodes_[expr].row = used_rows_++;
  }
  const int byte_class = classes_.Of(byte);
  if (const ExprId known = Derivative(expr, byte_class); known >= 0) return known;
  if (nodes_.num_parts() >= kMostParts) {
    exhausted_ = true;
    return kNone;
  }
  const ExprId result = Compute(expr, byte);
  Derivative(expr, byte_class) = result;
  return result;
}

// Derivatives only unite sets that are there, so the classes hold for them too.
void ExprPool::Freeze() {
  std::vector<ByteSet> sets = sets_;
  if (has_multiples_) {
    for (char digit = '0'; digit <= '9'; ++digit) sets.push_back(ByteSet::Of(digit));
  }
  classes_ = ByteClasses(sets);
  nodes_.ClearRows();
  rows_.clear();
  used_rows_ = 0;
}

// Nodes and parts are copied where the computation makes new ones, which may move them.
ExprId ExprPool::Compute(ExprId expr, uint8_t byte) {
  const ExprNode node = nodes_[expr];
  switch (node.kind) {
    case Kind::kNone:
    case Kind::kEmpty:
      return kNone;
    case Kind::kBytes:
      return sets_[node.set].Has(byte) ? kEmpty : kNone;
    case Kind::kConcat:
      return DeriveConcat(nodes_.PartOf(expr, 0), nodes_.PartOf(expr, 1), byte);
    case Kind::kRepeat:
      return DeriveRepeat(node, nodes_.PartOf(expr, 0), byte);
    case Kind::kNot:
      return Not(Derive(nodes_.PartOf(expr, 0), byte));
    case Kind::kMultiple:
      if (byte < '0' || byte > '9') return kNone;
      return Multiple(node.min, (node.max * 10 + (byte - '0')) % node.min, /*started=*/true);
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<ExprId> parts(nodes_.PartsOf(expr).begin(), nodes_.PartsOf(expr).end());
      for (ExprId& part : parts) part = Derive(part, byte);
      return node.kind == Kind::kOr ? Or(std::move(parts)) : And(std::move(parts));
    }
  }
  return kNone;
}

// A loop over the parts that may be left out, of which a long sequence can have many.
ExprId ExprPool::DeriveConcat(ExprId first, ExprId second, uint8_t byte) {
  const ExprId within = Concat(Derive(first, byte), second);
  if (!Nullable(first)) return within;
  std::vector<ExprId> parts = {within};
  while (Nullable(first) && nodes_[second].kind == Kind::kConcat) {
    first = nodes_.PartOf(second, 0);
    second = nodes_.PartOf(second, 1);
    parts.push_back(Concat(Derive(first, byte), second));
  }
  if (Nullable(first)) parts.push_back(Derive(second, byte));
  return Or(std::move(parts));
}

ExprId ExprPool::DeriveRepeat(const ExprNode& node, ExprId inner, uint8_t byte) {
  const ExprId first = Derive(inner, byte);
  if (first == kNone) return kNone;
  const int min = static_cast<int>(std::max<int64_t>(node.min - 1, 0));
  const int max = node.max == kNoLimit ? kNoLimit : static_cast<int>(node.max - 1);
  return Concat(first, Repeat(inner, min, max));
}

// A breadth-first and a depth-first search in turns: short matches are found by the one, those of
// many characters by the other.
ExprPool::Known ExprPool::Search(ExprId expr) {
  if (HasString(expr)) return Known::kNo;
  if (expr == kNone) return Known::kYes;
  if (nodes_[expr].is_empty != Known::kNothing) return nodes_[expr].is_empty;
  struct Met {
    ExprId expr;
    int before;  // index of the one that leads here, -1: none
  };
  std::vector<Met> met = {{expr, -1}};
  std::deque<int> open = {0};
  const size_t most = states_searched_ < kMostStatesInAll ? kMostStatesSearched : kFewStates;
  ++searches_;
  int found = HasSomeMultiple(expr) ? 0 : -1;
  for (bool deep = false; found < 0 && !open.empty() && met.size() < most; deep = !deep) {
    const int at = deep ? open.back() : open.front();
    deep ? open.pop_back() : open.pop_front();
    for (int c = 0; c < classes_.size() && found < 0; ++c) {
      const ExprId next = Derive(met[at].expr, classes_.bytes()[c][0]);
      if (next == kNone || nodes_[next].is_empty == Known::kYes) continue;
      met_in_.resize(nodes_.size(), 0);
      if (std::exchange(met_in_[next], searches_) == searches_) continue;
      const auto index = static_cast<int>(met.size());
      met.push_back({next, at});
      open.push_back(index);
      if (HasString(next) || HasSomeMultiple(next)) found = index;
    }
  }
  states_searched_ += met.size();
  for (int i = found; i >= 0; i = met[i].before) nodes_[met[i].expr].is_empty = Known::kNo;
  if (found >= 0) return Known::kNo;
  if (open.empty() && !exhausted_) {
    for (const Met& one : met) nodes_[one.expr].is_empty = Known::kYes;
  } else {
    nodes_[expr].is_empty = Known::kUndecided;
  }
  return nodes_[expr].is_empty;
}

// Whether an intersection has multiples of a number because all else in it lets any digits follow,
// as many as the divisor has: some of these make a multiple. False may also mean that it was not
// found out.
bool ExprPool::HasSomeMultiple(ExprId expr) {
  if (!has_multiples_ || nodes_[expr].kind != Kind::kAnd) return false;
  int64_t divisor = 0;
  std::vector<ExprId> others;
  for (const ExprId part : nodes_.PartsOf(expr)) {
    const bool is_concat = nodes_[part].kind == Kind::kConcat;
    const ExprId first = is_concat ? nodes_.PartOf(part, 0) : part;
    const bool ends = !is_concat || Nullable(nodes_.PartOf(part, 1));
    if (divisor == 0 && nodes_[first].kind == Kind::kMultiple && ends) {
      divisor = nodes_[first].min;
    } else {
      others.push_back(part);
    }
  }
  if (divisor == 0) return false;
  std::vector<ExprId> after = {others.empty() ? Not(kNone) : And(std::move(others))};
  int64_t numbers = 1;  // how many the digits so far can make
  while (numbers < divisor || !std::ranges::all_of(after, [&](ExprId e) { return Nullable(e); })) {
    std::vector<ExprId> longer;
    for (const ExprId one : after) {
      for (char digit = '0'; digit <= '9'; ++digit) {
        longer.push_back(Derive(one, static_cast<uint8_t>(digit)));
      }
    }
    std::ranges::sort(longer);
    longer.erase(std::unique(longer.begin(), longer.end()), longer.end());
    if (longer[0] == kNone || longer.size() > kMostDigitStates || numbers > kMostNumbers) {
      return false;
    }
    after = std::move(longer);
    numbers *= 10;
  }
  return true;
}

// An intersection without the parts that only take finitely many strings away.
ExprId ExprPool::WithoutFiniteExceptions(ExprId expr) {
  if (nodes_[expr].kind != Kind::kAnd) return expr;
  std::vector<ExprId> parts(nodes_.PartsOf(expr).begin(), nodes_.PartsOf(expr).end());
  std::erase_if(parts, [&](ExprId part) {
    return nodes_[part].kind == Kind::kNot && nodes_[nodes_.PartOf(part, 0)].finite;
  });
  return parts.empty() ? Not(kNone) : And(std::move(parts));
}

// A closed set of pairs: an expression, and what is left of a character. No byte of a character
// leads out of it, so any text may be followed by longer ones, and finitely many exceptions leave
// some of them.
bool ExprPool::AllowsAllText(ExprId expr, ExprId character) {
  expr = WithoutFiniteExceptions(expr);
  if (nodes_[expr].finite) return false;
  if (nodes_[expr].kind == Kind::kConcat) {  // the first part alone may do
    const ExprId first = nodes_.PartOf(expr, 0);
    const ExprId second = nodes_.PartOf(expr, 1);
    if (HasMatch(second) && AllowsAllText(first, character)) return true;
  }
  if (const Known known = nodes_[expr].allows_all_text; known != Known::kNothing) {
    return known == Known::kYes;
  }
  std::vector<std::pair<ExprId, ExprId>> seen = {{expr, character}};
  bool all = true;
  for (size_t i = 0; i < seen.size() && all; ++i) {
    const auto [from, rest] = seen[i];
    for (int c = 0; c < classes_.size() && all; ++c) {
      const ExprId left = Derive(rest, classes_.bytes()[c][0]);
      if (left == kNone) continue;
      const ExprId next = WithoutFiniteExceptions(Derive(from, classes_.bytes()[c][0]));
      all = HasMatch(next) && seen.size() < kMostTextStates;
      const std::pair pair{next, left == kEmpty ? character : left};
      if (std::ranges::find(seen, pair) == seen.end()) seen.push_back(pair);
    }
  }
  for (const auto& [state, rest] : seen) {
    if (all && rest == character) nodes_[state].allows_all_text = Known::kYes;
  }
  nodes_[expr].allows_all_text = all ? Known::kYes : Known::kNo;
  return all;
}

bool ExprPool::Matches(ExprId expr, std::string_view text) {
  for (const char byte : text) expr = Derive(expr, static_cast<uint8_t>(byte));
  return Nullable(expr);
}

}  // namespace talon
