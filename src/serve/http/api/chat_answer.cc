#include "serve/http/api/chat_answer.h"

#include <fmt/core.h>

#include "base/random.h"

namespace talon {

std::vector<Json> ChatAnswer::Add(const std::vector<AnswerDelta>& deltas) {
  std::vector<Json> out;
  for (const AnswerDelta& delta : deltas) out.push_back(AddOne(delta));
  return out;
}

Json ChatAnswer::AddOne(const AnswerDelta& delta) {
  const auto index = static_cast<int64_t>(calls_.size()) - 1;  // index of the last call
  switch (delta.kind) {
    case AnswerDelta::Kind::kContent:
      content_ += delta.text;
      return {{"content", delta.text}};
    case AnswerDelta::Kind::kReasoning:
      reasoning_ += delta.text;
      return {{"reasoning_content", delta.text}};
    case AnswerDelta::Kind::kCall: {
      Json call = {{"id", NewCallId(format_)},
                   {"type", "function"},
                   {"function", {{"name", delta.text}, {"arguments", ""}}}};
      calls_.push_back(call);
      call["index"] = index + 1;
      return {{"tool_calls", Json::array({std::move(call)})}};
    }
    case AnswerDelta::Kind::kArguments:
      calls_.back()["function"]["arguments"].get_ref<std::string&>() += delta.text;
      return {{"tool_calls",
               Json::array({{{"index", index}, {"function", {{"arguments", delta.text}}}}})}};
  }
  return Json::object();
}

// Mistral's templates insist on nine letters or digits.
std::string NewCallId(ToolFormat format) {
  const bool short_id = format == ToolFormat::kMistral || format == ToolFormat::kMistralArgs;
  if (short_id) return fmt::format("{:09x}", RandomSeed() >> 28);
  return fmt::format("call_{:016x}", RandomSeed());
}

Json ChatAnswer::Message() const {
  Json message = {{"role", "assistant"}, {"content", content_}, {"refusal", nullptr}};
  if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
  if (has_calls()) message["tool_calls"] = calls_;
  if (has_calls() && content_.empty()) message["content"] = nullptr;
  return message;
}

}  // namespace talon
