#include "base/memory_reserve.h"

#include <gtest/gtest.h>

#include <new>

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

}  // namespace
}  // namespace talon
