#include "base/contain.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace talon {
namespace {

TEST(ContainTest, ABrokenInvariantIsAnInternalErrorThatNamesThePlace) {
  const int two = 2;
  const Status status = Contain([&] { TALON_CHECK(two == 3, "two is {}", two); });
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("contain_test.cc"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("two == 3: two is 2"), std::string::npos) << status.message();
}

TEST(ContainTest, ADeviceFaultAndWantOfMemoryAreToldApart) {
  EXPECT_EQ(Contain([] { throw DeviceFault("the device is lost"); }).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(Contain([] { throw std::bad_alloc(); }).code(), StatusCode::kResourceExhausted);
}

TEST(ContainTest, WantOfMemorySaysWhatWasWanted) {
  const Result<int> none = ResourceExhausted("no memory for {} bytes", 7);
  const Status status = Contain([&] { (void)MemoryOrThrow(none); });
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "no memory for 7 bytes");
  EXPECT_THROW((void)MemoryOrThrow(none), std::bad_alloc);
  EXPECT_EQ(MemoryOrThrow(Result<int>(3)), 3);
}

TEST(ContainTest, OtherExceptionsPassAndNothingIsOk) {
  EXPECT_THROW((void)Contain([] { throw std::out_of_range("else"); }), std::out_of_range);
  EXPECT_TRUE(Contain([] {}).ok());
}

}  // namespace
}  // namespace talon
