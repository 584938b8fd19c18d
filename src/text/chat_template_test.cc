#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "base/ordered_json.h"
#include "text/chat_options.h"

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
    std::filesystem::create_directories((path_ / name).parent_path());
    ASSERT_TRUE(WriteFile((path_ / name).string(), text).ok());
  }
  // A directory without a template is an error here.
  Result<ChatTemplate> Load() const {
    TALON_ASSIGN_OR_RETURN(auto chat_template, ChatTemplate::Load(path_.string()));
    if (!chat_template) return NotFound("none");
    return *chat_template;
  }

 private:
  std::filesystem::path path_;
};

ChatTemplate Builtin(const std::string& name) {
  return ChatTemplate::LoadFileOrName(name, testing::TempDir()).value();
}

TEST(ChatTemplateTest, BuiltinTemplates) {
  const auto messages = FromText(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": null},
    {"role": "user", "content": [{"type": "text", "text": "How"}, {"type": "text", "text": "so?"}]}
  ])");
  EXPECT_EQ(RenderOrError(Builtin("plain"), messages),
            "Be brief.\n\nUser: Hi\nAssistant: \nUser: How\nso?\nAssistant:");
  EXPECT_EQ(RenderOrError(Builtin("plain"), kHi, {.add_generation_prompt = false}), "User: Hi\n");
  EXPECT_EQ(RenderOrError(Builtin("chatml"), messages),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nHow\nso?<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(RenderOrError(Builtin("llama3"), kHi),
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(RenderOrError(Builtin("llama2"), messages),
            "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST]  [INST] How\nso? [/INST]");
  EXPECT_EQ(RenderOrError(Builtin("gemma"), messages),
            "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
            "<end_of_turn>\n<start_of_turn>user\nHow\nso?<end_of_turn>\n"
            "<start_of_turn>model\n");
  EXPECT_EQ(ChatTemplate::LoadFileOrName("nope", ".").status().message(),
            "chat_template: 'nope' is neither a file nor one of chatml, gemma, llama2, llama3, "
            "plain");
}

TEST(ChatTemplateTest, ChatmlShowsToolsCallsAndTheirResults) {
  const auto messages = FromText(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1 + 2?"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
     "function": {"name": "add", "arguments": "{\"b\": 2, \"a\": 1}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "3"}
  ])");
  const ChatTemplate chatml = Builtin("chatml");
  EXPECT_TRUE(chatml.Reads("tools"));
  EXPECT_FALSE(Builtin("plain").Reads("tools"));
  const std::string text =
      RenderOrError(chatml, messages,
                    {.tools = FromText(R"([{"type": "function", "function": {"name": "add"}}])")});
  EXPECT_TRUE(text.starts_with("<|im_start|>system\nBe brief.\n\n# Tools\n")) << text;
  EXPECT_NE(text.find(R"(<tools>
{"type": "function", "function": {"name": "add"}}
</tools>)"),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with(R"(</tool_call><|im_end|>
<|im_start|>user
1 + 2?<|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "add", "arguments": {"b": 2, "a": 1}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
3
</tool_response><|im_end|>
<|im_start|>assistant
)")) << text;
}

TEST(ChatTemplateTest, BundledModelHasLlamaHeadersAndHermesTools) {
  const std::string dir = std::string(TALON_SOURCE_DIR) + "/models/tiny";
  const auto chat_template = ChatTemplate::Load(dir);
  ASSERT_TRUE(chat_template.ok()) << chat_template.status().message();
  ASSERT_TRUE(chat_template->has_value());
  EXPECT_EQ(RenderOrError(**chat_template, kHi),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_TRUE((*chat_template)->Reads("tools"));
  const std::string text =
      RenderOrError(**chat_template, kHi,
                    {.tools = FromText(R"([{"type": "function", "function": {"name": "add"}}])")});
  EXPECT_NE(text.find("<tools>\n{\"name\": \"add\"}\n</tools>"), std::string::npos) << text;
}

// A template that knows three roles and has no else.
constexpr std::string_view kThreeRoles =
    "{% for m in messages %}{% if m.role == 'system' %}S:{{ m.content }};"
    "{% elif m.role == 'user' %}U:{{ m.content }};"
    "{% elif m.role == 'assistant' %}A:{{ m.content }};{% endif %}{% endfor %}";

TEST(ChatTemplateTest, AMessageIsNeverLeftOutSilently) {
  const auto with_role = [](const std::string& role) {
    return OrderedJson{{{"role", role}, {"content", "Be brief"}},
                       {{"role", "user"}, {"content", "Be brief"}}};
  };
  EXPECT_EQ(RenderOrError(kThreeRoles, with_role("system")), "S:Be brief;U:Be brief;");
  EXPECT_EQ(RenderOrError(kThreeRoles, with_role("usr")),
            "error: messages[0].role: the model's chat template leaves out 'usr'");
  EXPECT_EQ(RenderOrError(kThreeRoles, with_role("tool")),
            "error: messages[0].role: the model's chat template leaves out 'tool'");
  EXPECT_EQ(RenderOrError("{{ messages[-1].content }}", with_role("system")),
            "error: messages[0].role: the model's chat template leaves out 'system'");
  EXPECT_EQ(RenderOrError("{{ raise_exception('no tools') }}", with_role("tool")),
            "error: no tools");
  // Nothing is lost with an empty message, or one whose parts are all shown.
  EXPECT_EQ(RenderOrError(kThreeRoles, FromText(R"([{"role": "tool", "content": " "}])")), "");
  EXPECT_EQ(
      RenderOrError("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}"
                    "{% endfor %}",
                    FromText(R"([{"role": "tool", "content": [{"type": "text", "text": "x"}]}])")),
      "x");
}

TEST(ChatTemplateTest, DeveloperIsSystemWhereTheTemplateDoesNotNameIt) {
  const auto messages = FromText(R"([{"role": "developer", "content": "Be brief"}])");
  EXPECT_EQ(RenderOrError(kThreeRoles, messages), "S:Be brief;");
  EXPECT_EQ(RenderOrError(kChatMl, messages, {.add_generation_prompt = false}),
            "<|system|>Be brief<|end|>");
  EXPECT_EQ(RenderOrError("{% for m in messages %}{% if m.role in ['system', 'developer'] %}"
                          "{{ m.role }}{{ m.content }}{% endif %}{% endfor %}",
                          messages),
            "developerBe brief");
  EXPECT_EQ(RenderOrError("{{ messages|length }}", messages),
            "error: messages[0].role: the model's chat template leaves out 'developer'");
}

TEST(ChatTemplateTest, NullContentBesideToolCalls) {
  for (const char* content : {R"("content": null, )", ""}) {
    const auto messages = FromText(std::string(R"([{"role": "assistant", )") + content +
                                   R"("tool_calls": [{"function": {"name": "f"}}]}])");
    EXPECT_EQ(RenderOrError("{{ 'A:' + messages[0].content }}", messages), "A:");
    EXPECT_EQ(RenderOrError("{{ messages[0]['content'] }}", messages), "");
    EXPECT_EQ(RenderOrError("{% if '</think>' in messages[0].content %}x{% endif %}", messages),
              "");
    EXPECT_EQ(RenderOrError("{{ messages[0].content is none }}", messages), "True");
    EXPECT_EQ(RenderOrError("{{ messages[0]['content'] is not none }}", messages), "False");
  }
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
  EXPECT_EQ(RenderOrError(Builtin("plain"), messages, options), "User: Hi\nAssistant:  Once upon ");
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

// The order of transformers: the file of its own, the tokenizer's config, the older file.
TEST(ChatTemplateLoadTest, FilesBesideTheConfig) {
  const ModelDirectory model;
  EXPECT_EQ(model.Load().status().message(), "none");
  model.Write("chat_template.json", R"({"chat_template": "from json"})");
  EXPECT_EQ(RenderOrError(model.Load().value(), kHi), "from json");
  model.Write("tokenizer_config.json", R"({"chat_template": "from config"})");
  EXPECT_EQ(RenderOrError(model.Load().value(), kHi), "from config");
  model.Write("chat_template.jinja", "from jinja\n");
  EXPECT_EQ(RenderOrError(model.Load().value(), kHi), "from jinja");
  EXPECT_EQ(model.Load()->source(), "from jinja\n");
}

TEST(ChatTemplateLoadTest, AdditionalTemplatesHaveTheNamesOfTheirFiles) {
  const ModelDirectory model;
  model.Write("additional_chat_templates/tool_use.jinja", "with {{ tools|length }}");
  EXPECT_NE(model.Load().status().message().find("none named 'default'"), std::string::npos);
  model.Write("chat_template.jinja", "without");
  EXPECT_EQ(RenderOrError(model.Load().value(), kHi), "without");
  EXPECT_EQ(RenderOrError(model.Load().value(), kHi, {.tools = {1, 2}}), "with 2");
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
