#include "grammar/expr_table.h"

#include <algorithm>

namespace talon {

ExprId ExprTable::Intern(ExprNode node, std::span<const ExprId> parts) {
  size_t hash = static_cast<size_t>(node.kind) * 2 + (node.nullable ? 1 : 0);
  hash = MixHash(hash, static_cast<size_t>(node.set));
  for (const ExprId part : parts) hash = MixHash(hash, static_cast<size_t>(part));
  hash = MixHash(MixHash(hash, static_cast<size_t>(node.min)), static_cast<size_t>(node.max));
  node.hash = static_cast<uint32_t>(hash ^ hash >> 32);
  size_t slot = node.hash & (slots_.size() - 1);
  for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (IsSame(slots_[slot], node, parts)) return slots_[slot];
  }
  const auto id = static_cast<ExprId>(nodes_.size());
  slots_[slot] = id;
  for (const ExprId part : parts) node.may_be_empty |= nodes_[part].may_be_empty;
  node.finite = IsFinite(node, parts);
  node.first_part = static_cast<int32_t>(parts_.size());
  node.num_parts = static_cast<int32_t>(parts.size());
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  nodes_.push_back(node);
  if (2 * nodes_.size() > slots_.size()) Grow();
  return id;
}

bool ExprTable::IsSame(ExprId expr, const ExprNode& node, std::span<const ExprId> parts) const {
  const ExprNode& other = nodes_[expr];
  return other.hash == node.hash && other.kind == node.kind && other.nullable == node.nullable &&
         other.set == node.set && other.min == node.min && other.max == node.max &&
         std::ranges::equal(PartsOf(expr), parts);
}

void ExprTable::Grow() {
  slots_.assign(2 * slots_.size(), -1);
  for (size_t id = 0; id < nodes_.size(); ++id) {
    size_t slot = nodes_[id].hash & (slots_.size() - 1);
    while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<ExprId>(id);
  }
}

bool ExprTable::IsFinite(const ExprNode& node, std::span<const ExprId> parts) const {
  const auto finite = [&](ExprId part) { return nodes_[part].finite; };
  switch (node.kind) {
    case ExprKind::kNone:
    case ExprKind::kEmpty:
    case ExprKind::kBytes:
      return true;
    case ExprKind::kConcat:
    case ExprKind::kOr:
      return std::ranges::all_of(parts, finite);
    case ExprKind::kAnd:
      return std::ranges::any_of(parts, finite);
    case ExprKind::kRepeat:
      return node.max != kNoLimit && finite(parts[0]);
    case ExprKind::kNot:
    case ExprKind::kMultiple:
      return false;
  }
  return false;
}

void ExprTable::ClearRows() {
  for (ExprNode& node : nodes_) node.row = -1;
}

}  // namespace talon
