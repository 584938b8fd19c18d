#include "apps/bench/task_items.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/ordered_json.h"
#include "text/answers/answer_parser.h"

namespace talon {
namespace {

constexpr size_t kRun = 8;       // tokens
constexpr int kMostRepeats = 2;  // repeats of a run
constexpr size_t kFewestStoryTokens = 100;
constexpr int kMostTokens = 1 << 16;

Result<std::string> TextOf(const OrderedJson& entry, const char* key) {
  const auto at = entry.find(key);
  if (at == entry.end() || !at->is_string()) return InvalidArgument("no text \"{}\"", key);
  return at->get<std::string>();
}

// Which of the answers it has, and that.
Status ReadExpected(const OrderedJson& entry, TaskItem* item) {
  using Check = TaskItem::Check;
  int given = 0;
  for (const auto& [key, check] : {std::pair("answer", Check::kText),
                                   {"json", Check::kJson},
                                   {"tool_call", Check::kToolCall}}) {
    const auto at = entry.find(key);
    if (at == entry.end()) continue;
    item->check = check;
    item->expected = *at;
    ++given;
  }
  if (given > 1) return InvalidArgument("more than one of \"answer\", \"json\" and \"tool_call\"");
  const Json& expected = item->expected;
  if (item->check == Check::kText && !expected.is_string()) {
    return InvalidArgument("\"answer\" must be a text");
  }
  const bool call = expected.is_object() && expected.contains("name") &&
                    expected["name"].is_string() && expected.contains("arguments");
  if (item->check == Check::kToolCall && !call) {
    return InvalidArgument("\"tool_call\" must have a \"name\" and \"arguments\"");
  }
  return OkStatus();
}

Result<TaskItem> ParseItem(const OrderedJson& entry) {
  if (!entry.is_object()) return InvalidArgument("must be a JSON object");
  TaskItem item;
  TALON_ASSIGN_OR_RETURN(item.id, TextOf(entry, "id"));
  TALON_ASSIGN_OR_RETURN(item.kind, TextOf(entry, "kind"));
  const auto messages = entry.find("messages");
  if (messages == entry.end() || !messages->is_array()) {
    return InvalidArgument("no list \"messages\"");
  }
  item.messages = *messages;
  if (const auto tools = entry.find("tools"); tools != entry.end() && !tools->empty()) {
    item.tools = *tools;
  }
  if (const auto most = entry.find("max_tokens"); most != entry.end()) {
    if (!most->is_number_integer() || *most < 1 || *most > kMostTokens) {
      return InvalidArgument("\"max_tokens\" must be 1 to {}", kMostTokens);
    }
    item.max_tokens = most->get<int>();
  }
  TALON_RETURN_IF_ERROR(ReadExpected(entry, &item));
  return item;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string> ToolNames(const OrderedJson& tools) {
  std::vector<std::string> names;
  if (!tools.is_array()) return names;
  for (const OrderedJson& tool : tools) {
    const OrderedJson& function = tool.contains("function") ? tool["function"] : tool;
    if (function.contains("name") && function["name"].is_string()) {
      names.push_back(function["name"].get<std::string>());
    }
  }
  return names;
}

bool CallIsRight(const TaskItem& item, const TaskAnswer& answer) {
  using Kind = AnswerDelta::Kind;
  const auto parser = NewAnswerParser(answer.format, {.tools = ToolNames(item.tools)});
  std::vector<AnswerDelta> deltas = parser->Feed(answer.text);
  std::ranges::move(parser->Finish(), std::back_inserter(deltas));
  std::vector<std::string> names;
  std::string arguments;
  for (const AnswerDelta& delta : deltas) {
    if (delta.kind == Kind::kCall) names.push_back(delta.text);
    if (delta.kind == Kind::kArguments) arguments += delta.text;
  }
  const auto parsed = ParseJson(arguments, "arguments");
  return names.size() == 1 && names[0] == item.expected["name"].get<std::string>() && parsed.ok() &&
         *parsed == item.expected["arguments"];
}

}  // namespace

Result<std::vector<TaskItem>> ReadTasks(const std::string& path) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<TaskItem> items;
  size_t start = 0;
  for (int line = 1; start < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string where = fmt::format("{}:{}", path, line);
    const std::string_view row = std::string_view(text).substr(start, end - start);
    start = end + 1;
    if (row.empty()) continue;
    TALON_ASSIGN_OR_RETURN(const OrderedJson entry, ParseOrderedJson(row, where));
    auto item = ParseItem(entry);
    if (!item.ok()) return item.status().WithContext(where);
    items.push_back(std::move(*item));
  }
  if (items.empty()) return InvalidArgument("{}: no tasks", path);
  return items;
}

bool IsRight(const TaskItem& item, const TaskAnswer& answer) {
  switch (item.check) {
    case TaskItem::Check::kText:
      return Trimmed(answer.text) == Trimmed(item.expected.get_ref<const std::string&>());
    case TaskItem::Check::kJson: {
      const auto value = ParseJson(Trimmed(answer.text), "answer");
      return value.ok() && *value == item.expected;
    }
    case TaskItem::Check::kToolCall:
      return CallIsRight(item, answer);
    case TaskItem::Check::kStory:
      return answer.tokens.size() >= kFewestStoryTokens && !Loops(answer.tokens);
  }
  return false;
}

bool Loops(std::span<const int32_t> tokens) {
  std::map<std::vector<int32_t>, int> counts;
  for (size_t i = 0; i + kRun <= tokens.size(); ++i) {
    const auto run = tokens.subspan(i, kRun);
    if (++counts[std::vector<int32_t>(run.begin(), run.end())] > kMostRepeats) return true;
  }
  return false;
}

}  // namespace talon
