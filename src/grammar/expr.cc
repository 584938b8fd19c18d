#include "grammar/expr.h"

#include <algorithm>
#include <utility>

namespace talon {
namespace {

constexpr size_t kMostStatesSearched = 20000;
constexpr size_t kMostTextStates = 64;
constexpr int kMostRows = 65536;  // rows of 1 KiB
constexpr size_t kMostNodes = 2'000'000;

}  // namespace

size_t ExprPool::NodeHash::operator()(const Node& node) const {
  size_t hash = static_cast<size_t>(node.kind) * 2 + (node.nullable ? 1 : 0);
  hash = MixHash(hash, static_cast<size_t>(node.set));
  for (const ExprId part : node.parts) hash = MixHash(hash, static_cast<size_t>(part));
  return MixHash(MixHash(hash, static_cast<size_t>(node.min)), static_cast<size_t>(node.max));
}

size_t ExprPool::SetHash::operator()(const ByteSet& set) const {
  size_t hash = 0;
  for (const uint64_t word : set.words()) hash = MixHash(hash, word);
  return hash;
}

ExprPool::ExprPool() {
  for (int byte = 0; byte < 256; ++byte) {
    class_of_[byte] = static_cast<uint8_t>(byte);
    class_bytes_.push_back({static_cast<uint8_t>(byte)});
  }
  Intern({.kind = Kind::kNone});
  Intern({.kind = Kind::kEmpty, .nullable = true});
}

ExprId ExprPool::Intern(Node node) {
  for (const ExprId part : node.parts) node.may_be_empty |= nodes_[part].may_be_empty;
  node.finite = IsFinite(node);
  const auto [at, is_new] = ids_.try_emplace(node, static_cast<ExprId>(nodes_.size()));
  if (is_new) {
    nodes_.push_back(std::move(node));
    rows_.emplace_back();
  }
  return at->second;
}

bool ExprPool::IsFinite(const Node& node) const {
  const auto finite = [&](ExprId part) { return nodes_[part].finite; };
  switch (node.kind) {
    case Kind::kNone:
    case Kind::kEmpty:
    case Kind::kBytes:
      return true;
    case Kind::kConcat:
    case Kind::kOr:
      return std::ranges::all_of(node.parts, finite);
    case Kind::kAnd:
      return std::ranges::any_of(node.parts, finite);
    case Kind::kRepeat:
      return node.max != kNoLimit && finite(node.parts[0]);
    case Kind::kNot:
    case Kind::kMultiple:
      return false;
  }
  return false;
}

ExprId ExprPool::Bytes(const ByteSet& set) {
  if (set.empty()) return kNone;
  const auto [at, is_new] = set_ids_.try_emplace(set, static_cast<int32_t>(sets_.size()));
  if (is_new) sets_.push_back(set);
  return Intern({.kind = Kind::kBytes, .set = at->second});
}

ExprId ExprPool::Literal(std::string_view text) {
  ExprId result = kEmpty;
  for (auto at = text.rbegin(); at != text.rend(); ++at) result = Concat(Byte(*at), result);
  return result;
}

// Kept right-associated, so that equal sequences are equal expressions.
ExprId ExprPool::Concat(ExprId first, ExprId second) {
  if (first == kNone || second == kNone) return kNone;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  if (nodes_[first].kind == Kind::kConcat) {
    const std::vector<ExprId> parts = nodes_[first].parts;
    return Concat(parts[0], Concat(parts[1], second));
  }
  const bool nullable = Nullable(first) && Nullable(second);
  return Intern({.kind = Kind::kConcat, .nullable = nullable, .parts = {first, second}});
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
      flat.insert(flat.end(), nodes_[part].parts.begin(), nodes_[part].parts.end());
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
  return Intern({.kind = Kind::kOr, .nullable = nullable, .parts = std::move(parts)});
}

ExprId ExprPool::AnyOf(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return AnyOfSorted(texts, 0);
}

// The texts share their first `from` bytes, which are left out.
ExprId ExprPool::AnyOfSorted(std::span<const std::string> texts, size_t from) {
  if (texts.empty()) return kNone;
  if (texts.size() == 1) return Literal(std::string_view(texts[0]).substr(from));
  std::vector<ExprId> parts;
  if (texts[0].size() == from) {
    parts.push_back(kEmpty);
    texts = texts.subspan(1);
  }
  while (!texts.empty()) {
    size_t same = 1;
    while (same < texts.size() && texts[same][from] == texts[0][from]) ++same;
    parts.push_back(Concat(Byte(texts[0][from]), AnyOfSorted(texts.first(same), from + 1)));
    texts = texts.subspan(same);
  }
  return Or(std::move(parts));
}

ExprId ExprPool::And(std::vector<ExprId> parts) {
  if (std::ranges::find(parts, kNone) != parts.end() || parts.empty()) return kNone;
  Flatten(Kind::kAnd, &parts);
  if (parts.size() > 1) std::erase(parts, Not(kNone));
  if (parts.empty()) return Not(kNone);
  const bool nullable = std::ranges::all_of(parts, [&](ExprId part) { return Nullable(part); });
  if (parts[0] == kEmpty) return nullable ? kEmpty : kNone;
  if (parts.size() == 1) return parts[0];
  return Intern(
      {.kind = Kind::kAnd, .nullable = nullable, .may_be_empty = true, .parts = std::move(parts)});
}

ExprId ExprPool::Not(ExprId inner) {
  if (nodes_[inner].kind == Kind::kNot) return nodes_[inner].parts[0];
  return Intern(
      {.kind = Kind::kNot, .nullable = !Nullable(inner), .may_be_empty = true, .parts = {inner}});
}

ExprId ExprPool::Repeat(ExprId inner, int min, int max) {
  if (max == 0 || inner == kEmpty) return kEmpty;
  if (inner == kNone) return min == 0 ? kEmpty : kNone;
  if (min == 1 && max == 1) return inner;
  if (min == 0 && max == 1) return Optional(inner);
  if (Nullable(inner)) min = 0;
  return Intern(
      {.kind = Kind::kRepeat, .nullable = min == 0, .parts = {inner}, .min = min, .max = max});
}

ExprId ExprPool::Multiple(int64_t divisor, int64_t remainder, bool started) {
  has_multiples_ = true;
  return Intern({.kind = Kind::kMultiple,
                 .nullable = started && remainder == 0,
                 .min = divisor,
                 .max = remainder});
}

ExprId ExprPool::Derive(ExprId expr, uint8_t byte) {
  if (rows_[expr].empty()) {
    if (used_rows_ >= kMostRows || nodes_.size() >= kMostNodes) {
      exhausted_ = true;
      return kNone;
    }
    ++used_rows_;
    rows_[expr].assign(class_bytes_.size(), -1);
  }
  const int byte_class = class_of_[byte];
  if (const ExprId known = rows_[expr][byte_class]; known >= 0) return known;
  const ExprId result = Compute(expr, byte);
  rows_[expr][byte_class] = result;
  return result;
}

// Derivatives only unite sets that are there, so the classes hold for them too. Each set splits the
// classes so far.
void ExprPool::Freeze() {
  std::vector<ByteSet> sets = sets_;
  if (has_multiples_) {
    for (char digit = '0'; digit <= '9'; ++digit) sets.push_back(ByteSet::Of(digit));
  }
  class_of_.fill(0);
  int classes = 1;
  for (const ByteSet& set : sets) {
    std::array<int, 512> renamed;  // by old class and membership
    renamed.fill(-1);
    classes = 0;
    for (int byte = 0; byte < 256; ++byte) {
      int& name = renamed[class_of_[byte] * 2 + (set.Has(static_cast<uint8_t>(byte)) ? 1 : 0)];
      if (name < 0) name = classes++;
      class_of_[byte] = static_cast<uint8_t>(name);
    }
  }
  class_bytes_.assign(classes, {});
  for (int byte = 0; byte < 256; ++byte) {
    class_bytes_[class_of_[byte]].push_back(static_cast<uint8_t>(byte));
  }
  for (auto& row : rows_) row.clear();
  used_rows_ = 0;
}

// Nodes are copied where the computation makes new ones, which may move them.
ExprId ExprPool::Compute(ExprId expr, uint8_t byte) {
  const Node node = nodes_[expr];
  switch (node.kind) {
    case Kind::kNone:
    case Kind::kEmpty:
      return kNone;
    case Kind::kBytes:
      return sets_[node.set].Has(byte) ? kEmpty : kNone;
    case Kind::kConcat:
      return DeriveConcat(node, byte);
    case Kind::kRepeat:
      return DeriveRepeat(node, byte);
    case Kind::kNot:
      return Not(Derive(node.parts[0], byte));
    case Kind::kMultiple:
      if (byte < '0' || byte > '9') return kNone;
      return Multiple(node.min, (node.max * 10 + (byte - '0')) % node.min, /*started=*/true);
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<ExprId> parts;
      for (const ExprId part : node.parts) parts.push_back(Derive(part, byte));
      return node.kind == Kind::kOr ? Or(std::move(parts)) : And(std::move(parts));
    }
  }
  return kNone;
}

