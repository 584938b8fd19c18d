#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace talon {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("half: {} is odd", value);
  return value / 2;
}

Result<int> Quarter(int value) {
  TALON_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

TEST(Status, CarriesCodeAndMessage) {
  EXPECT_TRUE(OkStatus().ok());
  const Status status = NotFound("no block {}", 7);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "no block 7");
  EXPECT_EQ(status.WithContext("kv").message(), "kv: no block 7");
  EXPECT_TRUE(OkStatus().WithContext("kv").ok());
}

TEST(Result, PropagatesTheFirstFailure) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).status().message(), "half: 3 is odd");
  EXPECT_EQ(Quarter(5).status().message(), "half: 5 is odd");
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 3);
}

}  // namespace
}  // namespace talon
