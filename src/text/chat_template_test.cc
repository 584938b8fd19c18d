#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "text/chat_options.h"
#include "base/ordered_json.h"

namespace talon {
namespace {

constexpr std::string_view kChatMl =
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

OrderedJson FromText(std::string_view text) { return ParseOrderedJson(text, "test").value(); }

const OrderedJson kHi = FromText(R"([{"role": "user", "content": "Hi"}])");

std::string RenderOrError(const ChatTemplate& chat_template, const OrderedJson& messages,
                          const ChatOptions& options = {}) {
  const auto prompt = chat_template.Render(messages, options);
  return prompt.ok() ? *prompt : "error: " + prompt.status().message();
}

std::string RenderOrError(std::string_view source, const OrderedJson& messages,
                          const ChatOptions& options = {}) {
  const auto chat_template = ChatTemplate::Parse(source, {{"bos_token", "<s>"}});
  if (!chat_template.ok()) return "error: " + chat_template.status().message();
  return RenderOrError(*chat_template, messages, options);
}

// A directory of a model that has only the files a test writes.
class ModelDirectory {
 public:
  ModelDirectory()
      : path_(std::filesystem::path(testing::TempDir()) /
              ("chat_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    std::filesystem::create_directories(path_);
  }
  ~ModelDirectory() { std::filesystem::remove_all(path_); }

  void Write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(WriteFile((path_ / name).string(), text).ok());
  }
  Result<ChatTemplate> Load() const { return ChatTemplate::Load(path_.string()); }

 private:
  std::filesystem::path path_;
};

TEST(ChatTemplateTest, PlainForm) {
  const auto messages = FromText(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": null},
    {"role": "user", "content": [{"type": "text", "text": "How"}, {"type": "text", "text": "so?"}]}
  ])");
  EXPECT_EQ(RenderOrError(ChatTemplate::Plain(), messages),
            "Be brief.\n\nUser: Hi\nAssistant: \nUser: How\nso?\nAssistant:");
  EXPECT_EQ(RenderOrError(ChatTemplate::Plain(), kHi, {.add_generation_prompt = false}),
            "User: Hi\n");
  EXPECT_TRUE(ChatTemplate::Plain().is_plain());
  EXPECT_EQ(ChatTemplate::Plain().source(), "");
}

TEST(ChatTemplateTest, PlainFormRefusesTools) {
  EXPECT_EQ(RenderOrError(ChatTemplate::Plain(), kHi, {.tools = OrderedJson::array()}),
            "error: tools: the model has no chat template that could show them");
}

TEST(ChatTemplateTest, BundledModelGetsThePlainForm) {
  const auto chat_template = ChatTemplate::Load(std::string(TALON_SOURCE_DIR) + "/models/tiny");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status().message();
  EXPECT_TRUE(chat_template->is_plain());
}

TEST(ChatTemplateTest, GenerationPromptAndVariables) {
  EXPECT_EQ(RenderOrError(kChatMl, kHi), "<|user|>Hi<|end|><|assistant|>");
  EXPECT_EQ(RenderOrError(kChatMl, kHi, {.add_generation_prompt = false}), "<|user|>Hi<|end|>");
  EXPECT_EQ(RenderOrError("{{ bos_token }}{{ tools is none }}{{ documents is none }}"
                          "{{ eos_token is defined }}{{ enable_thinking }}",
                          kHi, {.variables = {{"enable_thinking", false}}}),
            "<s>TrueTrueFalseFalse");
  EXPECT_EQ(RenderOrError("{{ bos_token }}", kHi, {.variables = {{"bos_token", "!"}}}), "!");
}

TEST(ChatTemplateTest, ToolsKeepTheOrderOfTheirKeys) {
  const auto tools = FromText(R"([{"type": "function", "function": {"name": "f", "a": 1}}])");
  EXPECT_EQ(RenderOrError("{{ tools|tojson }}", kHi, {.tools = tools}),
            R"([{"type": "function", "function": {"name": "f", "a": 1}}])");
  EXPECT_EQ(RenderOrError("{{ tools|tojson }}", kHi, {.tools = {{"a", 1}}}),
            "error: tools: expected a list, found object");
}

TEST(ChatTemplateTest, SortedJsonConverts) {
  const nlohmann::json messages = {{{"role", "user"}, {"content", "Hi"}}};
  EXPECT_EQ(RenderOrError(kChatMl, messages), "<|user|>Hi<|end|><|assistant|>");
}

TEST(ChatTemplateTest, PartsAreJoinedUnlessTheTemplateLoopsOverThem) {
  const auto messages = FromText(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  EXPECT_EQ(RenderOrError("{{ messages[0].content }}", messages), "a\nb");
  constexpr std::string_view kLoops =
      "{% for m in messages %}{% set content = m['content'] %}{% if content is string %}{{ content "
      "}}"
      "{% else %}{% for part in content %}<{{ part.text }}>{% endfor %}{% endif %}{% endfor %}";
  EXPECT_EQ(RenderOrError(kLoops, messages), "<a><b>");
  EXPECT_EQ(RenderOrError(kLoops, kHi), "Hi");
}

TEST(ChatTemplateTest, ArgumentsBecomeObjectsUnlessTheTemplateTakesText) {
  const auto messages = FromText(
      R"([{"role": "assistant", "content": null, "tool_calls": [
           {"function": {"name": "f", "arguments": "{\"z\":1,\"a\":2}"}}]}])");
  const std::string call = "messages[0].tool_calls[0].function";
  EXPECT_EQ(RenderOrError("{{ " + call + ".arguments|tojson }}", messages), R"({"z": 1, "a": 2})");
  EXPECT_EQ(RenderOrError("{{ " + call + "['arguments'] }}", messages), R"({"z":1,"a":2})");
  EXPECT_EQ(RenderOrError("{{ 'x' + " + call + ".arguments }}", messages), R"(x{"z":1,"a":2})");
  EXPECT_EQ(RenderOrError(
                "{% set a = " + call +
                    ".arguments %}{% if a is string %}{{ a }}{% else %}{{ a|tojson }}{% endif %}",
                messages),
            R"({"z":1,"a":2})");
  auto broken = messages;
  broken[0]["tool_calls"][0]["function"]["arguments"] = "{x";
  EXPECT_EQ(RenderOrError("{{ " + call + ".arguments|tojson }}", broken),
            "error: messages[0].tool_calls[0].function.arguments: not valid JSON at byte 2");
}

