// What whole templates, in the manner of the families of models in use, make of a conversation. The
// expected prompts are what jinja2 gives, set up as transformers does.
#include <gtest/gtest.h>

#include <string>

#include "base/ordered_json.h"
#include "text/chat_options.h"
#include "text/chat_template.h"
#include "text/test_chat_templates.h"

namespace talon {
namespace {

struct Options {
  bool prompt = true;
  bool tools = false;
};

std::string Render(std::string_view source, std::string_view messages, const Options& options) {
  const auto chat_template =
      ChatTemplate::Parse(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!chat_template.ok()) return "error: " + chat_template.status().message();
  ChatOptions chat_options{.add_generation_prompt = options.prompt};
  if (options.tools) chat_options.tools = ParseOrderedJson(kTools, "tools").value();
  const auto prompt =
      chat_template->Render(ParseOrderedJson(messages, "messages").value(), chat_options);
  return prompt.ok() ? *prompt : "error: " + prompt.status().message();
}

TEST(ChatFamiliesTest, Headers) {
  EXPECT_EQ(Render(kHeaders, kChat, {.prompt = true, .tools = false}),
            "<s><|head|>system<|/head|>\n"
            "\n"
            "Today: 1 Jan\n"
            "\n"
            "Be kind.<|eot|><|head|>user<|/head|>\n"
            "\n"
            "Hi<|eot|><|head|>assistant<|/head|>\n"
            "\n"
            "<think>\n"
            "hm\n"
            "</think>\n"
            "\n"
            "Hello<|eot|><|head|>user<|/head|>\n"
            "\n"
            "Bye<|eot|><|head|>assistant<|/head|>\n"
            "\n");
  EXPECT_EQ(Render(kHeaders, kChat, {.prompt = false, .tools = true}),
            "<s><|head|>system<|/head|>\n"
            "\n"
            "Tools: ipython\n"
            "Today: 1 Jan\n"
            "\n"
            "Be kind.<|eot|><|head|>user<|/head|>\n"
            "\n"
            "Hi<|eot|><|head|>assistant<|/head|>\n"
            "\n"
            "<think>\n"
            "hm\n"
            "</think>\n"
            "\n"
            "Hello<|eot|><|head|>user<|/head|>\n"
            "\n"
            "Bye<|eot|>");
  EXPECT_EQ(Render(kHeaders, kCalls, {.prompt = true, .tools = false}),
            "<s><|head|>system<|/head|>\n"
            "\n"
            "Today: 1 Jan\n"
            "\n"
            "<|eot|><|head|>user<|/head|>\n"
            "\n"
            "Weather?<|eot|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": "
            "2}}<|eot|>city=\"Oslo\", days=\"2\"<|head|>ipython<|/head|>\n"
            "\n"
            "\"sun\"<|head|>ipython<|/head|>\n"
            "\n"
            "\"rain\"<|head|>assistant<|/head|>\n"
            "\n");
  EXPECT_EQ(Render(kHeaders, kCalls, {.prompt = false, .tools = true}),
            "<s><|head|>system<|/head|>\n"
            "\n"
            "Tools: ipython\n"
            "Today: 1 Jan\n"
            "\n"
            "<|eot|><|head|>user<|/head|>\n"
            "\n"
            "Weather?<|eot|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": "
            "2}}<|eot|>city=\"Oslo\", days=\"2\"<|head|>ipython<|/head|>\n"
            "\n"
            "\"sun\"<|head|>ipython<|/head|>\n"
            "\n"
            "\"rain\"");
}

TEST(ChatFamiliesTest, Marks) {
  EXPECT_EQ(Render(kMarks, kChat, {.prompt = true, .tools = false}),
            "<|start|>system\n"
            " Be kind. <|stop|>\n"
            "<|start|>user\n"
            "Hi<|stop|>\n"
            "<|start|>assistant\n"
            "Hello <|stop|>\n"
            "<|start|>user\n"
            "Bye<|stop|>\n"
            "<|start|>assistant\n");
  EXPECT_EQ(Render(kMarks, kChat, {.prompt = false, .tools = true}),
            "<|start|>system\n"
            " Be kind. \n"
            "\n"
            "# Tools\n"
            "<tools>\n"
            "{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": "
            "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}\n"
            "</tools><|stop|>\n"
            "<|start|>user\n"
            "Hi<|stop|>\n"
            "<|start|>assistant\n"
            "Hello <|stop|>\n"
            "<|start|>user\n"
            "Bye<|stop|>\n");
  EXPECT_EQ(Render(kMarks, kCalls, {.prompt = true, .tools = false}),
            "<|start|>user\n"
            "Weather?<|stop|>\n"
            "<|start|>assistant\n"
            "\n"
            "<call>\n"
            "{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n"
            "</call><|stop|>\n"
            "<|start|>user\n"
            "<result>\n"
            "sun\n"
            "</result>\n"
            "<result>\n"
            "rain\n"
            "</result><|stop|>\n"
            "<|start|>assistant\n");
  EXPECT_EQ(Render(kMarks, kCalls, {.prompt = false, .tools = true}),
            "<|start|>system\n"
            "# Tools\n"
            "<tools>\n"
            "{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": "
            "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}\n"
            "</tools><|stop|>\n"
            "<|start|>user\n"
            "Weather?<|stop|>\n"
            "<|start|>assistant\n"
            "\n"
            "<call>\n"
            "{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n"
            "</call><|stop|>\n"
            "<|start|>user\n"
            "<result>\n"
            "sun\n"
            "</result>\n"
            "<result>\n"
            "rain\n"
            "</result><|stop|>\n");
}

TEST(ChatFamiliesTest, Instructions) {
  EXPECT_EQ(Render(kInstructions, kChat, {.prompt = true, .tools = false}),
            "<s>[INST] Hi[/INST] <think>\n"
            "hm\n"
            "</think>\n"
            "\n"
            "Hello</s>[INST]  Be kind. \n"
            "\n"
            "Bye[/INST]");
  EXPECT_EQ(Render(kInstructions, kChat, {.prompt = false, .tools = true}),
            "<s>[INST] Hi[/INST] <think>\n"
            "hm\n"
            "</think>\n"
            "\n"
            "Hello</s>[TOOLS][{\"type\": \"function\", \"function\": {\"name\": \"weather\", "
            "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": "
            "\"string\"}}}}}][/TOOLS][INST]  Be kind. \n"
            "\n"
            "Bye[/INST]");
  EXPECT_EQ(Render(kInstructions, kCalls, {.prompt = true, .tools = false}),
            "<s>[INST] Weather?[/INST][CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": "
            "\"Oslo\", \"days\": 2}, \"id\": \"c1\"}]</s>[RESULTS]{\"content\": "
            "sun}[/RESULTS][RESULTS]{\"content\": rain}[/RESULTS]");
  EXPECT_EQ(
      Render(kInstructions, kCalls, {.prompt = false, .tools = true}),
      "<s>[TOOLS][{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": "
      "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}][/TOOLS][INST] "
      "Weather?[/INST][CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", "
      "\"days\": 2}, \"id\": \"c1\"}]</s>[RESULTS]{\"content\": "
      "sun}[/RESULTS][RESULTS]{\"content\": rain}[/RESULTS]");
}

TEST(ChatFamiliesTest, Turns) {
  EXPECT_EQ(Render(kTurns, kChat, {.prompt = true, .tools = false}),
            "<s><turn>user\n"
            " Be kind. \n"
            "\n"
            "Hi</turn>\n"
            "<turn>model\n"
            "<think>\n"
            "hm\n"
            "</think>\n"
            "\n"
            "Hello</turn>\n"
            "<turn>user\n"
            "Bye</turn>\n"
            "<turn>model\n");
  EXPECT_EQ(Render(kTurns, kChat, {.prompt = false, .tools = true}),
            "<s><turn>user\n"
            " Be kind. \n"
            "\n"
            "Hi</turn>\n"
            "<turn>model\n"
            "<think>\n"
            "hm\n"
            "</think>\n"
            "\n"
            "Hello</turn>\n"
            "<turn>user\n"
            "Bye</turn>\n");
  EXPECT_EQ(Render(kTurns, kCalls, {.prompt = true, .tools = false}),
            "<s><turn>user\n"
            "Weather?</turn>\n"
            "<turn>model\n"
            "</turn>\n"
            "<turn>tool\n"
            "sun</turn>\n"
            "<turn>tool\n"
            "rain</turn>\n"
            "<turn>model\n");
  EXPECT_EQ(Render(kTurns, kCalls, {.prompt = false, .tools = true}),
            "<s><turn>user\n"
            "Weather?</turn>\n"
            "<turn>model\n"
            "</turn>\n"
            "<turn>tool\n"
            "sun</turn>\n"
            "<turn>tool\n"
            "rain</turn>\n");
}

TEST(ChatFamiliesTest, OneLine) {
  EXPECT_EQ(Render(kOneLine, kChat, {.prompt = true, .tools = false}),
            "<|system|>\n"
            " Be kind. <|end|>\n"
            "<|user|>\n"
            "Hi<|end|>\n"
            "<|assistant|>\n"
            "<think>\n"
            "hm\n"
            "</think>\n"
            "\n"
            "Hello <|end|>\n"
            "<|user|>\n"
            "Bye<|end|>\n"
            "<|assistant|>\n");
  EXPECT_EQ(Render(kOneLine, kChat, {.prompt = false, .tools = true}),
            "<|system|>\n"
            " Be kind. <|end|>\n"
            "<|user|>\n"
            "Hi<|end|>\n"
            "<|assistant|>\n"
            "<think>\n"
            "hm\n"
            "</think>\n"
            "\n"
            "Hello <|end|>\n"
            "<|user|>\n"
            "Bye<|end|>\n"
            "</s>");
  EXPECT_EQ(Render(kOneLine, kCalls, {.prompt = true, .tools = false}),
            "<|system|>\n"
            "You help.<|end|>\n"
            "<|user|>\n"
            "Weather?<|end|>\n"
            "<|call|>function<|sep|>weather<|tool|>\n"
            "sun<|end|>\n"
            "<|tool|>\n"
            "rain<|end|>\n"
            "<|assistant|>\n");
  EXPECT_EQ(Render(kOneLine, kCalls, {.prompt = false, .tools = true}),
            "<|system|>\n"
            "You help.<|end|>\n"
            "<|user|>\n"
            "Weather?<|end|>\n"
            "<|call|>function<|sep|>weather<|tool|>\n"
            "sun<|end|>\n"
            "<|tool|>\n"
            "rain<|end|>\n"
            "</s>");
}

TEST(ChatFamiliesTest, SplitThoughts) {
  EXPECT_EQ(Render(kSplitThoughts, kChat, {.prompt = true, .tools = false}),
            "<s> Be kind. <User>Hi<Assistant>\n"
            "\n"
            "Hello </s><User>Bye<Assistant><think>\n");
  EXPECT_EQ(Render(kSplitThoughts, kChat, {.prompt = false, .tools = true}),
            "<s> Be kind. <User>Hi<Assistant>\n"
            "\n"
            "Hello </s><User>Bye");
  EXPECT_EQ(Render(kSplitThoughts, kCalls, {.prompt = true, .tools = false}),
            "<s><User>Weather?<Calls>function\n"
            "```json\n"
            "{\"city\": \"Oslo\", \"days\": 2}\n"
            "```<Results><r>sun</r><r>rain</r>");
  EXPECT_EQ(Render(kSplitThoughts, kCalls, {.prompt = false, .tools = true}),
            "<s><User>Weather?<Calls>function\n"
            "```json\n"
            "{\"city\": \"Oslo\", \"days\": 2}\n"
            "```<Results><r>sun</r><r>rain</r>");
}

}  // namespace
}  // namespace talon
