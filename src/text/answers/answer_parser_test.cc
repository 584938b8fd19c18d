#include "text/answers/answer_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/json.h"

namespace talon {

void PrintTo(const AnswerDelta& delta, std::ostream* out) {
  *out << static_cast<int>(delta.kind) << ":" << delta.text;
}

namespace {

using Deltas = std::vector<AnswerDelta>;

constexpr auto kContent = AnswerDelta::Kind::kContent;
constexpr auto kReasoning = AnswerDelta::Kind::kReasoning;
constexpr auto kCall = AnswerDelta::Kind::kCall;
constexpr auto kArguments = AnswerDelta::Kind::kArguments;

void Append(const Deltas& more, Deltas* all) {
  for (const AnswerDelta& delta : more) {
    EXPECT_FALSE(delta.text.empty());
    if (!all->empty() && all->back().kind == delta.kind && delta.kind != kCall) {
      all->back().text += delta.text;
    } else {
      all->push_back(delta);
    }
  }
}

// The answer's parts when its text comes in pieces that end at `cuts`.
Deltas Parse(ToolFormat format, std::string_view text, std::vector<size_t> cuts,
             bool constrained = false) {
  const auto parser =
      NewAnswerParser(format, {.tools = {"add", "get_weather"}, .constrained = constrained});
  Deltas all;
  size_t begin = 0;
  cuts.push_back(text.size());
  for (const size_t cut : cuts) {
    Append(parser->Feed(text.substr(begin, cut - begin)), &all);
    begin = cut;
  }
  Append(parser->Finish(), &all);
  return all;
}

// Checks the parts, wherever the text is cut in two, and byte by byte.
void Check(ToolFormat format, std::string_view text, const Deltas& expected, bool constrained) {
  std::vector<size_t> everywhere;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(Parse(format, text, {cut}, constrained), expected) << text << " cut at " << cut;
    everywhere.push_back(cut);
  }
  EXPECT_EQ(Parse(format, text, everywhere, constrained), expected) << text;
}

void Check(ToolFormat format, std::string_view text, const Deltas& expected) {
  Check(format, text, expected, /*constrained=*/false);
  Check(format, text, expected, /*constrained=*/true);
}

// Not a call: all of the text is content.
void CheckContent(ToolFormat format, const std::string& text) {
  Check(format, text, {{kContent, text}}, /*constrained=*/false);
}

// The parts of an answer that may begin with thoughts, the same wherever it is cut.
Deltas Thoughts(const std::string& text, Thinking thinking = Thinking::kMay,
                ToolFormat format = ToolFormat::kHermes) {
  const auto parse = [&](size_t size) {
    const auto parser = NewAnswerParser(format, {.tools = {"add"}, .thinking = thinking});
    Deltas all;
    for (size_t at = 0; at < text.size(); at += size) {
      Append(parser->Feed(std::string_view(text).substr(at, size)), &all);
    }
    Append(parser->Finish(), &all);
    return all;
  };
  const Deltas whole = parse(text.size() + 1);
  for (size_t size = 1; size <= text.size(); ++size) EXPECT_EQ(parse(size), whole) << text;
  return whole;
}

TEST(AnswerParser, ThoughtsAreReasoning) {
  const std::string call = "<tool_call>{\"name\": \"add\"}</tool_call>";
  EXPECT_EQ(Thoughts("<think>\nHm, a < b.\n\nOr </b?\n</think>\n\nYes.\n"),
            (Deltas{{kReasoning, "Hm, a < b.\n\nOr </b?"}, {kContent, "Yes.\n"}}));
  EXPECT_EQ(Thoughts(" <think>" + call + "</think>" + call),
            (Deltas{{kReasoning, call}, {kCall, "add"}, {kArguments, "{}"}}));
  EXPECT_EQ(Thoughts("Hm\n</think>\nYes.", Thinking::kBegun),
            (Deltas{{kReasoning, "Hm"}, {kContent, "Yes."}}));
  EXPECT_EQ(Thoughts("<think>\n\n</think>\n\nYes."), (Deltas{{kContent, "Yes."}}));
  for (const ToolFormat format : {ToolFormat::kNone, ToolFormat::kLlama3, ToolFormat::kMistral}) {
    EXPECT_EQ(Thoughts("<think>Hm</think>Yes. ", Thinking::kMay, format),
              (Deltas{{kReasoning, "Hm"}, {kContent, "Yes. "}}));
  }
}

TEST(AnswerParser, ThoughtsThatAreCut) {
  EXPECT_EQ(Thoughts("<think>\nHm </thi"), (Deltas{{kReasoning, "Hm </thi"}}));
  EXPECT_EQ(Thoughts("Hm \n", Thinking::kBegun), (Deltas{{kReasoning, "Hm"}}));
  EXPECT_EQ(Thoughts("<think>"), Deltas());
  EXPECT_EQ(Thoughts("<think>Hm</think>\n"), (Deltas{{kReasoning, "Hm"}}));
}

TEST(AnswerParser, WithoutThoughtsAllIsContent) {
  for (const std::string text : {"Yes.\n", " <thin", "\n", "a <think>Hm</think>", "</think>"}) {
    EXPECT_EQ(Thoughts(text), (Deltas{{kContent, text}}));
    EXPECT_EQ(Thoughts(text, Thinking::kMay, ToolFormat::kNone), (Deltas{{kContent, text}}));
  }
  EXPECT_EQ(Thoughts("<think>Hm</think>", Thinking::kNever),
            (Deltas{{kContent, "<think>Hm</think>"}}));
}

TEST(AnswerParser, WithoutAFormatAllIsContent) {
  Check(ToolFormat::kNone, " <tool_call>{} ", {{kContent, " <tool_call>{} "}});
}

TEST(HermesParser, TextAndCalls) {
  const std::string call = R"(<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris, \"}\u00e9", "days": [1, -2.5e3, null]}}