TEST(ChatTemplateTest, ContinueFinalMessage) {
  const auto messages = FromText(
      R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": " Once upon "}])");
  const ChatOptions options{.continue_final_message = true};
  EXPECT_EQ(RenderOrError(kChatMl, messages, options), "<|user|>Hi<|end|><|assistant|> Once upon ");
  EXPECT_EQ(
      RenderOrError("{% for m in messages %}[{{ m.content|trim }}]{% endfor %}", messages, options),
      "[Hi][Once upon");
  EXPECT_EQ(RenderOrError(ChatTemplate::Plain(), messages, options),
            "User: Hi\nAssistant:  Once upon ");
  EXPECT_EQ(
      RenderOrError("nothing", messages, options),
      "error: continue_final_message: the chat template does not show the last message's text");
  EXPECT_EQ(RenderOrError(kChatMl, FromText(R"([{"role": "user", "content": " "}])"), options),
            "error: continue_final_message: the last message has no text");
}

TEST(ChatTemplateTest, BadMessagesNameThePlace) {
  const auto error = [](std::string_view messages) {
    return RenderOrError(kChatMl, FromText(messages));
  };
  EXPECT_EQ(error("{}"), "error: messages: expected a list, found object");
  EXPECT_EQ(error("[]"), "error: messages: the list is empty");
  EXPECT_EQ(error("[1]"), "error: messages[0]: expected an object");
  EXPECT_EQ(error(R"([{"content": "x"}])"),
            "error: messages[0].role: expected a name such as 'user'");
  EXPECT_EQ(error(R"([{"role": "user", "content": 5}])"),
            "error: messages[0].content: expected a string or a list of parts, found number");
  EXPECT_EQ(error(R"([{"role": "user", "content": [{"type": "image_url"}]}])"),
            "error: messages[0].content[0]: type 'image_url' is not supported, only 'text'");
  EXPECT_EQ(error(R"([{"role": "user", "content": [{"type": "text"}]}])"),
            "error: messages[0].content[0]: text must be a string");
  EXPECT_EQ(error(R"([{"role": "user", "tool_calls": 5}])"),
            "error: messages[0].tool_calls: expected a list");
}

