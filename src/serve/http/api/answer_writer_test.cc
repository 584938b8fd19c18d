#include "serve/http/api/answer_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>
#include <string>

#include "base/json.h"

namespace talon {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

// The data of server-sent events, with the event's name where it has one.
std::vector<std::pair<std::string, Json>> Events(const std::string& text) {
  std::vector<std::pair<std::string, Json>> events;
  std::stringstream lines(text);
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("event: ")) name = line.substr(7);
    if (!line.starts_with("data: ") || line == "data: [DONE]") continue;
    events.emplace_back(name, Json::parse(line.substr(6)));
  }
  return events;
}

GenerateResult EchoedResult() {
  GenerateResult result;
  result.prompt = {{.token = 5, .log_prob = kNone},
                   {.token = 6, .log_prob = -1, .top = {{7, -0.5f}, {6, -1}}}};
  result.tokens = {{.token = 8, .log_prob = -2, .top = {{8, -2}}}};
  result.text = "c";
  result.finish = FinishReason::kLength;
  return result;
}

TEST(AnswerWriter, EchoIsOneTextWithOneListOfLogprobs) {
  ApiRequest request;
  request.echo = true;
  request.sampling.logprobs = 1;
  const GenerateResult result = EchoedResult();
  const GenerateResult* const results[] = {&result};
  const AnswerParts parts{.request = request, .model = "m", .echoes = {"ab"}};
  const Json whole = NewAnswerWriter(parts)->Whole(results, {});
  const Json& choice = whole["choices"][0];
  EXPECT_EQ(choice["text"], "abc");
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), 3u);
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json::array({nullptr, -1.0, -2.0}));
  EXPECT_TRUE(choice["logprobs"]["top_logprobs"][0].is_null());
  EXPECT_FALSE(choice.contains("prompt_logprobs"));

  const auto writer = NewAnswerWriter(parts);
  const RequestUpdate first{.prompt = result.prompt, .text = ""};
  const RequestUpdate second{.tokens = result.tokens, .text = "c"};
  // One after the other: the operands of a + have no order.
  std::string stream = writer->Update(0, first);
  stream += writer->Update(0, second);
  stream += writer->EndChoice(0, result);
  std::string text;
  Json token_logprobs = Json::array();
  for (const auto& [name, data] : Events(stream)) {
    text += data["choices"][0]["text"];
    if (data["choices"][0]["logprobs"].is_null()) continue;
    for (const Json& value : data["choices"][0]["logprobs"]["token_logprobs"]) {
      token_logprobs.push_back(value);
    }
  }
  EXPECT_EQ(text, choice["text"].get<std::string>());
  EXPECT_EQ(token_logprobs, choice["logprobs"]["token_logprobs"]);
}

TEST(AnswerWriter, PromptLogprobsById) {
  ApiRequest request;
  request.prompt_logprobs = true;
  const GenerateResult result = EchoedResult();
  const GenerateResult* const results[] = {&result};
  const Json whole = NewAnswerWriter({.request = request})->Whole(results, {});
  const Json& rows = whole["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].is_null());
  EXPECT_EQ(rows[1]["6"]["logprob"], -1.0);
  EXPECT_EQ(rows[1]["6"]["rank"], 2);
  EXPECT_EQ(rows[1]["7"]["rank"], 1);
  request.endpoint = Endpoint::kChat;
  const Json chat = NewAnswerWriter({.request = request})->Whole(results, {});
  EXPECT_EQ(chat["prompt_logprobs"], rows);
}

TEST(AnswerWriter, VectorsAsNumbersAndAsBytes) {
  ApiRequest request{.endpoint = Endpoint::kEmbeddings};
  GenerateResult result;
  result.embedding = {1.0f, -2.5f};
  const GenerateResult* const results[] = {&result, &result};
  Usage usage;
  usage.prompt_tokens = 3;
  const Json numbers = NewAnswerWriter({.request = request, .model = "m"})->Whole(results, usage);
  ASSERT_EQ(numbers["data"].size(), 2u);
  EXPECT_EQ(numbers["data"][1]["index"], 1);
  EXPECT_EQ(numbers["data"][0]["embedding"], Json::array({1.0, -2.5}));
  EXPECT_EQ(numbers["usage"]["total_tokens"], 3);
  request.base64 = true;
  const Json bytes = NewAnswerWriter({.request = request})->Whole(results, usage);
  EXPECT_EQ(bytes["data"][0]["embedding"], "AACAPwAAIMA=");  // by Python's struct and base64
}

TEST(AnswerWriter, ResponsesStreamWhatTheyAnswerAsAWhole) {
  ApiRequest request{.endpoint = Endpoint::kResponses};
  request.repeated = {{"instructions", "x"}};
  GenerateResult result = EchoedResult();
  result.text = "one two";
  result.finish = FinishReason::kStop;
  const GenerateResult* const results[] = {&result};
  Usage usage;
  usage.prompt_tokens = 3;
  usage.completion_tokens = 2;
  Json whole = NewAnswerWriter({.request = request, .model = "m"})->Whole(results, usage);
  EXPECT_EQ(whole["status"], "completed");
  EXPECT_EQ(whole["instructions"], "x");
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "one two");
  EXPECT_EQ(whole["usage"]["total_tokens"], 5);

  const auto writer = NewAnswerWriter({.request = request, .model = "m"});
  std::string stream = writer->Begin();
  stream += writer->Update(0, {.text = "one"});
  stream += writer->Update(0, {});
  stream += writer->Update(0, {.text = " two"});
  stream += writer->EndChoice(0, result);
  stream += writer->End(usage);
  const auto events = Events(stream);
  std::vector<std::string> names;
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& [name, data] = events[i];
    names.push_back(name);
    EXPECT_EQ(data["type"], name);
    EXPECT_EQ(data["sequence_number"], i);
    if (name == "response.output_text.delta") text += data["delta"];
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"response.created", "response.in_progress",
                                      "response.output_item.added", "response.content_part.added",
                                      "response.output_text.delta", "response.output_text.delta",
                                      "response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.completed"}));
  EXPECT_EQ(text, "one two");
  Json last = events.back().second["response"];
  EXPECT_EQ(last["id"], events[0].second["response"]["id"]);
  for (Json* each : {&whole, &last}) {  // all but what each answer has of its own
    each->erase("id");
    each->erase("created_at");
    (*each)["output"][0].erase("id");
  }
  EXPECT_EQ(last, whole);
}

