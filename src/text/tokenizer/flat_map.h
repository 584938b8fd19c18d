// A hash table from 64-bit keys to small values: one array, linear probing. Only grows.
#ifndef TALON_TEXT_TOKENIZER_FLAT_MAP_H_
#define TALON_TEXT_TOKENIZER_FLAT_MAP_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace talon {

// Thread-safe for concurrent readers without a writer. `Value` is default-constructible and cheap
// to copy. REQUIRES: the key ~0 is never used.
template <typename Value>
class FlatMap {
 public:
  size_t size() const { return size_; }

  // Null if absent. Valid until the next Set().
  const Value* Find(uint64_t key) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[Locate(key)];
    return slot.key == key ? &slot.value : nullptr;
  }

  void Set(uint64_t key, const Value& value) {
    if (2 * (size_ + 1) > slots_.size()) Grow();
    Slot& slot = slots_[Locate(key)];
    if (slot.key == kNoKey) ++size_;
    slot = {key, value};
  }

 private:
  static constexpr uint64_t kNoKey = ~uint64_t{0};
  struct Slot {
    uint64_t key = kNoKey;
    Value value{};
  };

  // The slot of `key`, or the empty slot where it belongs.
  size_t Locate(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    uint64_t hash = key * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 32;
    size_t index = hash & mask;
    while (slots_[index].key != key && slots_[index].key != kNoKey) index = (index + 1) & mask;
    return index;
  }

  void Grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kNoKey) slots_[Locate(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t size_ = 0;
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_FLAT_MAP_H_
