#include "apps/bench/task_items.h"

#include <gtest/gtest.h>

#include <fstream>

namespace talon {
namespace {

// The items of a file with these lines, or its error.
Result<std::vector<TaskItem>> Read(const std::string& lines) {
  const std::string path = ::testing::TempDir() + "/task_items.jsonl";
  std::ofstream(path) << lines;
  return ReadTasks(path);
}

TaskItem Item(const std::string& members) {
  const auto items = Read(R"({"id": "a", "kind": "k", "messages": [])" + members + "}\n");
  EXPECT_TRUE(items.ok()) << items.status().message();
  return items.ok() ? items->front() : TaskItem();
}

TEST(TaskItems, TextsAreEqualButForTheWhiteSpaceAroundThem) {
  const TaskItem item = Item(R"(, "answer": "12 km")");
  EXPECT_TRUE(IsRight(item, {.text = " 12 km\n"}));
  EXPECT_FALSE(IsRight(item, {.text = "12  km"}));
  EXPECT_FALSE(IsRight(item, {.text = "12 km."}));
}

TEST(TaskItems, JsonIsEqualAsAValue) {
  const TaskItem item = Item(R"(, "json": {"a": 1, "b": ["x", null]})");
  EXPECT_TRUE(IsRight(item, {.text = R"({"b":["x",null], "a":1})"}));
  EXPECT_FALSE(IsRight(item, {.text = R"({"b":["x"], "a":1})"}));
  EXPECT_FALSE(IsRight(item, {.text = R"({"a": 1, "b": ["x", null]} and more)"}));
}

TEST(TaskItems, OneCallOfTheRightToolWithTheRightArguments) {
  const TaskItem item =
      Item(R"(, "tools": [{"type": "function", "function": {"name": "weather"}}, )"
           R"({"type": "function", "function": {"name": "time"}}], )"
           R"("tool_call": {"name": "weather", "arguments": {"city": "Rome", "days": 2}})");
  const auto right = [&item](const std::string& text) {
    return IsRight(item, {.text = text, .format = ToolFormat::kHermes});
  };
  const std::string call =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": 2, \"city\": \"Rome\"}}\n"
      "</tool_call>";
  EXPECT_TRUE(right(call));
  EXPECT_FALSE(right(call + call)) << "two calls";
  EXPECT_FALSE(right("Rome"));
  EXPECT_FALSE(
      right("<tool_call>\n{\"name\": \"time\", \"arguments\": {\"days\": 2, \"city\": \"Rome\"}}\n"
            "</tool_call>"));
  EXPECT_FALSE(right(
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": 3, \"city\": \"Rome\"}}\n"
      "</tool_call>"));
}

TEST(TaskItems, AStoryMayRepeatEightTokensOnce) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 100; ++i) tokens.push_back(i);
  const TaskItem story = Item("");
  const auto right = [&] { return IsRight(story, {.tokens = tokens}); };
  EXPECT_TRUE(right());
  for (int i = 0; i < 8; ++i) tokens.push_back(i);
  EXPECT_TRUE(right()) << "twice";
  for (int i = 0; i < 7; ++i) tokens.push_back(i);
  EXPECT_TRUE(right()) << "seven tokens of it a third time";
  tokens.push_back(7);
  EXPECT_FALSE(right()) << "three times";
}

TEST(TaskItems, AStoryHasAHundredTokens) {
  std::vector<int32_t> tokens(99);
  std::iota(tokens.begin(), tokens.end(), 0);
  EXPECT_FALSE(IsRight(Item(""), {.tokens = tokens}));
  tokens.push_back(99);
  EXPECT_TRUE(IsRight(Item(""), {.tokens = tokens}));
}

TEST(TaskItems, ErrorsNameTheLine) {
  const auto error = [](const std::string& line) {
    return Read(R"({"id": "a", "kind": "k", "messages": []})"
                "\n" +
                line)
        .status()
        .message();
  };
  const auto has = [&](const std::string& line, const char* what) {
    const std::string message = error(line);
    EXPECT_NE(message.find("task_items.jsonl:2"), std::string::npos) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  has("[]", "object");
  has(R"({"id": "a", "messages": []})", "kind");
  has(R"({"id": "a", "kind": "k", "messages": "x"})", "messages");
  has(R"({"id": "a", "kind": "k", "messages": [], "max_tokens": 0})", "max_tokens");
  has(R"({"id": "a", "kind": "k", "messages": [], "answer": 5})", "answer");
  has(R"({"id": "a", "kind": "k", "messages": [], "tool_call": "x"})", "tool_call");
  has(R"({"id": "a", "kind": "k", "messages": [], "answer": "x", "json": 1})", "more than one");
  EXPECT_FALSE(Read("\n").ok());
}

}  // namespace
}  // namespace talon
