// Requests with tools, what they make answers match, and the answers.
#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "grammar/matcher.h"
#include "grammar/part_grammar.h"
#include "serve/http/api/api_request.h"
#include "serve/http/api/chat_answer.h"
#include "serve/http/api/tool_grammar.h"

namespace talon {
namespace {

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties":
    {"b": {"type": "integer"}, "a": {"type": "integer"}}, "required": ["b", "a"],
    "additionalProperties": false}}},
  {"type": "function", "function": {"name": "now"}}])";

const ApiDefaults kToolDefaults{.tool_format = ToolFormat::kHermes, .takes_tools = true};

std::optional<ApiError> ParseChat(const std::string& members, ApiRequest* request,
                                  const ApiDefaults& defaults = kToolDefaults) {
  return ParseApiRequest(R"({"messages": [{"role": "user", "content": "x"}], )" + members + "}",
                         Endpoint::kChat, defaults, request);
}

std::string WithTools(const std::string& more = "") {
  return std::string(R"("tools": )") + kTools + more;
}

TEST(ToolRequest, ToolsInTheirOrder) {
  ApiRequest request;
  ASSERT_FALSE(ParseChat(WithTools(), &request));
  EXPECT_EQ(request.tools.Names(), (std::vector<std::string>{"add", "now"}));
  EXPECT_EQ(request.chat.tools.size(), 2u);
  EXPECT_LT(request.tools.tools[0].schema.find("\"b\""),
            request.tools.tools[0].schema.find("\"a\""));
  EXPECT_FALSE(request.tools.required);
  EXPECT_TRUE(request.tools.parallel);
}

TEST(ToolRequest, NamesAsOpenAisClientsWriteThem) {
  const auto parses = [](const std::string& name) {
    ApiRequest request;
    return !ParseChat(R"("tools": [{"type": "function", "function": {"name": ")" + name + R"("}}])",
                      &request);
  };
  EXPECT_TRUE(parses("get_weather-now.v2"));
  EXPECT_TRUE(parses(std::string(64, 'a')));
  for (const std::string& name : {std::string(), std::string(65, 'a'), std::string("a/b")}) {
    EXPECT_FALSE(parses(name)) << name;
  }
}

TEST(ToolRequest, Choices) {
  ApiRequest request;
  ASSERT_FALSE(ParseChat(WithTools(R"(, "tool_choice": "none")"), &request));
  EXPECT_FALSE(request.tools.active());
  EXPECT_TRUE(request.chat.tools.is_null());
  ASSERT_FALSE(ParseChat(WithTools(R"(, "tool_choice": "required", "parallel_tool_calls": false)"),
                         &request));
  EXPECT_TRUE(request.tools.required);
  EXPECT_FALSE(request.tools.parallel);
  ASSERT_FALSE(
      ParseChat(WithTools(R"(, "tool_choice": {"type": "function", "function": {"name": "now"}})"),
                &request));
  EXPECT_TRUE(request.tools.required);
  EXPECT_EQ(request.tools.Names(), std::vector<std::string>{"now"});
  EXPECT_EQ(request.chat.tools.size(), 2u);
  ASSERT_FALSE(ParseChat(WithTools(R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools":
      {"mode": "auto", "tools": [{"type": "function", "function": {"name": "add"}}]}})"),
                         &request));
  EXPECT_FALSE(request.tools.required);
  EXPECT_EQ(request.tools.Names(), std::vector<std::string>{"add"});
}

TEST(ToolRequest, ErrorsNameTheirPlace) {
  const std::pair<std::string, std::string> cases[] = {
      {R"("tools": {})", "tools"},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type"},
      {R"("tools": [{"type": "function"}])", "tools[0].function"},
      {R"("tools": [{"type": "function", "function": {"name": "a b"}}])", "tools[0].function.name"},
      {R"("tools": [{"type": "function", "function": {"name": "a", "parameters": 3}}])",
       "tools[0].function.parameters"},
      {R"("tools": [{"type": "function", "function": {"name": "a", "strict": 3}}])",
       "tools[0].function.strict"},
      {R"("tools": [{"type": "function", "function": {"name": "a"}},
                    {"type": "function", "function": {"name": "a"}}])",
       "tools[1].function.name"},
      {R"("tool_choice": "required")", "tool_choice"},
      {WithTools(R"(, "tool_choice": "maybe")"), "tool_choice"},
      {WithTools(R"(, "tool_choice": {"type": "function", "function": {"name": "x"}})"),
       "tool_choice"},
      {WithTools(R"(, "regex": "a+")"), "tools"},
  };
  for (const auto& [members, place] : cases) {
    ApiRequest request;
    const auto error = ParseChat(members, &request);
    ASSERT_TRUE(error) << members;
    EXPECT_EQ(error->param, place) << error->message;
  }
  ApiRequest request;
  EXPECT_TRUE(ParseChat(WithTools(), &request, {.tool_format = ToolFormat::kHermes}));
  EXPECT_TRUE(ParseChat(WithTools(), &request, {.takes_tools = true}));
  EXPECT_FALSE(ParseChat(WithTools(R"(, "tool_choice": "none")"), &request, {}));
}

