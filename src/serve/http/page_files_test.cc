#include "serve/http/page_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

namespace talon {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(TALON_SOURCE_DIR) / "src/serve/http/page";

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::map<std::string, PageFile> ByPath() {
  std::map<std::string, PageFile> files;
  for (const PageFile& file : PageFiles()) files.emplace(file.path, file);
  return files;
}

TEST(PageFiles, AreEqualToTheFolderByteForByte) {
  const std::map<std::string, PageFile> files = ByPath();
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    const auto found = files.find(name == "index.html" ? "/" : "/" + name);
    ASSERT_NE(found, files.end()) << name;
    EXPECT_EQ(found->second.content, ReadAll(entry.path())) << name;
    ++count;
  }
  EXPECT_EQ(PageFiles().size(), count);
  EXPECT_EQ(files.size(), count);  // each path once
}

TEST(PageFiles, HaveTheirContentTypes) {
  const std::map<std::string, PageFile> files = ByPath();
  EXPECT_EQ(files.at("/").content_type, "text/html; charset=utf-8");
  EXPECT_EQ(files.at("/app.js").content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(files.at("/icon.svg").content_type, "image/svg+xml; charset=utf-8");
  EXPECT_EQ(files.at("/style.css").content_type, "text/css; charset=utf-8");
}

// What the files load is among them, so the page needs no other server.
TEST(PageFiles, LoadOnlyEachOther) {
  const std::map<std::string, PageFile> files = ByPath();
  const std::regex reference(R"re((?:src="|href="|from '\.)(/?[^"']*)["'])re");
  int references = 0;
  for (const auto& [path, file] : files) {
    const std::string content(file.content);
    for (std::sregex_iterator it(content.begin(), content.end(), reference), end; it != end; ++it) {
      EXPECT_TRUE(files.contains((*it)[1])) << path << " loads " << (*it)[1];
      ++references;
    }
  }
  EXPECT_GE(references, 5);
}

}  // namespace
}  // namespace talon
