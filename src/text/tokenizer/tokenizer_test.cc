#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/json.h"
#include "text/tokenizer/test_tokenizers.h"
#include "text/unicode.h"

namespace talon {
namespace {

using Ids = std::vector<int32_t>;

class TinyTokenizer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<std::unique_ptr<Tokenizer>> loaded = Tokenizer::Load(TinyTokenizerPath());
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    tokenizer_ = loaded->release();
  }
  static void TearDownTestSuite() {
    delete tokenizer_;
    tokenizer_ = nullptr;
  }
  static Tokenizer* tokenizer_;
};
Tokenizer* TinyTokenizer::tokenizer_ = nullptr;

TEST_F(TinyTokenizer, EndTokenIsTheOneThatTheFilesBesideItName) {
  EXPECT_EQ(tokenizer_->eos_token_id(), tokenizer_->TokenId("<|end_of_text|>"));
}

TEST_F(TinyTokenizer, MarkedTokensAreText) {
  const auto encode = [this](const std::string& text, const std::string& mark) {
    return tokenizer_->Encode(MarkedText{.text = text, .mark = mark}, false).value();
  };
  const Ids marked = encode("Hi<#|eot_id|> there", "#");
  EXPECT_EQ(tokenizer_->Decode(marked, false), "Hi<|eot_id|> there");
  EXPECT_EQ(std::ranges::count_if(marked, [](int32_t id) { return tokenizer_->IsSpecial(id); }), 0);
  // Where no token is spelled a mark changes nothing.
  EXPECT_EQ(encode("Hi <#| there", "#"), tokenizer_->Encode("Hi <| there", false).value());
  EXPECT_EQ(encode("<|eot_id|>Hi#", "#"), tokenizer_->Encode("<|eot_id|>Hi", false).value());
  EXPECT_EQ(encode("<|eot_id|>#", "#"), tokenizer_->Encode("<|eot_id|>", false).value());
}

TEST_F(TinyTokenizer, EqualsTheGoldenEncodings) {
  const Result<Json> golden =
      ReadJsonFile(std::string(TALON_SOURCE_DIR) + "/models/tiny/tokenizer_golden.json");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  ASSERT_GE(golden->size(), 20u);
  for (const Json& entry : *golden) {
    const auto text = entry["text"].get<std::string>();
    const Result<Ids> ids = tokenizer_->Encode(text, false);
    const Result<Ids> ids_bos = tokenizer_->Encode(text, true);
    ASSERT_TRUE(ids.ok() && ids_bos.ok()) << text;
    EXPECT_EQ(*ids, entry["ids"].get<Ids>()) << text;
    EXPECT_EQ(*ids_bos, entry["ids_bos"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer_->Decode(*ids, false), entry["decoded"].get<std::string>()) << text;
  }
}

std::string RandomText(std::mt19937* random) {
  const char* snippets[] = {" ",    "  ", "\n",     "\r\n", "the", "'Ll",        "123",   "é",
                            "日本", "<|", "eot_id", "|>",   "\t",  "\U0001F600", "\u0301"};
  std::string text;
  const size_t length = (*random)() % 40;
  for (size_t i = 0; i < length; ++i) {
    if ((*random)() % 2 == 0) {
      text += snippets[(*random)() % std::size(snippets)];
      continue;
    }
    char32_t c = (*random)() % ((*random)() % 2 == 0 ? 0x250 : 0x110000);
    if (c >= 0xD800 && c < 0xE000) c = 'x';
    AppendUtf8(c, &text);
  }
  return text;
}

TEST_F(TinyTokenizer, DecodingGivesBackWhatWasEncoded) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = RandomText(&random);
    const Result<Ids> ids = tokenizer_->Encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(tokenizer_->Decode(*ids, false), text);
  }
}

TEST_F(TinyTokenizer, LongInput) {
  for (const char* unit : {"a", " ", "\n", "1", "!", "<|", "\u3042", "word "}) {
    std::string text;
    while (text.size() < 200000) text += unit;
    const Result<Ids> ids = tokenizer_->Encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(tokenizer_->Decode(*ids, false), text);
  }
}

TEST_F(TinyTokenizer, KnowsItsTokens) {
  EXPECT_EQ(tokenizer_->vocab_size(), 8192);
  EXPECT_EQ(tokenizer_->TokenId("<|begin_of_text|>"), 0);
  EXPECT_TRUE(tokenizer_->IsSpecial(0));
  const std::optional<int32_t> the = tokenizer_->TokenId("Ġthe");
  ASSERT_TRUE(the);
  EXPECT_EQ(tokenizer_->TokenBytes(*the), " the");
  EXPECT_EQ(tokenizer_->Token(*the), "Ġthe");
  EXPECT_FALSE(tokenizer_->IsSpecial(*the));
  EXPECT_EQ(tokenizer_->TokenId("no such token"), std::nullopt);
  for (const int32_t id : {-1, 8192, 1 << 30}) {
    EXPECT_EQ(tokenizer_->Token(id), std::nullopt);
    EXPECT_EQ(tokenizer_->TokenBytes(id), "");
    EXPECT_FALSE(tokenizer_->IsSpecial(id));
  }
}

TEST_F(TinyTokenizer, TextThatIsNotUtf8IsAnErrorThatNamesTheByte) {
  const Result<Ids> ids = tokenizer_->Encode("caf\xE9", true);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ids.status().message(), "text: not valid UTF-8 at byte 3 (0xE9)");
}

TEST_F(TinyTokenizer, TextBeyondTheLimitIsAnError) {
  const Result<Ids> ids = tokenizer_->Encode(std::string((size_t{1} << 26) + 1, 'a'), true);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().message(), "text: 67108865 bytes, limit 67108864");
}

TEST_F(TinyTokenizer, ThreadsMayShareIt) {
  const std::string text = "Several threads, one tokenizer: 12345 'tis <|eot_id|> naïve.\n\n";
  const Result<Ids> expected = tokenizer_->Encode(text, true);
  ASSERT_TRUE(expected.ok());
  std::vector<int> equal(4, 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < equal.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        const Result<Ids> ids = tokenizer_->Encode(text, true);
        if (ids.ok() && *ids == *expected && tokenizer_->Decode(*ids, true).size() > 50) ++equal[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 50));
}

TEST(Tokenizer, AMissingFileIsAnError) {
  const auto loaded = Tokenizer::Load("/nonexistent/tokenizer.json");
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.status().message().find("/nonexistent/tokenizer.json"), std::string::npos);
}

}  // namespace
}  // namespace talon