std::optional<ApiError> ParseResponses(const std::string& members, ApiRequest* request) {
  return ParseApiRequest(
      "{" + members + "}", Endpoint::kResponses,
      {.tool_format = ToolFormat::kHermes, .takes_tools = true, .takes_reasoning_effort = true},
      request);
}

TEST(ToolRequest, ToolsOfResponsesAreFlat) {
  ApiRequest request;
  ASSERT_FALSE(ParseResponses(
      R"("input": "x", "tools": [{"type": "function", "name": "add", "strict": true,
         "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}},
         {"type": "function", "name": "now", "description": "the time"}],
         "tool_choice": {"type": "function", "name": "add"}, "parallel_tool_calls": false,
         "reasoning": {"effort": "low", "summary": "auto"})",
      &request));
  ASSERT_EQ(request.tools.Names(), std::vector<std::string>{"add"});
  EXPECT_TRUE(request.tools.required);
  EXPECT_TRUE(request.tools.tools[0].strict);
  EXPECT_EQ(request.tools.tools[0].place, "tools[0]");
  EXPECT_EQ(request.chat.tools[0]["function"]["parameters"]["properties"].begin().key(), "b");
  EXPECT_EQ(request.chat.tools[1].dump(),
            R"({"type":"function","function":{"name":"now","description":"the time"}})");
  EXPECT_EQ(request.repeated["tool_choice"]["name"], "add");
  EXPECT_EQ(request.repeated["tools"].size(), 2u);
  EXPECT_EQ(request.chat.variables["reasoning_effort"], "low");
  ASSERT_FALSE(ParseResponses(R"("input": "x", "tools": [{"type": "function", "name": "add"}],
      "tool_choice": {"type": "allowed_tools", "mode": "required",
                      "tools": [{"type": "function", "name": "add"}]})",
                              &request));
  EXPECT_TRUE(request.tools.required);
}

