#include "compute/host/host_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/math.h"

namespace talon {

Result<Buffer> AllocateHostMemory(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), kAlignment);
  const bool possible = bytes <= static_cast<size_t>(PTRDIFF_MAX);
  void* data = possible ? std::aligned_alloc(kAlignment, rounded) : nullptr;
  if (data == nullptr) return ResourceExhausted("compute: no memory for {} bytes", bytes);
  std::memset(data, 0, rounded);
  return Buffer(data, bytes, [](void* p) { std::free(p); });
}

}  // namespace talon
