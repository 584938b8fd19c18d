#include "base/memory_reserve.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace talon {
namespace {

std::atomic<void*> reserve{nullptr};

// The library calls it when memory is out, and tries again when it returns.
void UseReserve() {
  void* mine = reserve.exchange(nullptr);
  if (mine == nullptr) throw std::bad_alloc();
  std::free(mine);
}

}  // namespace

void KeepMemoryReserve(size_t bytes) {
  if (reserve.load() != nullptr) return;
  void* mine = std::malloc(bytes);
  if (mine == nullptr) return;
  void* none = nullptr;
  if (!reserve.compare_exchange_strong(none, mine)) std::free(mine);
  std::set_new_handler(UseReserve);
}

}  // namespace talon