ExprId ExprPool::DeriveConcat(const Node& node, uint8_t byte) {
  const ExprId first = Concat(Derive(node.parts[0], byte), node.parts[1]);
  if (!Nullable(node.parts[0])) return first;
  return Or({first, Derive(node.parts[1], byte)});
}

ExprId ExprPool::DeriveRepeat(const Node& node, uint8_t byte) {
  const ExprId inner = node.parts[0];
  const ExprId first = Derive(inner, byte);
  if (first == kNone) return kNone;
  const int min = static_cast<int>(std::max<int64_t>(node.min - 1, 0));
  const int max = node.max == kNoLimit ? kNoLimit : static_cast<int>(node.max - 1);
  return Concat(first, Repeat(inner, min, max));
}

bool ExprPool::IsEmpty(ExprId expr) {
  if (expr == kNone) return true;
  if (!nodes_[expr].may_be_empty || Nullable(expr)) return false;
  if (const auto at = emptiness_.find(expr); at != emptiness_.end()) return at->second;
  std::vector<ExprId> seen = {expr};
  std::unordered_map<ExprId, bool> known = {{expr, true}};
  bool empty = true;
  for (size_t i = 0; i < seen.size() && empty && seen.size() < kMostStatesSearched; ++i) {
    for (size_t c = 0; c < class_bytes_.size() && empty; ++c) {
      const ExprId next = Derive(seen[i], class_bytes_[c][0]);
      if (next == kNone || !known.try_emplace(next, true).second) continue;
      const auto at = emptiness_.find(next);
      const bool alive =
          Nullable(next) || !nodes_[next].may_be_empty || (at != emptiness_.end() && !at->second);
      if (alive) empty = false;
      seen.push_back(next);
    }
  }
  if (empty && seen.size() < kMostStatesSearched) {
    for (const ExprId state : seen) emptiness_[state] = true;
  }
  emptiness_[expr] = empty;
  return empty;
}