</tool_call>)";
  const Deltas parsed = {
      {kCall, "get_weather"},
      {kArguments, R"({"city": "Paris, \"}\u00e9", "days": [1, -2.5e3, null]})"}};
  Check(ToolFormat::kHermes, call, parsed);
  Check(ToolFormat::kHermes, "Let me see <tool.\n" + call + "\n",
        {{kContent, "Let me see <tool."}, parsed[0], parsed[1]});
  Check(ToolFormat::kHermes, call + "\n" + call, {parsed[0], parsed[1], parsed[0], parsed[1]});
  Check(ToolFormat::kHermes, call + " and more", {parsed[0], parsed[1], {kContent, " and more"}});
}

TEST(HermesParser, MembersInAnyOrderAndWithoutArguments) {
  Check(ToolFormat::kHermes,
        R"(<tool_call>{"id": 7, "parameters":{"a,":{}} , "x": ["name"], "name":"add"}</tool_call>)",
        {{kCall, "add"}, {kArguments, R"({"a,":{}})"}});
  Check(ToolFormat::kHermes, R"(<tool_call>{"name": "add"}</tool_call>)",
        {{kCall, "add"}, {kArguments, "{}"}});
}

TEST(HermesParser, MalformedCallsAreContent) {
  for (const std::string call : {
           R"({"name": "add", "arguments": {"a": Paris}})",
           R"({"name": "add", "arguments": {"a": 01}})",
           R"({"name": "add", "arguments": [1]})",
           R"({"name": "add", "arguments": {}, "arguments": {}})",
           R"({"name": "unknown", "arguments": {}})",
           R"({"name": 3, "arguments": {}})",
           R"({"arguments": {}})",
           R"(["name", "add"])",
           "add(1, 2)",
           "",
           R"({"name": "add", "arguments": {"a": "never)",
       }) {
    CheckContent(ToolFormat::kHermes, "So: <tool_call>" + call + "</tool_call> \n end");
    CheckContent(ToolFormat::kHermes, "<tool_call>" + call);
  }
}