TEST(ToolRequest, ItemsOfAResponseBecomeMessages) {
  ApiRequest request;
  ASSERT_FALSE(ParseResponses(R"("input": [{"role": "user", "content": "x"},
      {"type": "reasoning", "id": "rs_1", "summary": [],
       "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
       "content": [{"type": "output_text", "text": "So:", "annotations": []}]},
      {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}", "id": "fc_1"},
      {"type": "function_call", "call_id": "c2", "name": "now", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c1", "output": "3"},
      {"type": "function_call_output", "call_id": "c2",
       "output": [{"type": "input_text", "text": "noon"}]},
      {"type": "reasoning", "summary": [], "encrypted_content": "?"},
      {"type": "function_call", "call_id": "c3", "name": "add", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c3", "output": "4"}])",
                              &request));
  const auto call = [](const char* id, const char* name) {
    return Json{
        {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", "{}"}}}};
  };
  const auto result = [](const char* id, const Json& content) {
    return Json{{"role", "tool"}, {"tool_call_id", id}, {"content", content}};
  };
  const auto text = [](const char* text) {
    return Json::array({{{"type", "text"}, {"text", text}}});
  };
  const Json expected = {{{"role", "user"}, {"content", "x"}},
                         {{"role", "assistant"},
                          {"content", text("So:")},
                          {"reasoning_content", "hm"},
                          {"tool_calls", {call("c1", "add"), call("c2", "now")}}},
                         result("c1", "3"),
                         result("c2", text("noon")),
                         {{"role", "assistant"},
                          {"content", nullptr},
                          {"tool_calls", Json::array({call("c3", "add")})}},
                         result("c3", "4")};
  EXPECT_EQ(request.chat.messages, expected);
  for (const std::string item :
       {R"({"type": "function_call_output", "call_id": "c1"})",
        R"({"type": "function_call", "call_id": "c1", "name": "add"})",
        R"({"type": "item_reference", "id": "msg_1"})", R"({"type": "reasoning"}, 3)"}) {
    ApiRequest wrong;
    EXPECT_TRUE(ParseResponses(R"("input": [)" + item + "]", &wrong)) << item;
  }
}

TEST(ToolRequest, ReasoningEffortGoesToTheTemplate) {
  ApiRequest request;
  ASSERT_FALSE(
      ParseChat(R"("reasoning_effort": "low")", &request, {.takes_reasoning_effort = true}));
  EXPECT_EQ(request.chat.variables["reasoning_effort"], "low");
  EXPECT_TRUE(request.ignored.empty());
  ASSERT_FALSE(ParseChat(R"("reasoning_effort": "low")", &request));
  EXPECT_EQ(request.ignored, std::vector<std::string>{"reasoning_effort"});
}

// A vocabulary of bytes; the markers of all formats are text in it.
class Answers {
 public:
  Answers(ToolFormat format, const std::string& members, Thinking thinking = Thinking::kNever) {
    ApiRequest request;
    const auto error = ParseChat(members, &request, {.tool_format = format, .takes_tools = true});
    EXPECT_FALSE(error) << error.value_or(ApiError{}).message;
    const GrammarSpec spec = AnswerGrammar({format, thinking}, request.tools, request.grammar);
    auto grammar = CompileParts(spec.part, spec.spacing, trie_);
    EXPECT_TRUE(grammar.ok()) << grammar.status().message();
    matcher_ = std::make_unique<Matcher>(std::move(*grammar), &trie_);
  }
  bool operator()(const std::string& text) {
    Matcher::StateId state = matcher_->start();
    for (const char byte : text) state = matcher_->Next(state, static_cast<unsigned char>(byte));
    return matcher_->Accepts(state);
  }

 private:
  static std::vector<std::string> Bytes() {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 255; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return tokens;
  }
  const TokenTrie trie_{Bytes()};
  std::unique_ptr<Matcher> matcher_;
};

constexpr const char* kRequired = R"(, "tool_choice": "required")";
constexpr const char* kOne = R"(, "tool_choice": "required", "parallel_tool_calls": false)";
constexpr const char* kFormat = R"(, "response_format": {"type": "json_object"})";

TEST(ToolGrammar, Hermes) {
  const std::string call =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 1, \"a\": 2}}\n"
      "</tool_call>";
  const std::string bad = "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>";
  Answers any(ToolFormat::kHermes, WithTools());
  EXPECT_TRUE(any("Just text."));
  EXPECT_TRUE(any("Text, then\n" + call));
  EXPECT_TRUE(any(call + "\n" + call));
  EXPECT_FALSE(any(bad));
  Answers required(ToolFormat::kHermes, WithTools(kRequired));
  EXPECT_FALSE(required("Just text."));
  EXPECT_TRUE(required(call + "\n" + call));
  EXPECT_FALSE(required("<think>hm</think>\n\n" + call));
  Answers may_think(ToolFormat::kHermes, WithTools(kRequired), Thinking::kMay);
  EXPECT_TRUE(may_think("<think>hm</think>\n\n" + call));
  EXPECT_TRUE(may_think(call));
  Answers one(ToolFormat::kHermes, WithTools(kOne));
  EXPECT_TRUE(one(call));
  EXPECT_FALSE(one(call + "\n" + call));
  Answers thinking(ToolFormat::kHermes, WithTools(kRequired), Thinking::kBegun);
  EXPECT_FALSE(thinking(call));
  EXPECT_TRUE(thinking("hm</think>\n\n" + call));
  Answers format(ToolFormat::kHermes, WithTools(kFormat));
  EXPECT_FALSE(format("Just text."));
  EXPECT_TRUE(format("{\"x\": 1}"));
  EXPECT_TRUE(format(call));
}

TEST(ToolGrammar, AfterThoughts) {
  const std::string call = R"({"name": "now", "parameters": {}})";
  Answers llama(ToolFormat::kLlama3, WithTools(kRequired), Thinking::kMay);
  EXPECT_TRUE(llama(call));
  EXPECT_TRUE(llama("<think>hm</think>\n" + call));
  Answers free(ToolFormat::kHermes, WithTools(), Thinking::kBegun);
  EXPECT_TRUE(free("I may <tool_call> it.</think>Just text."));
  EXPECT_FALSE(free("Just text."));
  Answers json(ToolFormat::kNone, R"("response_format": {"type": "json_object"})",
               Thinking::kBegun);
  EXPECT_TRUE(json("hm {</think>{\"x\": 1}"));
  EXPECT_FALSE(json("{\"x\": 1}"));
  Answers regex(ToolFormat::kNone, R"("regex": "a+")", Thinking::kMay);
  EXPECT_TRUE(regex("aa"));
  EXPECT_TRUE(regex("<think>b</think>\n\naa"));
  EXPECT_FALSE(regex("<think>b</think>b"));
  Answers choice(ToolFormat::kNone, R"("choice": ["yes", "no"])", Thinking::kBegun);
  EXPECT_TRUE(choice("hm</think>no"));
  EXPECT_FALSE(choice("hm</think>maybe"));
  Answers gbnf(ToolFormat::kNone, R"("grammar": "root ::= \"(\" root? \")\"")", Thinking::kBegun);
  EXPECT_TRUE(gbnf("hm</think>(())"));
  EXPECT_FALSE(gbnf("hm</think>(()"));
}

TEST(ToolGrammar, Llama3) {
  const std::string call = R"({"name": "now", "parameters": {}})";
  Answers any(ToolFormat::kLlama3, WithTools());
  EXPECT_TRUE(any("Just {text}."));
  EXPECT_TRUE(any("<|python_tag|>" + call));
  EXPECT_TRUE(any(call + "; " + call));
  EXPECT_FALSE(any("{\"x\": 1}"));
  Answers required(ToolFormat::kLlama3, WithTools(kRequired));
  EXPECT_TRUE(required(call));
  EXPECT_FALSE(required("Just text."));
}

TEST(ToolGrammar, Mistral) {
  Answers any(ToolFormat::kMistral, WithTools());
  EXPECT_TRUE(any("Just text."));
  EXPECT_TRUE(
      any(R"([TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}])"));
  EXPECT_FALSE(any("[TOOL_CALLS] now"));
  Answers newer(ToolFormat::kMistralArgs, WithTools(kRequired));
  EXPECT_TRUE(newer("[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]now[ARGS]{}"));
  EXPECT_FALSE(newer("Just text."));
}

TEST(ToolGrammar, Harmony) {
  const std::string thoughts = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
  const std::string call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}";
  const std::string final_text = "<|channel|>final<|message|>Just text.";
  Answers any(ToolFormat::kHarmony, WithTools());
  EXPECT_TRUE(any(thoughts + final_text));
  EXPECT_TRUE(any(final_text));
  EXPECT_TRUE(any(thoughts + thoughts + call));
  EXPECT_FALSE(any("Just text."));
  Answers required(ToolFormat::kHarmony, WithTools(kRequired));
  EXPECT_TRUE(required(call));
  EXPECT_FALSE(required(final_text));
  Answers format(ToolFormat::kHarmony, R"("response_format": {"type": "json_object"})");
  EXPECT_FALSE(format(thoughts + final_text));
  EXPECT_TRUE(format(thoughts + "<|channel|>final <|constrain|>json<|message|>{\"x\": 1}"));
}

TEST(ChatAnswer, MessageAndDeltas) {
  ChatAnswer answer(ToolFormat::kHermes, {.tools = {"now"}, .constrained = true});
  const std::string text = "So:\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
  std::string content, arguments, id;
  for (const char byte : text) {
    for (const Json& delta : answer.Feed(std::string(1, byte))) {
      content += delta.value("content", "");
      if (!delta.contains("tool_calls")) continue;
      const Json& call = delta["tool_calls"][0];
      EXPECT_EQ(call["index"], 0);
      id += call.value("id", "");
      arguments += call["function"]["arguments"].get<std::string>();
    }
  }
  EXPECT_TRUE(answer.Finish().empty());
  EXPECT_EQ(content, "So:");
  EXPECT_EQ(arguments, "{}");
  const Json message = answer.Message();
  EXPECT_EQ(message["content"], "So:");
  EXPECT_EQ(message["tool_calls"][0]["id"], id);
  EXPECT_EQ(message["tool_calls"][0]["function"], (Json{{"name", "now"}, {"arguments", "{}"}}));
  EXPECT_FALSE(message["tool_calls"][0].contains("index"));
}

TEST(ChatAnswer, ChannelsAndIds) {
  ChatAnswer harmony(ToolFormat::kHarmony, {});
  harmony.Feed(
      "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final"
      "<|message|>Hi");
  harmony.Finish();
  EXPECT_EQ(harmony.Message()["reasoning_content"], "Hm");
  EXPECT_EQ(harmony.Message()["content"], "Hi");
  ChatAnswer mistral(ToolFormat::kMistral, {.tools = {"now"}});
  mistral.Feed("[TOOL_CALLS]now[ARGS]{}");
  EXPECT_TRUE(mistral.Message()["content"].is_null());
  EXPECT_EQ(mistral.Message()["tool_calls"][0]["id"].get<std::string>().size(), 9u);
}

}  // namespace
}  // namespace talon
