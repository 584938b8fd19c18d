// Which blocks are free, and how many sequences use each of the others. Ids only; the bytes are the
// cache's. Not thread-safe: owned by the engine's thread.
#ifndef TALON_KV_BLOCK_POOL_H_
#define TALON_KV_BLOCK_POOL_H_

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace talon {

class BlockPool {
 public:
  explicit BlockPool(int num_blocks);

  int num_blocks() const { return static_cast<int>(references_.size()); }
  int free_blocks() const { return static_cast<int>(free_.size()); }
  int references(int32_t block) const { return references_[block]; }

  // All or nothing; each block comes with one reference.
  Result<std::vector<int32_t>> Allocate(int count);
  void AddReference(int32_t block);
  // Frees the block with its last reference.
  void Release(int32_t block);

  // The free list holds exactly the blocks without references, each once.
  Status CheckIntegrity() const;

 private:
  std::vector<int32_t> references_;  // [num_blocks]
  std::vector<int32_t> free_;        // stack; the last freed block is reused first
};

}  // namespace talon

#endif  // TALON_KV_BLOCK_POOL_H_
