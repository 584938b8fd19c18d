#include "apps/common/prompts.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"

namespace talon {
namespace {

using Ids = std::vector<int32_t>;

std::string TempFile(const std::string& name, const std::string& contents) {
  std::string path = ::testing::TempDir() + "/" + name;
  EXPECT_TRUE(WriteFile(path, contents).ok());
  return path;
}

std::string ErrorOf(const auto& result) {
  EXPECT_FALSE(result.ok());
  return result.status().message();
}

TEST(PromptsTest, TokensNeedNoTokenizer) {
  const std::string path = TempFile("tokens.jsonl",
                                    "{\"id\": \"a\", \"tokens\": [1, 2, 3]}\n\n"
                                    "{\"prompt\": \"text\", \"tokens\": [9], \"answer\": \"b\"}\n");
  const auto prompts = PromptReader{.vocab_size = 10}.Read(path);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  ASSERT_EQ(prompts->size(), 2u);
  EXPECT_EQ((*prompts)[0].id, "a");
  EXPECT_EQ((*prompts)[0].tokens, (Ids{1, 2, 3}));
  EXPECT_EQ((*prompts)[1].id, "3");
  EXPECT_EQ((*prompts)[1].tokens, (Ids{9}));
  EXPECT_EQ((*prompts)[1].answer, "b");
}

TEST(PromptsTest, SchemasKeepTheOrderOfTheirKeys) {
  const std::string path = TempFile("schema.jsonl",
                                    "{\"tokens\": [1], \"json_schema\": {\"b\": 1, \"a\": 2}}\n"
                                    "{\"tokens\": [2]}\n");
  const auto prompts = PromptReader{.vocab_size = 10}.Read(path);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  EXPECT_EQ((*prompts)[0].json_schema, R"({"b":1,"a":2})");
  EXPECT_EQ((*prompts)[1].json_schema, "");
}

TEST(PromptsTest, TextNeedsATokenizer) {
  const std::string path = TempFile("text.jsonl", "{\"prompt\": \"text\"}\n");
  const std::string error = ErrorOf(PromptReader{.vocab_size = 10}.Read(path));
  EXPECT_NE(error.find("text.jsonl:1: "), std::string::npos) << error;
  EXPECT_NE(error.find("tokens"), std::string::npos) << error;
}

TEST(PromptsTest, MessagesNeedAChatTemplate) {
  const std::string path =
      TempFile("chat.jsonl", R"({"messages": [{"role": "user"}], "tools": [1]})"
                             "\n");
  PromptReader reader{.vocab_size = 10};
  EXPECT_NE(ErrorOf(reader.Read(path)).find("chat.jsonl:1: \"messages\""), std::string::npos);
  reader.chat = [](const OrderedJson& line) { return Ids(line["tools"].size(), 7); };
  EXPECT_EQ(reader.Read(path).value()[0].tokens, (Ids{7}));
}

TEST(PromptsTest, BadTokensNameTheLine) {
  for (const char* tokens : {"[10]", "[-1]", "[1.5]", "[\"1\"]", "7", "[99999999999]"}) {
    const std::string line = "{\"tokens\": " + std::string(tokens) + "}\n";
    const std::string path = TempFile("bad.jsonl", "{\"tokens\": [0]}\n" + line);
    const std::string error = ErrorOf(PromptReader{.vocab_size = 10}.Read(path));
    EXPECT_NE(error.find("bad.jsonl:2: "), std::string::npos) << error;
  }
}

TEST(PromptsTest, TokenLists) {
  EXPECT_EQ(ReadPromptTokens("1,2,3", 10).value(), (Ids{1, 2, 3}));
  EXPECT_EQ(ReadPromptTokens(" 4 5,\n6 ", 10).value(), (Ids{4, 5, 6}));
  EXPECT_EQ(ReadPromptTokens("@" + TempFile("ids.txt", "7, 8\n"), 10).value(), (Ids{7, 8}));
  const std::string lines = TempFile("ids.jsonl", "{\"tokens\": [3, 4]}\n{\"tokens\": [5]}\n");
  EXPECT_EQ(ReadPromptTokens("@" + lines, 10).value(), (Ids{3, 4}));
}

TEST(PromptsTest, BadTokenListsAreRefused) {
  EXPECT_EQ(ErrorOf(ReadPromptTokens("", 10)), "prompt_tokens: empty");
  EXPECT_NE(ErrorOf(ReadPromptTokens("1,x", 10)).find("'x'"), std::string::npos);
  EXPECT_NE(ErrorOf(ReadPromptTokens("1;2", 10)).find("'1;2'"), std::string::npos);
  EXPECT_NE(ErrorOf(ReadPromptTokens("1,10", 10)).find("10"), std::string::npos);
  EXPECT_NE(ErrorOf(ReadPromptTokens("-1", 10)).find("-1"), std::string::npos);
  EXPECT_NE(ErrorOf(ReadPromptTokens("@/no/such/file", 10)).find("/no/such/file"),
            std::string::npos);
}

}  // namespace
}  // namespace talon
