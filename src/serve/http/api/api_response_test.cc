#include "serve/http/api/api_response.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/json.h"

namespace talon {
namespace {

class ApiResponse : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::Load(TALON_SOURCE_DIR "/models/tiny/tokenizer.json");
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    tokenizer_ = std::move(*loaded);
  }

  // The tokens of a text, each with itself as its only candidate.
  std::vector<EmittedToken> Tokens(const std::string& text) const {
    std::vector<EmittedToken> tokens;
    const auto ids = tokenizer_->Encode(text, /*add_special_tokens=*/false);
    for (const int32_t id : *ids) {
      tokens.push_back({.token = id, .drafted = true, .log_prob = -0.5f, .top = {{id, -0.5f}}});
    }
    return tokens;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

const AnswerHead kHead{.id = "cmpl-1", .created = 7, .model = "tiny"};
const AnswerHead kChatHead{
    .endpoint = Endpoint::kChat, .id = "chatcmpl-1", .created = 7, .model = "tiny"};

TEST_F(ApiResponse, CompletionLogprobsHaveOffsetsInCharacters) {
  const std::string text = "caf\u00e9 au lait";
  const auto tokens = Tokens(text);
  ASSERT_GT(tokens.size(), 2u);
  TokenJsonWriter writer(tokenizer_.get(), {});
  const std::span<const EmittedToken> all(tokens);
  const Json first = writer.Logprobs(Endpoint::kCompletions, all.first(2));
  const Json rest = writer.Logprobs(Endpoint::kCompletions, all.subspan(2));
  EXPECT_EQ(first["text_offset"][0], 0);
  EXPECT_GT(rest["text_offset"][0], first["text_offset"][1]);
  EXPECT_EQ(first["tokens"].size(), 2u);
  EXPECT_EQ(first["token_logprobs"][0], -0.5);
  EXPECT_EQ(first["top_logprobs"][0].size(), 1u);
  EXPECT_LT(rest["text_offset"].back(), 12);  // 12 characters, 13 bytes
}

// A decoder that strips the first space of a text, as Llama 2's does.
TEST(TokenJsonWriterTest, TokensAfterAPromptKeepTheirSpaces) {
  const auto tokenizer = Tokenizer::Parse(R"({
    "model": {"type": "BPE", "vocab": {"▁a": 0, "▁b": 1}, "merges": []},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})",
                                          "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::vector<EmittedToken> answer = {{.token = 1}, {.token = 0}};
  TokenJsonWriter writer(tokenizer->get(), std::vector<int32_t>{0});
  const Json logprobs = writer.Logprobs(Endpoint::kCompletions, answer);
  EXPECT_EQ(logprobs["tokens"], Json::array({" b", " a"}));
  EXPECT_EQ(logprobs["text_offset"], Json::array({0, 2}));
  EXPECT_EQ(writer.Trace({.tokens = answer})["tokens"][0]["text"], " b");
  const auto offsets = [&](bool keep_first_space) {
    return TokenJsonWriter(tokenizer->get(), {}, keep_first_space)
        .Logprobs(Endpoint::kCompletions, answer)["text_offset"];
  };
  EXPECT_EQ(offsets(false), Json::array({0, 1}));
  EXPECT_EQ(offsets(true), Json::array({0, 2}));
}

TEST_F(ApiResponse, ChatLogprobsSpellBytes) {
  const auto tokens = Tokens("Hi");
  TokenJsonWriter writer(tokenizer_.get(), {});
  const Json content = writer.Logprobs(Endpoint::kChat, tokens)["content"];
  ASSERT_EQ(content.size(), tokens.size());
  EXPECT_EQ(content[0]["bytes"][0], 'H');
  EXPECT_EQ(content[0]["top_logprobs"][0]["token"], content[0]["token"]);
}

TEST_F(ApiResponse, TokensThatAreNotUtf8AreEscaped) {
  bool found = false;
  for (int32_t id = 0; id < tokenizer_->vocab_size() && !found; ++id) {
    if (tokenizer_->TokenBytes(id) != "\xe2") continue;
    EXPECT_EQ(TokenText(tokenizer_.get(), id), "bytes:\\xe2");
    found = true;
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(TokenText(nullptr, 5), "token_id:5");
}

TEST_F(ApiResponse, TraceHasTokensTreeAndStats) {
  RequestUpdate update{.tokens = Tokens("The sea")};
  update.tree = VerifiedTree{.tokens = {5, 6, 7}, .parents = {-1, 0, 0}, .path = {0, 2}};
  update.stats = RequestStats{.passes = 2, .emitted = 5, .drafted = 9, .accepted = 3};
  update.stats->tried_at_depth[0] = 2;
  update.stats->accepted_at_depth[0] = 1;
  TokenJsonWriter writer(tokenizer_.get(), {});
  const Json trace = writer.Trace(update);
  std::string text;
  for (const Json& token : trace["tokens"]) text += token["text"].get<std::string>();
  EXPECT_EQ(text, "The sea");
  EXPECT_EQ(trace["tokens"][0]["drafted"], true);
  EXPECT_EQ(trace["tree"]["parents"], Json::array({-1, 0, 0}));
  EXPECT_EQ(trace["tree"]["accepted"], Json::array({0, 2}));
  EXPECT_EQ(trace["tree"]["texts"].size(), 3u);
  EXPECT_EQ(trace["stats"]["tau"], 2.5);
  EXPECT_EQ(trace["stats"]["tried_at_depth"], Json::array({2}));
  update.tree.reset();
  EXPECT_FALSE(writer.Trace(update).contains("tree"));
}

TEST_F(ApiResponse, WholeAnswers) {
  Usage usage;
  GenerateResult result{.tokens = Tokens("The sea"), .finish = FinishReason::kStop};
  result.stats.prompt_tokens = 4;
  result.stats.cached_tokens = 3;
  result.stats.passes = 2;
  result.stats.emitted = 5;
  usage.AddPrompt(result.stats);
  usage.AddChoice(result);
  usage.AddChoice(result);
  const ChoiceJson choice{.text = "The sea", .finish = FinishReason::kStop};
  const Json answer = WholeAnswer(kHead, {&choice, 1}, usage);
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], "The sea");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 2 * result.tokens.size());
  EXPECT_EQ(answer["usage"]["total_tokens"], 4 + 2 * result.tokens.size());
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(answer["usage"]["spec"]["tau"], 2.5);
  EXPECT_EQ(answer["usage"]["spec"]["passes"], 4);
  const Json chat = WholeAnswer(kChatHead, {&choice, 1}, usage);
  EXPECT_EQ(chat["object"], "chat.completion");
  EXPECT_EQ(chat["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(chat["choices"][0]["message"]["content"], "The sea");
}

TEST_F(ApiResponse, Chunks) {
  const Json role = RoleChunk(kChatHead, 1);
  EXPECT_EQ(role["object"], "chat.completion.chunk");
  EXPECT_EQ(role["choices"][0]["index"], 1);
  EXPECT_EQ(role["choices"][0]["delta"]["role"], "assistant");
  const Json text = TextChunk(kChatHead, {.text = "a"});
  EXPECT_EQ(text["choices"][0]["delta"]["content"], "a");
  EXPECT_TRUE(text["choices"][0]["finish_reason"].is_null());
  const Json last = TextChunk(kHead, {.finish = FinishReason::kLength});
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(last["choices"][0]["text"], "");
  EXPECT_TRUE(UsageChunk(kHead, {})["choices"].empty());
}

TEST_F(ApiResponse, ErrorsEndAnAnswer) {
  EXPECT_FALSE(ErrorOf({.finish = FinishReason::kStop}));
  EXPECT_EQ(ErrorOf({.finish = FinishReason::kDeadEnd})->code, "all_tokens_banned");
  EXPECT_EQ(ErrorOf({.finish = FinishReason::kCancelled})->status, 503);
  EXPECT_EQ(ErrorOf({.finish = FinishReason::kError, .error = Internal("x")})->status, 500);
  EXPECT_EQ(ErrorOf({.finish = FinishReason::kError, .error = ResourceExhausted("x")})->status,
            503);
}

}  // namespace
}  // namespace talon
