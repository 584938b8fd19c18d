#include "base/file.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace talon {
namespace {

std::string TempPath(const std::string& name) { return testing::TempDir() + "/talon_" + name; }

TEST(File, WriteThenReadAndMap) {
  const std::string path = TempPath("file_test");
  ASSERT_TRUE(WriteFile(path, "hello").ok());
  EXPECT_EQ(ReadFile(path).value(), "hello");
  const auto map = MappedFile::Open(path);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->bytes().size(), 5u);
  EXPECT_EQ(map->bytes()[1], 'e');
  std::filesystem::remove(path);
}

TEST(File, ErrorsNamePathAndReason) {
  const std::string missing = TempPath("missing");
  EXPECT_EQ(ReadFile(missing).status().code(), StatusCode::kNotFound);
  EXPECT_NE(ReadFile(missing).status().message().find(missing), std::string::npos);
  const auto directory = MappedFile::Open(testing::TempDir());
  ASSERT_FALSE(directory.ok());
  EXPECT_NE(directory.status().message().find("is a directory"), std::string::npos);
}

TEST(File, EmptyFileMapsToNoBytes) {
  const std::string path = TempPath("empty");
  ASSERT_TRUE(WriteFile(path, "").ok());
  EXPECT_TRUE(MappedFile::Open(path)->bytes().empty());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace talon
