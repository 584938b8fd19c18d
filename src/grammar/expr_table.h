// The expressions of a pool, hash-consed: equal ones are stored once and have the same id.
#ifndef TALON_GRAMMAR_EXPR_TABLE_H_
#define TALON_GRAMMAR_EXPR_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace talon {

using ExprId = int32_t;

// Combines hashes of the parts of a key.
inline size_t MixHash(size_t hash, size_t value) {
  return hash ^ (value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2));
}

enum class ExprKind : uint8_t {
  kNone,
  kEmpty,
  kBytes,
  kConcat,
  kOr,
  kAnd,
  kNot,
  kRepeat,
  kMultiple
};

struct ExprNode {
  enum class Known : uint8_t { kNothing, kYes, kNo, kUndecided };  // the last: a search gave up

  ExprKind kind = ExprKind::kNone;
  bool nullable = false;
  bool may_be_empty = false;  // has And or Not inside
  bool finite = false;        // matches finitely many strings, as far as its form tells
  Known is_empty = Known::kNothing;
  Known allows_all_text = Known::kNothing;
  int32_t set = -1;  // index of its set of bytes
  int64_t min = 0;   // kMultiple: divisor
  int64_t max = 0;   // kMultiple: remainder
  // Set by Intern:
  int32_t first_part = 0;
  int32_t num_parts = 0;
  int32_t row = -1;  // its derivatives, -1: none is known
  uint32_t hash = 0;
};

// One thread at a time.
class ExprTable {
 public:
  static constexpr int kNoLimit = -1;  // `max` of a kRepeat

  ExprTable() : slots_(1024, -1) {}

  // The expression with this kind, nullable, set, min, max and these parts. `parts` are not those
  // of an expression in the table.
  ExprId Intern(ExprNode node, std::span<const ExprId> parts);
  ExprId Intern(const ExprNode& node, std::initializer_list<ExprId> parts) {
    return Intern(node, std::span(parts.begin(), parts.size()));
  }

  size_t size() const { return nodes_.size(); }
  size_t num_parts() const { return parts_.size(); }  // those of all expressions
  // Valid until the next Intern, like the parts.
  ExprNode& operator[](ExprId expr) { return nodes_[expr]; }
  const ExprNode& operator[](ExprId expr) const { return nodes_[expr]; }
  std::span<const ExprId> PartsOf(ExprId expr) const {
    return std::span(parts_).subspan(nodes_[expr].first_part, nodes_[expr].num_parts);
  }
  ExprId PartOf(ExprId expr, int index) const { return parts_[nodes_[expr].first_part + index]; }
  // Forgets which rows hold derivatives.
  void ClearRows();

 private:
  bool IsSame(ExprId expr, const ExprNode& node, std::span<const ExprId> parts) const;
  bool IsFinite(const ExprNode& node, std::span<const ExprId> parts) const;
  void Grow();

  // Few large arrays: grammars are made and dropped for each request.
  std::vector<ExprNode> nodes_;
  std::vector<ExprId> parts_;
  std::vector<ExprId> slots_;  // open addressing by ExprNode::hash, -1: free; a power of two
};

}  // namespace talon

#endif  // TALON_GRAMMAR_EXPR_TABLE_H_