TEST(ChatTemplateTest, RaisedMessagesReachTheCaller) {
  const auto chat_template =
      ChatTemplate::Parse("{{ raise_exception('Only user and assistant') }}", nullptr);
  ASSERT_TRUE(chat_template.ok());
  const auto prompt = chat_template->Render(kHi, {});
  EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(prompt.status().message(), "Only user and assistant");
}

TEST(ChatTemplateTest, UnknownConstructsFailAtParsing) {
  EXPECT_EQ(RenderOrError("a\n{{ messages|foo }}", kHi),
            "error: chat template, line 2: unknown filter 'foo'");
}

TEST(ChatTemplateLoadTest, StringInTokenizerConfig) {
  const ModelDirectory model;
  model.Write(
      "tokenizer_config.json",
      R"({"chat_template": "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ messages[0].content }}",
                  "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null})");
  model.Write("special_tokens_map.json",
              R"({"bos_token": "no", "unk_token": {"content": "<unk>"}})");
  const auto chat_template = model.Load();
  ASSERT_TRUE(chat_template.ok()) << chat_template.status().message();
  EXPECT_EQ(RenderOrError(*chat_template, kHi), "<s></s><unk>Hi");
}

TEST(ChatTemplateLoadTest, NamedTemplates) {
  const ModelDirectory model;
  model.Write("tokenizer_config.json",
              R"({"chat_template": [{"name": "default", "template": "plain"},
                                    {"name": "tool_use", "template": "with {{ tools|length }}"}]})");
  const auto chat_template = model.Load();
  ASSERT_TRUE(chat_template.ok()) << chat_template.status().message();
  EXPECT_EQ(RenderOrError(*chat_template, kHi), "plain");
  EXPECT_EQ(RenderOrError(*chat_template, kHi, {.tools = {1, 2}}), "with 2");
}

TEST(ChatTemplateLoadTest, FilesBesideTheConfig) {
  const ModelDirectory model;
  model.Write("chat_template.json", R"({"chat_template": "from json"})");
  EXPECT_EQ(RenderOrError(model.Load().value(), kHi), "from json");
  model.Write("chat_template.jinja", "from jinja\n");
  EXPECT_EQ(RenderOrError(model.Load().value(), kHi), "from jinja");
  EXPECT_EQ(model.Load()->source(), "from jinja\n");
}

TEST(ChatTemplateLoadTest, BadFilesAreErrorsThatNameThem) {
  const ModelDirectory model;
  const auto error = [&](const std::string& config) {
    model.Write("tokenizer_config.json", config);
    return model.Load().status().message();
  };
  EXPECT_NE(error("{").find("tokenizer_config.json: not valid JSON"), std::string::npos);
  EXPECT_NE(error("[]").find("expected an object"), std::string::npos);
  EXPECT_NE(error(R"({"chat_template": 5})").find("expected a string or a list"),
            std::string::npos);
  EXPECT_NE(error(R"({"chat_template": [{"name": "x"}]})").find("a list of {name, template}"),
            std::string::npos);
  EXPECT_NE(
      error(R"({"chat_template": [{"name": "x", "template": ""}]})").find("none named 'default'"),
      std::string::npos);
  EXPECT_NE(error(R"({"chat_template": "{% foo %}"})").find("line 1: unknown tag 'foo'"),
            std::string::npos);
}

}  // namespace
}  // namespace talon
