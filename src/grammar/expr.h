// Regular expressions over bytes, matched by derivatives (Brzozowski).
//
// The derivative of an expression by a byte is the expression for what may follow it. Expressions
// are hash-consed: equal ones have the same id, so that each is a state of a deterministic
// automaton which grows as it is used. Intersection and complement cost nothing extra, and a
// repetition keeps its counter instead of copies.
//
// Invariant: an expression other than kNone that was built without And and Not matches some string;
// with them, IsEmpty() searches for one. Memory is bounded (exhausted()). One thread at a time.
#ifndef TALON_GRAMMAR_EXPR_H_
#define TALON_GRAMMAR_EXPR_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/byte_set.h"

namespace talon {

using ExprId = int32_t;

// Combines hashes of the parts of a key.
inline size_t MixHash(size_t hash, size_t value) {
  return hash ^ (value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2));
}

class ExprPool {
 public:
  static constexpr ExprId kNone = 0;   // matches nothing
  static constexpr ExprId kEmpty = 1;  // matches the empty string
  static constexpr int kNoLimit = -1;

  ExprPool();

  ExprId Bytes(const ByteSet& set);
  ExprId Byte(char byte) { return Bytes(ByteSet::Of(static_cast<uint8_t>(byte))); }
  ExprId Literal(std::string_view text);
  ExprId Concat(ExprId first, ExprId second);
  ExprId Sequence(std::span<const ExprId> parts);
  ExprId Sequence(std::initializer_list<ExprId> parts) {
    return Sequence(std::span(parts.begin(), parts.size()));
  }
  ExprId Or(std::vector<ExprId> parts);
  // One of the texts, as a prefix tree.
  ExprId AnyOf(std::vector<std::string> texts);
  ExprId And(std::vector<ExprId> parts);
  ExprId Not(ExprId inner);
  // `max` may be kNoLimit.
  ExprId Repeat(ExprId inner, int min, int max);
  ExprId Optional(ExprId inner) { return Or({kEmpty, inner}); }
  // Decimal digits whose number, read after `remainder`, is 0 modulo `divisor`; at least one digit
  // unless `started`. REQUIRES: 0 < divisor <= 2^31, remainder < divisor.
  ExprId Multiple(int64_t divisor, int64_t remainder, bool started);

  bool Nullable(ExprId expr) const { return nodes_[expr].nullable; }
  ExprId Derive(ExprId expr, uint8_t byte);
  // Whether no string matches. Bounded: an expression with too many states is taken for empty, so
  // that nothing wrong is ever allowed.
  bool IsEmpty(ExprId expr);
  bool Matches(ExprId expr, std::string_view text);
  // Whether every text of characters, however long, may begin a match. `character` is the
  // expression of one, the same in all calls. A search with a limit: false may also mean that it
  // was not found out.
  bool AllowsAllText(ExprId expr, ExprId character);

  // No more sets of bytes come: bytes that no expression tells apart become one class, which makes
  // rows of derivatives short. Call once, when everything is built.
  void Freeze();
  int num_classes() const { return static_cast<int>(class_bytes_.size()); }
  int ClassOf(uint8_t byte) const { return class_of_[byte]; }
  // The bytes of each class, ascending: [num_classes].
  const std::vector<std::vector<uint8_t>>& class_bytes() const { return class_bytes_; }

  // Too many states were needed; from then on unknown derivatives are kNone.
  bool exhausted() const { return exhausted_; }

 private:
  enum class Kind : uint8_t { kNone, kEmpty, kBytes, kConcat, kOr, kAnd, kNot, kRepeat, kMultiple };
  enum class Known : uint8_t { kNothing, kYes, kNo };
  struct Node {
    Kind kind = Kind::kNone;
    bool nullable = false;
    bool may_be_empty = false;  // has And or Not inside
    bool finite = false;        // matches finitely many strings, as far as its form tells
    Known is_empty = Known::kNothing;
    Known allows_all_text = Known::kNothing;
    int32_t set = -1;  // index in sets_
    int64_t min = 0;   // kMultiple: divisor
    int64_t max = 0;   // kMultiple: remainder
    // Set by Intern:
    int32_t first_part = 0;  // in parts_
    int32_t num_parts = 0;
    int32_t row = -1;  // its derivatives, -1: none is known
    uint32_t hash = 0;
  };
  struct SetHash {
    size_t operator()(const ByteSet& set) const;
  };

  // Valid until the next expression is made.
  std::span<const ExprId> PartsOf(ExprId expr) const {
    return std::span(parts_).subspan(nodes_[expr].first_part, nodes_[expr].num_parts);
  }
  ExprId PartOf(ExprId expr, int index) const { return parts_[nodes_[expr].first_part + index]; }
  // `parts` are not in parts_.
  ExprId Intern(Node node, std::span<const ExprId> parts);
  ExprId Intern(const Node& node, std::initializer_list<ExprId> parts) {
    return Intern(node, std::span(parts.begin(), parts.size()));
  }
  bool IsSame(ExprId expr, const Node& node, std::span<const ExprId> parts) const;
  void GrowTable();
  bool IsFinite(const Node& node, std::span<const ExprId> parts) const;
  ExprId WithoutFiniteExceptions(ExprId expr);
  bool HasString(ExprId expr) const {
    const Node& node = nodes_[expr];
    return node.nullable || (expr != kNone && !node.may_be_empty) || node.is_empty == Known::kNo;
  }
  ExprId& Derivative(ExprId expr, int byte_class) {
    const int row = nodes_[expr].row;
    return rows_[row / kBlockRows][row % kBlockRows * num_classes() + byte_class];
  }
  ExprId Compute(ExprId expr, uint8_t byte);
  ExprId DeriveConcat(ExprId first, ExprId second, uint8_t byte);
  ExprId DeriveRepeat(const Node& node, ExprId inner, uint8_t byte);
  ExprId AnyOfSorted(std::span<const std::string> texts, size_t from);
  void Flatten(Kind kind, std::vector<ExprId>* parts) const;

  static constexpr int kBlockRows = 32;

  // Few large arrays: grammars are made and dropped for each request.
  std::vector<Node> nodes_;
  std::vector<ExprId> parts_;
  std::vector<ExprId> table_;  // open addressing by Node::hash, -1: free; a power of two
  std::vector<ByteSet> sets_;
  std::unordered_map<ByteSet, int32_t, SetHash> set_ids_;
  std::array<uint8_t, 256> class_of_{};
  std::vector<std::vector<uint8_t>> class_bytes_;
  // Blocks of kBlockRows rows, [num_classes] derivatives each, -1: not computed; an expression gets
  // its row when it is first used.
  std::vector<std::vector<ExprId>> rows_;
  int used_rows_ = 0;
  // The last search (IsEmpty) that met an expression, by expression.
  std::vector<int32_t> met_in_;
  int32_t searches_ = 0;
  bool has_multiples_ = false;
  bool exhausted_ = false;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_EXPR_H_