TEST(AnswerWriter, ResponsesWithReasoningAndCalls) {
  ApiRequest request{.endpoint = Endpoint::kResponses};
  request.tools.tools = {{.name = "add"}, {.name = "now"}};
  const AnswerParts parts{.request = request,
                          .answer_shape = {ToolFormat::kHermes, Thinking::kMay}};
  GenerateResult result = EchoedResult();
  result.finish = FinishReason::kStop;
  result.text =
      "<think>hm</think>So:\n<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}"
      "</tool_call>\n<tool_call>{\"name\": \"now\"}</tool_call>";
  const GenerateResult* const results[] = {&result};
  const Json whole = NewAnswerWriter(parts)->Whole(results, {});
  EXPECT_EQ(whole["status"], "completed");
  const Json& output = whole["output"];
  ASSERT_EQ(output.size(), 4u);
  EXPECT_EQ(output[0]["content"][0], (Json{{"type", "reasoning_text"}, {"text", "hm"}}));
  EXPECT_EQ(output[1]["content"][0]["text"], "So:");
  EXPECT_EQ(output[2]["name"], "add");
  EXPECT_EQ(output[2]["arguments"], "{\"a\": 1}");
  EXPECT_EQ(output[3]["arguments"], "{}");
  EXPECT_NE(output[2]["call_id"], output[3]["call_id"]);

  const auto writer = NewAnswerWriter(parts);
  std::string text = writer->Begin();
  for (const char byte : result.text) text += writer->Update(0, {.text = std::string(1, byte)});
  text += writer->EndChoice(0, result);
  text += writer->End({});
  const auto events = Events(text);
  std::map<std::string, std::string> deltas;  // by item
  Json items = Json::array();
  for (const auto& [name, data] : events) {
    if (name.ends_with(".delta")) deltas[data["item_id"]] += data["delta"];
    if (name == "response.output_item.added") {
      EXPECT_EQ(data["output_index"], items.size());
      EXPECT_EQ(data["item"]["status"], "in_progress");
    }
    if (name.ends_with("_text.done")) {
      EXPECT_EQ(deltas[data["item_id"]], data["text"].get<std::string>());
    }
    if (name.ends_with("arguments.done")) {
      EXPECT_EQ(deltas[data["item_id"]], data["arguments"].get<std::string>());
    }
    if (name == "response.output_item.done") items.push_back(data["item"]);
  }
  EXPECT_EQ(events.back().first, "response.completed");
  EXPECT_EQ(events.back().second["response"]["output"], items);
  ASSERT_EQ(items.size(), output.size());
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(items[i]["type"], output[i]["type"]);
    EXPECT_EQ(items[i]["status"], "completed");
    EXPECT_EQ(items[i].value("content", Json()), output[i].value("content", Json()));
    EXPECT_EQ(items[i].value("arguments", Json()), output[i].value("arguments", Json()));
  }
}

TEST(AnswerWriter, ResponsesThatEndEarlyOrFail) {
  const ApiRequest request{.endpoint = Endpoint::kResponses};
  const GenerateResult result = EchoedResult();
  const GenerateResult* const results[] = {&result};
  const Json whole = NewAnswerWriter({.request = request})->Whole(results, {});
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  const auto writer = NewAnswerWriter({.request = request});
  writer->EndChoice(0, result);
  EXPECT_EQ(Events(writer->End({}))[0].first, "response.incomplete");
  const auto failed = Events(writer->Fail({.status = 503, .message = "m", .code = "c"}));
  EXPECT_EQ(failed[0].first, "error");
  EXPECT_EQ(failed[0].second["message"], "m");
  EXPECT_EQ(failed[0].second["code"], "c");
}

}  // namespace
}  // namespace talon
