#include "base/memory_reserve.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <new>
#include <thread>
#include <utility>

namespace talon {
namespace {

constexpr std::chrono::milliseconds kPause(5);
constexpr double kMostUnwindingSeconds = 30;

std::atomic<void*> reserve{nullptr};
thread_local double seconds_to_wait = 0;
thread_local double unwinding_seconds = 0;

// The library calls it when memory is out, and tries again when it returns.
void UseReserve() {
  if (void* mine = reserve.exchange(nullptr); mine != nullptr) return std::free(mine);
  // A second exception would end the process: destructors on the way of the first one wait.
  const bool unwinding = std::uncaught_exceptions() > 0;
  if (!unwinding) unwinding_seconds = kMostUnwindingSeconds;
  double& seconds = unwinding ? unwinding_seconds : seconds_to_wait;
  if (seconds <= 0) throw std::bad_alloc();
  seconds -= std::chrono::duration<double>(kPause).count();
  std::this_thread::sleep_for(kPause);
}

}  // namespace

void KeepMemoryReserve(size_t bytes) {
  if (reserve.load() != nullptr) return;
  std::set_new_handler(UseReserve);  // even if the reserve cannot be had: the handler also waits
  void* mine = std::malloc(bytes);
  if (mine == nullptr) return;
  void* none = nullptr;
  if (!reserve.compare_exchange_strong(none, mine)) std::free(mine);
}

WaitForMemory::WaitForMemory(double most_seconds)
    : seconds_before_(std::exchange(seconds_to_wait, most_seconds)) {}

WaitForMemory::~WaitForMemory() { seconds_to_wait = seconds_before_; }

}  // namespace talon
