#include "base/memory_reserve.h"

#include <gtest/gtest.h>

#include <new>
#include <thread>

namespace talon {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

// Fails to allocate more than any machine has, which calls the handler first.
void FailToAllocate() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::get_new_handler()();  // the sanitizers' operator new would end the process
#else
  const volatile size_t bytes = size_t{1} << 60;
  EXPECT_THROW(::operator delete(::operator new(bytes)), std::bad_alloc);
#endif
}

TEST(MemoryReserve, AFailureUsesItUpAndIsStillAnException) {
  KeepMemoryReserve(kBytes);
  const std::new_handler handler = std::get_new_handler();
  ASSERT_NE(handler, nullptr);
  FailToAllocate();
  EXPECT_THROW(handler(), std::bad_alloc);  // nothing is left
  KeepMemoryReserve(kBytes);
  EXPECT_NO_THROW(handler());  // it was put aside again, and now it is free
  EXPECT_THROW(handler(), std::bad_alloc);
  std::set_new_handler(nullptr);
}

TEST(MemoryReserve, WithoutMemoryForItDestructorsWaitAllTheSame) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  KeepMemoryReserve(size_t{1} << 60);
  EXPECT_NE(std::get_new_handler(), nullptr);
  std::set_new_handler(nullptr);
#endif
}

// What a destructor meets on the way of an exception.
struct CallsHandler {
  ~CallsHandler() { EXPECT_NO_THROW(std::get_new_handler()()); }
};

TEST(MemoryReserve, DestructorsOnTheWayOfAnExceptionWait) {
  KeepMemoryReserve(kBytes);
  std::get_new_handler()();
  try {
    const CallsHandler one, other;
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    EXPECT_THROW(std::get_new_handler()(), std::bad_alloc);
  }
  std::set_new_handler(nullptr);
}

TEST(MemoryReserve, WorkThatMustEndWaitsForMemory) {
  KeepMemoryReserve(kBytes);
  const std::new_handler handler = std::get_new_handler();
  handler();
  ASSERT_THROW(handler(), std::bad_alloc);
  {
    const WaitForMemory wait(0.02);
    {
      const WaitForMemory inner(0.001);
      EXPECT_NO_THROW(handler());
      EXPECT_THROW(handler(), std::bad_alloc);  // for so long
    }
    EXPECT_NO_THROW(handler());                                            // a pause
    std::thread([&] { EXPECT_THROW(handler(), std::bad_alloc); }).join();  // others do not wait
  }
  EXPECT_THROW(handler(), std::bad_alloc);
  std::set_new_handler(nullptr);
}

}  // namespace
}  // namespace talon
