#include "compute/cpu/matmul/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/math.h"

namespace talon {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

Status NoMemory(size_t bytes) { return ResourceExhausted("cpu: no memory for {} bytes", bytes); }

Result<Buffer> AllocateSmall(size_t bytes) {
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), 64);
  void* data = std::aligned_alloc(64, rounded);
  if (data == nullptr) return NoMemory(bytes);
  std::memset(data, 0, rounded);
  return Buffer(data, bytes, [](void* p) { std::free(p); });
}

}  // namespace

Result<Buffer> AllocateStreamed(size_t bytes, bool touch) {
  if (bytes < kHugePage) return AllocateSmall(bytes);
  if (bytes > SIZE_MAX - kHugePage) return NoMemory(bytes);
  const size_t mapped = bytes + kHugePage;  // room to start at a huge page's boundary
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return NoMemory(bytes);
  const auto address = (reinterpret_cast<uintptr_t>(base) + kHugePage - 1) & ~(kHugePage - 1);
  auto* data = reinterpret_cast<void*>(address);
  // Whole huge pages only, so that the tail takes no more than it needs. A hint: it may fail.
  madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  Buffer buffer(data, bytes, [base, mapped](void*) { munmap(base, mapped); });
  // A system too old for it (EINVAL) hands out pages as they are used, as ever.
  if (touch && madvise(data, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    return NoMemory(bytes);
  }
  return buffer;
}

}  // namespace talon
