// Which blocks are free, how many sequences use each of the others, and which of the unused ones
// are cached: kept because the prefix index knows them, taken back when room is needed, the one
// longest unused first. Ids only; the bytes are the cache's. Not thread-safe: owned by the engine's
// thread.
#ifndef TALON_KV_BLOCK_POOL_H_
#define TALON_KV_BLOCK_POOL_H_

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "base/status.h"

namespace talon {

class BlockPool {
 public:
  // `evicted` is told of each cached block that is taken back.
  explicit BlockPool(int num_blocks, std::function<void(int32_t)> evicted = nullptr);

  int num_blocks() const { return static_cast<int>(references_.size()); }
  // Blocks that can be allocated, cached ones included.
  int free_blocks() const { return static_cast<int>(free_.size() + cached_.size()); }
  int cached_blocks() const { return static_cast<int>(cached_.size()); }
  int used_blocks() const { return num_blocks() - free_blocks(); }
  int references(int32_t block) const { return references_[block]; }

  // All or nothing; each block comes with one reference.
  Result<std::vector<int32_t>> Allocate(int count);
  // REQUIRES: a used or a cached block.
  void AddReference(int32_t block);
  // Frees the block with its last reference, or caches it if it is to be kept.
  void Release(int32_t block);
  // Whether the block, now used, is cached when its last reference goes.
  void Keep(int32_t block) { kept_[block] = true; }

  // Every block is used, free or cached, and only one of these.
  Status CheckIntegrity() const;

 private:
  std::function<void(int32_t)> evicted_;
  std::vector<int32_t> references_;  // [num_blocks]
  std::vector<bool> kept_;           // [num_blocks]
  std::vector<int32_t> free_;        // stack; the last freed block is reused first
  std::list<int32_t> cached_;        // the longest unused first
  std::vector<std::list<int32_t>::iterator> cached_at_;  // [num_blocks], of cached ones
};

}  // namespace talon

#endif  // TALON_KV_BLOCK_POOL_H_
