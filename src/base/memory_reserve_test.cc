#include "base/memory_reserve.h"

#include <gtest/gtest.h>

#include <new>

namespace talon {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

// More than any machine has, so that it always fails.
bool CanAllocateTooMuch() {
  const volatile size_t bytes = size_t{1} << 60;
  try {
    ::operator delete(::operator new(bytes));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

TEST(MemoryReserve, AFailureUsesItUpAndIsStillAnException) {
  KeepMemoryReserve(kBytes);
  const std::new_handler handler = std::get_new_handler();
  ASSERT_NE(handler, nullptr);
  EXPECT_FALSE(CanAllocateTooMuch());
  EXPECT_THROW(handler(), std::bad_alloc);  // nothing is left
  KeepMemoryReserve(kBytes);
  EXPECT_NO_THROW(handler());  // it was put aside again, and now it is free
  EXPECT_THROW(handler(), std::bad_alloc);
  std::set_new_handler(nullptr);
}

}  // namespace
}  // namespace talon
