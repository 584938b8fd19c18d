// Plain host memory for the backends whose device is the host, and the address of a token's K or V
// in a cache held there.
#ifndef TALON_COMPUTE_HOST_HOST_MEMORY_H_
#define TALON_COMPUTE_HOST_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"

namespace talon {

// Zero-filled, 64-byte aligned. ResourceExhausted if the system has no such memory.
Result<Buffer> AllocateHostMemory(size_t bytes);

// Element offsets of `head`'s vector of one token. A slot is block id * block_size + offset.
inline int64_t SlotOffset(const KvShape& shape, int64_t slot, int head) {
  const int64_t block = slot / shape.block_size;
  const int64_t within = slot % shape.block_size;
  return ((block * shape.kv_heads + head) * shape.block_size + within) * shape.head_dim;
}
inline int64_t StagedOffset(const KvShape& shape, int64_t row, int head) {
  return (row * shape.kv_heads + head) * shape.head_dim;
}

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_MEMORY_H_
