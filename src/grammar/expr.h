// Regular expressions over bytes, matched by derivatives (Brzozowski).
//
// The derivative of an expression by a byte is the expression for what may follow it. Expressions
// are hash-consed: equal ones have the same id, so that each is a state of a deterministic
// automaton which grows as it is used. Intersection and complement cost nothing extra, and a
// repetition keeps its counter instead of copies.
//
// Invariant: an expression other than kNone that was built without And and Not matches some string;
// with them, a search (IsEmpty) finds out. Memory is bounded (exhausted()). One thread at a time.
#ifndef TALON_GRAMMAR_EXPR_H_
#define TALON_GRAMMAR_EXPR_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/byte_classes.h"
#include "grammar/byte_set.h"
#include "grammar/expr_table.h"

namespace talon {

class ExprPool {
 public:
  static constexpr ExprId kNone = 0;   // matches nothing
  static constexpr ExprId kEmpty = 1;  // matches the empty string
  static constexpr int kNoLimit = ExprTable::kNoLimit;

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
  // Whether it is certain that no string matches, and that some string does. Both are false where a
  // search has met too many states.
  bool IsEmpty(ExprId expr) { return Search(expr) == Known::kYes; }
  bool HasMatch(ExprId expr) { return Search(expr) == Known::kNo; }
  bool Matches(ExprId expr, std::string_view text);
  // Whether every text of characters, however long, may begin a match. `character` is the
  // expression of one, the same in all calls. A search with a limit: false may also mean that it
  // was not found out.
  bool AllowsAllText(ExprId expr, ExprId character);

  // No more sets of bytes come: bytes that no expression tells apart become one class, which makes
  // rows of derivatives short. Call once, when everything is built.
  void Freeze();
  const ByteClasses& classes() const { return classes_; }

  // Too many states were needed; from then on unknown derivatives are kNone.
  bool exhausted() const { return exhausted_; }

 private:
  using Kind = ExprKind;
  using Known = ExprNode::Known;
  struct SetHash {
    size_t operator()(const ByteSet& set) const;
  };

  Known Search(ExprId expr);  // whether it is empty
  ExprId WithoutFiniteExceptions(ExprId expr);
  bool HasString(ExprId expr) const {
    const ExprNode& node = nodes_[expr];
    return node.nullable || (expr != kNone && !node.may_be_empty) || node.is_empty == Known::kNo;
  }
  bool HasSomeMultiple(ExprId expr);
  ExprId& Derivative(ExprId expr, int byte_class) {
    const int row = nodes_[expr].row;
    return rows_[row / kBlockRows][row % kBlockRows * classes_.size() + byte_class];
  }
  ExprId Compute(ExprId expr, uint8_t byte);
  ExprId DeriveConcat(ExprId first, ExprId second, uint8_t byte);
  ExprId DeriveRepeat(const ExprNode& node, ExprId inner, uint8_t byte);
  ExprId AnyOfSorted(std::span<const std::string> texts, size_t from);
  void Flatten(Kind kind, std::vector<ExprId>* parts) const;

  static constexpr int kBlockRows = 32;

  ExprTable nodes_;
  std::vector<ByteSet> sets_;
  std::unordered_map<ByteSet, int32_t, SetHash> set_ids_;
  ByteClasses classes_;
  // Blocks of kBlockRows rows, [classes] derivatives each, -1: not computed; an expression gets
  // its row when it is first used.
  std::vector<std::vector<ExprId>> rows_;
  int used_rows_ = 0;
  // The last search that met an expression, by expression.
  std::vector<int32_t> met_in_;
  int32_t searches_ = 0;
  size_t states_searched_ = 0;  // by all of them
  bool has_multiples_ = false;
  bool exhausted_ = false;
};

}  // namespace talon

#endif  // TALON_GRAMMAR_EXPR_H_
