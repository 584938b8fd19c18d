#include "spec/drafters/child_map.h"

#include <utility>

#include "base/check.h"

namespace talon {

ChildMap::ChildMap() : slots_(64) {}

uint32_t ChildMap::Find(uint32_t parent, int32_t token) const {
  return slots_[Slot(parent, token)].child;
}

void ChildMap::Insert(uint32_t parent, int32_t token, uint32_t child) {
  if (3 * (size_ + 1) > 2 * slots_.size()) Grow();
  Entry& entry = slots_[Slot(parent, token)];
  TALON_DCHECK(entry.child == kNone, "node {} has two children with token {}", parent, token);
  entry = {parent, token, child};
  ++size_;
}

// Closes the gap: an entry further along the run moves back if its home is not past the gap.
void ChildMap::Erase(uint32_t parent, int32_t token) {
  const size_t mask = slots_.size() - 1;
  size_t gap = Slot(parent, token);
  TALON_DCHECK(slots_[gap].child != kNone, "node {} has no child with token {}", parent, token);
  for (size_t i = (gap + 1) & mask; slots_[i].child != kNone; i = (i + 1) & mask) {
    const size_t home = Home(slots_[i].parent, slots_[i].token);
    if (((i - home) & mask) < ((i - gap) & mask)) continue;
    slots_[gap] = slots_[i];
    gap = i;
  }
  slots_[gap].child = kNone;
  --size_;
}

size_t ChildMap::Home(uint32_t parent, int32_t token) const {
  const uint64_t key = static_cast<uint64_t>(parent) << 32 | static_cast<uint32_t>(token);
  const uint64_t mixed = (key ^ (key >> 29)) * 0x9E3779B97F4A7C15ull;
  return (mixed ^ (mixed >> 32)) & (slots_.size() - 1);
}

size_t ChildMap::Slot(uint32_t parent, int32_t token) const {
  size_t slot = Home(parent, token);
  while (slots_[slot].child != kNone &&
         (slots_[slot].parent != parent || slots_[slot].token != token)) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void ChildMap::Grow() {
  std::vector<Entry> old = std::exchange(slots_, std::vector<Entry>(slots_.size() * 2));
  for (const Entry& entry : old) {
    if (entry.child != kNone) slots_[Slot(entry.parent, entry.token)] = entry;
  }
}

}  // namespace talon
