#include "spec/drafters/draft_corpus.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace talon {
namespace {

using Documents = std::vector<std::vector<int32_t>>;

// One token a byte.
std::vector<int32_t> EncodeBytes(std::string_view text) { return {text.begin(), text.end()}; }

Result<Documents> ReadCorpus(const std::string& contents) {
  const std::string path = testing::TempDir() + "draft_corpus.txt";
  const Status written = WriteFile(path, contents);
  if (!written.ok()) return written;
  return ReadDraftCorpus(path, 128, EncodeBytes);
}

std::string ErrorOf(const std::string& contents) {
  const std::string message = ReadCorpus(contents).status().message();
  return message.substr(std::min(message.size(), message.find("line ")));
}

TEST(DraftCorpus, TokensStringsAndPlainText) {
  const Result<Documents> documents = ReadCorpus("[1, 2, 127]\n\n\"a\\nb\"\nab\n\"c");
  ASSERT_TRUE(documents.ok()) << documents.status().message();
  EXPECT_EQ(*documents, (Documents{{1, 2, 127}, {'a', '\n', 'b'}, {'a', 'b'}, {'"', 'c'}}));
  EXPECT_TRUE(ReadCorpus("")->empty());
}

TEST(DraftCorpus, LinesOfPromptFiles) {
  const Result<Documents> documents =
      ReadCorpus("{\"prompt\": \"a\\nb\", \"id\": 3}\n{\"tokens\": [5, 6]}");
  ASSERT_TRUE(documents.ok()) << documents.status().message();
  EXPECT_EQ(*documents, (Documents{{'a', '\n', 'b'}, {5, 6}}));
}

TEST(DraftCorpus, WhatOnlyLooksLikeJsonIsText) {
  for (const std::string line : {"[1, ", "[1] See above.", "[ ] milk", "[\"a\"]", "[[1]]", "{x}",
                                 "{\"text\": 1}", "{\"prompt\": 5}", "{\"tokens\": \"a\"}"}) {
    const Result<Documents> documents = ReadCorpus(line);
    ASSERT_TRUE(documents.ok()) << documents.status().message();
    EXPECT_EQ(*documents, Documents{EncodeBytes(line)}) << line;
  }
}

TEST(DraftCorpus, ErrorsNameLineAndValue) {
  EXPECT_EQ(ErrorOf("[1]\n[128]"), "line 2: token: 128, must be 0 to 127");
  EXPECT_EQ(ErrorOf("[-1]"), "line 1: token: -1, must be 0 to 127");
  EXPECT_EQ(ErrorOf("[1.5]"), "line 1: token: 1.5, must be 0 to 127");
  EXPECT_EQ(ErrorOf("[18446744073709551615]"),
            "line 1: token: 18446744073709551615, must be 0 to 127");
  EXPECT_EQ(ErrorOf("{\"tokens\": [128]}"), "line 1: token: 128, must be 0 to 127");
  EXPECT_FALSE(ReadDraftCorpus("/no/such/file", 128, EncodeBytes).ok());
}

}  // namespace
}  // namespace talon
