#include "setup/device.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

TEST(DeviceTest, NamesAreParsed) {
  EXPECT_FALSE(ParseDeviceName("cpu").value().cuda);
  EXPECT_TRUE(ParseDeviceName("cuda").value().cuda);
  EXPECT_FALSE(ParseDeviceName("cuda").value().index.has_value());
  EXPECT_EQ(ParseDeviceName("cuda:3").value().index, 3);
}

TEST(DeviceTest, RanksOfAMachineTakeItsDevicesInTurn) {
  const DeviceName any = ParseDeviceName("cuda").value();
  EXPECT_EQ(DeviceOfRank(any, 3, 8), 3);
  EXPECT_EQ(DeviceOfRank(any, 3, 2), 1);
  EXPECT_EQ(DeviceOfRank(any, 3, 1), 0);
  EXPECT_EQ(DeviceOfRank(any, 3, 0), 0);  // the error says that there is none
  const DeviceName third = ParseDeviceName("cuda:2").value();
  EXPECT_EQ(DeviceOfRank(third, 3, 8), 2);
  EXPECT_EQ(SharersOfDevice(any, 4, 8), 1);
  EXPECT_EQ(SharersOfDevice(any, 4, 3), 2);
  EXPECT_EQ(SharersOfDevice(any, 2, 1), 2);
  EXPECT_EQ(SharersOfDevice(third, 4, 8), 4);
}

TEST(DeviceTest, BadNamesAreRefused) {
  for (const char* name : {"", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:1x", "cuda:1 ", "cuda 1",
                           "cpu:0", "cuda:99999999999"}) {
    const auto device = ParseDeviceName(name);
    ASSERT_FALSE(device.ok()) << name;
    EXPECT_EQ(device.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(device.status().message().find(name), std::string::npos);
  }
}

TEST(DeviceTest, TheCpuIsAlwaysThere) {
  const auto backend = NewBackend({.device = "cpu", .threads = 1});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->info().name, "cpu");
  EXPECT_NE((*backend)->info().description.find("cpu"), std::string::npos);
}

// Without the CUDA backend, without a GPU, or with too few of them: an error, never a crash.
TEST(DeviceTest, ADeviceThatIsNotThereIsAnError) {
  const auto backend = NewBackend({.device = "cuda:1000"});
  ASSERT_FALSE(backend.ok());
  EXPECT_TRUE(backend.status().message().starts_with("device: cuda:1000: "))
      << backend.status().message();
}

}  // namespace
}  // namespace talon
