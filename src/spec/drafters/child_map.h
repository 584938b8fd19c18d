// Hash map from (parent node, token) to child node, for tries with millions of nodes: 12 bytes an
// entry in one array, linear probing. One thread at a time; const functions may run concurrently.
#ifndef TALON_SPEC_DRAFTERS_CHILD_MAP_H_
#define TALON_SPEC_DRAFTERS_CHILD_MAP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace talon {

class ChildMap {
 public:
  static constexpr uint32_t kNone = 0xffffffff;

  ChildMap();
  // kNone if there is none.
  uint32_t Find(uint32_t parent, int32_t token) const;
  // REQUIRES: no entry for (parent, token).
  void Insert(uint32_t parent, int32_t token, uint32_t child);
  // REQUIRES: an entry for (parent, token).
  void Erase(uint32_t parent, int32_t token);
  size_t size() const { return size_; }

 private:
  struct Entry {
    uint32_t parent = 0;
    int32_t token = 0;
    uint32_t child = kNone;  // kNone: the slot is free
  };

  size_t Home(uint32_t parent, int32_t token) const;
  size_t Slot(uint32_t parent, int32_t token) const;  // the entry's slot, or the free slot for it
  void Grow();

  std::vector<Entry> slots_;  // a power of two, at most 2/3 in use
  size_t size_ = 0;
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_CHILD_MAP_H_
