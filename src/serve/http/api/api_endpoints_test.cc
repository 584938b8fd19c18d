// Requests to the endpoints other than completions.
#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "serve/http/api/api_request.h"

namespace talon {
namespace {

std::optional<ApiError> ParseAt(const std::string& body, ApiRequest* request, Endpoint endpoint) {
  return ParseApiRequest(body, endpoint, {.drafter = "SUFFIX"}, request);
}

TEST(ApiEndpoints, Embeddings) {
  ApiRequest request;
  ASSERT_FALSE(ParseAt(R"({"input": ["a", [1, 2]], "encoding_format": "base64"})", &request,
                       Endpoint::kEmbeddings));
  EXPECT_EQ(request.prompts.size(), 2u);
  EXPECT_TRUE(request.base64);
  EXPECT_EQ(request.prompt_outputs.pooling, Pooling::kLast);
  EXPECT_EQ(request.sampling.max_tokens, 0);
  ASSERT_FALSE(ParseAt(R"({"input": "a", "pooling": "mean", "user": "u"})", &request,
                       Endpoint::kEmbeddings));
  EXPECT_EQ(request.prompt_outputs.pooling, Pooling::kMean);
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": {"text": "a"}})", "input"},
      {R"({"input": "a", "encoding_format": "hex"})", "encoding_format"},
      {R"({"input": "a", "pooling": "max"})", "pooling"},
      {R"({"input": "a", "dimensions": 8})", "dimensions"},
      {R"({"input": "a", "temperature": 1})", "temperature"},
  };
  for (const auto& [body, param] : cases) {
    const auto error = ParseAt(body, &request, Endpoint::kEmbeddings);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->param, param) << body;
  }
}

TEST(ApiEndpoints, Responses) {
  ApiRequest request;
  ASSERT_FALSE(ParseAt(R"({"input": "hi", "instructions": "be brief", "max_output_tokens": 9,
      "temperature": 0.5, "store": false, "metadata": {"k": "v"}})",
                       &request, Endpoint::kResponses));
  const Json expected = Json::array(
      {{{"role", "system"}, {"content", "be brief"}}, {{"role", "user"}, {"content", "hi"}}});
  EXPECT_EQ(request.chat.messages, expected);
  EXPECT_EQ(request.sampling.max_tokens, 9);
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.repeated["metadata"]["k"], "v");
  ASSERT_FALSE(ParseAt(R"({"input": "a", "text": {"format": {"type": "text"}, "verbosity": "low"},
      "reasoning": {"effort": "low"}})",
                       &request, Endpoint::kResponses));
  EXPECT_EQ(request.ignored, (std::vector<std::string>{"text.verbosity", "reasoning"}));
  ASSERT_FALSE(ParseAt(R"({"input": [
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
      {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
      {"role": "user", "content": "c"}]})",
                       &request, Endpoint::kResponses));
  ASSERT_EQ(request.chat.messages.size(), 3u);
  EXPECT_EQ(request.chat.messages[0]["content"][0]["type"], "text");
  EXPECT_EQ(request.chat.messages[1]["content"][0]["text"], "b");
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "input"},
      {R"({"input": 5})", "input"},
      {R"({"input": [{"type": "function_call_output"}]})", "input[0]"},
      {R"({"instructions": "x", "input": [{"role": "user"}]})", "input[0]"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})", "input[0]"},
      {R"({"input": "a", "previous_response_id": "resp_1"})", "previous_response_id"},
      {R"({"input": "a", "tools": [{"type": "function"}]})", "tools[0].name"},
      {R"({"input": "a", "text": {"format": {"type": "json_schema"}}})", "text.format"},
      {R"({"input": "a", "max_tokens": 5})", "max_tokens"},
      {R"({"input": "a", "n": 2})", "n"},
  };
  for (const auto& [body, param] : cases) {
    const auto error = ParseAt(body, &request, Endpoint::kResponses);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->param, param) << body << error->message;
  }
}

TEST(ApiEndpoints, ChatMessages) {
  ApiRequest request;
  const auto error = ParseAt(R"({"messages": [{"role": "system", "content": "s"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
      "max_completion_tokens": 5, "logprobs": true, "top_logprobs": 3})",
                             &request, Endpoint::kChat);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(request.chat.messages[1]["content"][1]["text"], "b");
  EXPECT_EQ(request.sampling.max_tokens, 5);
  EXPECT_EQ(request.sampling.logprobs, 3);
  EXPECT_TRUE(request.chat.add_generation_prompt);
}

TEST(ApiEndpoints, BadMessagesNameTheirPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "messages"},
      {R"({"messages": "hi"})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": ["hi"]})", "messages[0]"},
      {R"({"messages": [{"content": "x"}]})", "messages[0]"},
      {R"({"messages": [{"role": "user", "content": "x"}, {"role": "user"}]})", "messages[1]"},
      {R"({"messages": [{"role": 1, "content": "x"}]})", "messages[0]"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0]"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "messages[0]"},
      {R"({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2})", "top_logprobs"},
      {R"({"messages": [{"role": "user", "content": "x"}], "prompt": "x"})", "prompt"},
  };
  for (const auto& [body, param] : cases) {
    ApiRequest request;
    const auto error = ParseAt(body, &request, Endpoint::kChat);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->param, param) << body;
  }
}

TEST(ApiEndpoints, TokenizeAndDetokenize) {
  TokenizeRequest tokenize;
  ASSERT_FALSE(
      ParseTokenizeRequest(R"({"prompt": "a", "add_special_tokens": false})", {}, &tokenize));
  EXPECT_EQ(tokenize.prompt, "a");
  EXPECT_FALSE(tokenize.add_special_tokens);
  EXPECT_TRUE(tokenize.parse_special);
  ASSERT_FALSE(ParseTokenizeRequest(R"({"prompt": "a", "parse_special": false})", {}, &tokenize));
  EXPECT_FALSE(tokenize.parse_special);
  ASSERT_FALSE(
      ParseTokenizeRequest(R"({"messages": [{"role": "user", "content": "x"}]})", {}, &tokenize));
  EXPECT_FALSE(tokenize.parse_special);
  EXPECT_TRUE(ParseTokenizeRequest("{}", {}, &tokenize));
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}]})";
  const std::string with_tools = R"({"messages": [{"role": "user", "content": "x"}], )" + tools;
  const ApiDefaults takes_tools{.tool_format = ToolFormat::kHermes, .takes_tools = true};
  ASSERT_FALSE(ParseTokenizeRequest(with_tools, takes_tools, &tokenize));
  EXPECT_EQ(tokenize.chat->tools.size(), 1u);
  EXPECT_EQ(ParseTokenizeRequest(with_tools, {}, &tokenize)->param, "tools");
  EXPECT_EQ(ParseTokenizeRequest(R"({"prompt": "x", )" + tools, takes_tools, &tokenize)->param,
            "tools");
  DetokenizeRequest detokenize;
  ASSERT_FALSE(ParseDetokenizeRequest(R"({"tokens": [1, 2]})", &detokenize));
  EXPECT_EQ(detokenize.tokens, (std::vector<int32_t>{1, 2}));
  for (const char* bad : {"{}", R"({"tokens": "a"})", R"({"tokens": [-1]})"}) {
    EXPECT_TRUE(ParseDetokenizeRequest(bad, &detokenize)) << bad;
  }
}

}  // namespace
}  // namespace talon