TEST(HermesParser, ConstrainedArgumentsArriveAtOnce) {
  const auto parser = NewAnswerParser(ToolFormat::kHermes, {.tools = {"add"}, .constrained = true});
  EXPECT_EQ(parser->Feed(R"(<tool_call>{"name": "add", "arguments": {"a)"),
            (Deltas{{kCall, "add"}, {kArguments, "{\"a"}}));
  EXPECT_EQ(parser->Feed("\": 1"), (Deltas{{kArguments, "\": 1"}}));
  EXPECT_EQ(parser->Finish(), Deltas());  // cut by its length
}

TEST(Llama3Parser, CallsAtTheBeginning) {
  const std::string call = R"({"name": "add", "parameters": {"a": 1}})";
  const Deltas parsed = {{kCall, "add"}, {kArguments, R"({"a": 1})"}};
  const Deltas both = {parsed[0], parsed[1], parsed[0], parsed[1]};
  Check(ToolFormat::kLlama3, call, parsed);
  Check(ToolFormat::kLlama3, "\n<|python_tag|>" + call + "\n", parsed);
  Check(ToolFormat::kLlama3, call + "; " + call + ";", both);
  Check(ToolFormat::kLlama3, call + "\n<|python_tag|>" + call, both);
}

TEST(Llama3Parser, OtherAnswersAreContent) {
  for (const char* text :
       {"It is {cold}.", R"({"name": "Bob", "age": 7})", "<|python_tag|>print(1)", "<|python_tag|>",
        R"( {"name": "add", "parameters": {"a": )", "{}", "<|pyth", "\n"}) {
    CheckContent(ToolFormat::kLlama3, text);
  }
}

TEST(MistralParser, BothForms) {
  const Deltas parsed = {{kCall, "add"},
                         {kArguments, R"({"a": "[TOOL_CALLS]"})"},
                         {kCall, "get_weather"},
                         {kArguments, "{}"}};
  Check(ToolFormat::kMistral,
        R"([TOOL_CALLS] [{"name": "add", "arguments": {"a": "[TOOL_CALLS]"}}, )"
        R"({"arguments": {}, "name": "get_weather", "id": "123456789"}])",
        parsed);
  Check(ToolFormat::kMistral,
        R"([TOOL_CALLS]add[ARGS]{"a": "[TOOL_CALLS]"}[TOOL_CALLS]get_weather[CALL_ID]1[ARGS]{})",
        parsed);
  Check(ToolFormat::kMistral, R"(Well. [TOOL_CALLS]add{"a": "[TOOL_CALLS]"})",
        {{kContent, "Well."}, parsed[0], parsed[1]});
}

TEST(MistralParser, MalformedCallsAreContent) {
  for (const char* text :
       {"[TOOL_CALLS]", "[TOOL_CALLS] [", "[TOOL_CALLS] [3]", "[TOOL_CALLS]add", "a [TOOL_CALL",
        "[TOOL_CALLS]unknown[ARGS]{}", R"([TOOL_CALLS] [{"name": "add", "arguments": 3}] x)",
        "[TOOL_CALLS]add[ARGS]{]"}) {
    CheckContent(ToolFormat::kMistral, text);
  }
}

TEST(HarmonyParser, Channels) {
  Check(ToolFormat::kHarmony,
        "<|channel|>analysis<|message|>The user <asks>.<|end|><|start|>assistant<|channel|>final"
        "<|message|>Hello <|there.<|return|>",
        {{kReasoning, "The user <asks>."}, {kContent, "Hello <|there."}});
  Check(ToolFormat::kHarmony,
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
        {{kReasoning, "Hm"}, {kCall, "add"}, {kArguments, "{\"a\": 1}"}});
  Check(ToolFormat::kHarmony,
        " to=functions.add<|channel|>commentary json<|message|>{\"a\": 1}<|call|>",
        {{kCall, "add"}, {kArguments, "{\"a\": 1}"}});
  Check(ToolFormat::kHarmony,
        "<|channel|>commentary<|message|>I will add.<|end|><|start|>assistant to=functions.add"
        "<|channel|>commentary<|message|>{}",
        {{kContent, "I will add."}, {kCall, "add"}, {kArguments, "{}"}});
  Check(ToolFormat::kHarmony, "<|channel|>final<|message|>Cut<|end|><|start|>assist",
        {{kContent, "Cut"}});
}

