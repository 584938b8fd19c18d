// Tasks with a right answer: JSON lines
//   {"id", "kind", "messages": [...], "tools": [...], "max_tokens": N,
//    "answer": text | "json": value | "tool_call": {"name", "arguments"}}
// An item without an answer is a story, which is right if it has 100 tokens and does not loop.
#ifndef TALON_APPS_BENCH_TASK_ITEMS_H_
#define TALON_APPS_BENCH_TASK_ITEMS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/answers/tool_format.h"

namespace talon {

struct TaskItem {
  enum class Check { kText, kJson, kToolCall, kStory };
  std::string id;
  std::string kind;
  OrderedJson messages;
  OrderedJson tools;  // null: none
  int max_tokens = 256;
  Check check = Check::kStory;
  Json expected;  // the text, the value, or {"name", "arguments"}
};

// At least one item; errors name the line.
Result<std::vector<TaskItem>> ReadTasks(const std::string& path);

struct TaskAnswer {
  std::string text;
  std::span<const int32_t> tokens;
  ToolFormat format = ToolFormat::kNone;  // in which the model writes calls
};
// White space around a text does not count, nor does the order of keys. A call must be the only
// one.
bool IsRight(const TaskItem& item, const TaskAnswer& answer);

// Some run of 8 tokens occurs more than twice.
bool Loops(std::span<const int32_t> tokens);

}  // namespace talon

#endif  // TALON_APPS_BENCH_TASK_ITEMS_H_