// An intersection without the parts that only take finitely many strings away.
ExprId ExprPool::WithoutFiniteExceptions(ExprId expr) {
  if (nodes_[expr].kind != Kind::kAnd) return expr;
  std::vector<ExprId> parts = nodes_[expr].parts;
  std::erase_if(parts, [&](ExprId part) {
    return nodes_[part].kind == Kind::kNot && nodes_[nodes_[part].parts[0]].finite;
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
    const ExprId first = nodes_[expr].parts[0];
    const ExprId second = nodes_[expr].parts[1];
    if (!IsEmpty(second) && AllowsAllText(first, character)) return true;
  }
  if (const auto at = allows_all_text_.find(expr); at != allows_all_text_.end()) return at->second;
  std::vector<std::pair<ExprId, ExprId>> seen = {{expr, character}};
  bool all = true;
  for (size_t i = 0; i < seen.size() && all; ++i) {
    const auto [from, rest] = seen[i];
    for (size_t c = 0; c < class_bytes_.size() && all; ++c) {
      const ExprId left = Derive(rest, class_bytes_[c][0]);
      if (left == kNone) continue;
      const ExprId next = WithoutFiniteExceptions(Derive(from, class_bytes_[c][0]));
      all = !IsEmpty(next) && seen.size() < kMostTextStates;
      const std::pair pair{next, left == kEmpty ? character : left};
      if (std::ranges::find(seen, pair) == seen.end()) seen.push_back(pair);
    }
  }
  for (const auto& [state, rest] : seen) {
    if (all && rest == character) allows_all_text_[state] = true;
  }
  return allows_all_text_[expr] = all;
}

bool ExprPool::Matches(ExprId expr, std::string_view text) {
  for (const char byte : text) expr = Derive(expr, static_cast<uint8_t>(byte));
  return Nullable(expr);
}

}  // namespace talon