TEST(HarmonyParser, MalformedMessagesAreContent) {
  CheckContent(ToolFormat::kHarmony, "Just text");
  CheckContent(ToolFormat::kHarmony, "<|channel|>commentary to=functions.unknown<|message|>{}");
  CheckContent(ToolFormat::kHarmony, "<|channel|>analysis to=python<|message|>print(1)");
  CheckContent(ToolFormat::kHarmony, "<|channel|>commentary to=functions.add<|message|>{a}");
  CheckContent(ToolFormat::kHarmony, "<|channel|>commentary to=functions.add<|message|>{\"a");
  CheckContent(ToolFormat::kHarmony, "<|channel|>" + std::string(600, 'x') + " y");
}

// Random texts out of pieces of all formats.
TEST(AnswerParser, CutsChangeNothing) {
  const std::vector<std::string> pieces = {"<tool_call>",
                                           "</tool_call>",
                                           "[TOOL_CALLS]",
                                           "[ARGS]",
                                           "<|python_tag|>",
                                           "<|channel|>",
                                           "final",
                                           "analysis",
                                           "<|message|>",
                                           "commentary to=functions.add",
                                           "<|end|>",
                                           "<|start|>",
                                           "{\"name\": ",
                                           "\"add\"",
                                           ", \"arguments\": ",
                                           "{\"a\": 1}",
                                           "{}",
                                           "}",
                                           "[",
                                           "]",
                                           ", ",
                                           "\n",
                                           "text",
                                           "<",
                                           "add"};
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t count = random() % 12; count > 0; --count) text += pieces[random() % pieces.size()];
    std::vector<size_t> cuts;
    for (size_t count = random() % 5; count > 0; --count)
      cuts.push_back(random() % (text.size() + 1));
    std::ranges::sort(cuts);
    for (const ToolFormat format :
         {ToolFormat::kHarmony, ToolFormat::kHermes, ToolFormat::kLlama3, ToolFormat::kMistral}) {
      const Deltas whole = Parse(format, text, {});
      ASSERT_EQ(Parse(format, text, cuts), whole) << text;
      ASSERT_EQ(Parse(format, text, cuts, true), Parse(format, text, {}, true)) << text;
      for (const AnswerDelta& delta : whole) {
        ASSERT_TRUE(delta.kind != kArguments || ParseJson(delta.text, "").ok()) << text;
      }
    }
  }
}

TEST(ToolFormat, IsFoundInTheTemplate) {
  EXPECT_EQ(FindToolFormat("{{ '<|start|>' }}<|channel|>final<|message|>"), ToolFormat::kHarmony);
  EXPECT_EQ(FindToolFormat("{{- '\\n<tool_call>\\n' }}"), ToolFormat::kHermes);
  EXPECT_EQ(FindToolFormat("<tool_call>\n<function=x>"), ToolFormat::kNone);
  EXPECT_EQ(FindToolFormat("<|start_header_id|>{% if tools %}"), ToolFormat::kLlama3);
  EXPECT_EQ(FindToolFormat("<|start_header_id|>"), ToolFormat::kNone);
  EXPECT_EQ(FindToolFormat("[TOOL_CALLS] ["), ToolFormat::kMistral);
  EXPECT_EQ(FindToolFormat("[TOOL_CALLS]{{ x }}[ARGS]"), ToolFormat::kMistralArgs);
  EXPECT_EQ(ParseToolFormat("hermes"), ToolFormat::kHermes);
  EXPECT_EQ(ParseToolFormat("pythonic"), std::nullopt);
}

}  // namespace
}  // namespace talon
