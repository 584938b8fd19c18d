// Plain host memory for the backends whose device is the host, and the address of a token's K or V
// in a cache held there.
#ifndef TALON_COMPUTE_HOST_HOST_MEMORY_H_
#define TALON_COMPUTE_HOST_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/status.h"
#include "compute/kv_view.h"
#include "compute/matrix.h"

namespace talon {

// Zero-filled, 64-byte aligned. ResourceExhausted if the system has no such memory.
Result<Buffer> AllocateHostMemory(size_t bytes);

// Index of `head`'s vector of one token. A slot is block id * block_size + offset.
inline int64_t SlotVector(const KvShape& shape, int64_t slot, int head) {
  const int64_t block = slot / shape.block_size;
  const int64_t within = slot % shape.block_size;
  return (block * shape.kv_heads + head) * shape.block_size + within;
}
inline int64_t StagedVector(const KvShape& shape, int64_t row, int head) {
  return row * shape.kv_heads + head;
}

// One of a cache's vectors in host memory.
struct HostVector {
  uint8_t* elements = nullptr;
  uint8_t* scale = nullptr;  // if it is quantised

  // `bytes`: KvShape::VectorBytes().
  HostVector(const KvVectors& vectors, int64_t index, size_t bytes)
      : elements(vectors.elements + index * bytes),
        scale(vectors.scales == nullptr ? nullptr : vectors.scales + index) {}
};
// A vector of `blocks` or, if place is ~(staging row), of `staged`.
inline HostVector VectorAt(const KvShape& shape, const void* blocks, const void* staged,
                           int64_t place, int head) {
  if (place < 0) {
    return {StagedVectorsOf(shape, staged), StagedVector(shape, ~place, head), shape.VectorBytes()};
  }
  return {BlockVectorsOf(shape, blocks), SlotVector(shape, place, head), shape.VectorBytes()};
}
// Copies `count` neighbouring vectors.
inline void CopyVectors(const KvShape& shape, const HostVector& from, const HostVector& to,
                        int count = 1) {
  std::memmove(to.elements, from.elements, count * shape.VectorBytes());
  if (shape.quantised()) std::memmove(to.scale, from.scale, count * shape.ScaleBytes());
}

}  // namespace talon

#endif  // TALON_COMPUTE_HOST_HOST_MEMORY_H_
