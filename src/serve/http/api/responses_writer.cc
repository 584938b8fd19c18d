// Answers of /v1/responses.
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "serve/http/api/answer_writer.h"
#include "serve/http/api/chat_answer.h"
#include "text/answers/answer_parser.h"

namespace talon {
namespace {

// OpenAI's names: a text that ends early is incomplete.
const char* StatusOf(FinishReason finish) {
  return finish == FinishReason::kStop ? "completed" : "incomplete";
}

Json UsageJson(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

// What the events of an item's text begin with.
std::string EventName(AnswerDelta::Kind kind) {
  switch (kind) {
    case AnswerDelta::Kind::kReasoning:
      return "response.reasoning_text";
    case AnswerDelta::Kind::kContent:
      return "response.output_text";
    default:
      return "response.function_call_arguments";
  }
}

Json NewItem(const AnswerDelta& first, ToolFormat format) {
  switch (first.kind) {
    case AnswerDelta::Kind::kReasoning:
      return {{"type", "reasoning"},
              {"id", NewAnswerId("rs_")},
              {"summary", Json::array()},
              {"content", Json::array()}};
    case AnswerDelta::Kind::kContent:
      return {{"type", "message"},
              {"id", NewAnswerId("msg_")},
              {"role", "assistant"},
              {"content", Json::array()}};
    default:
      return {{"type", "function_call"},
              {"id", NewAnswerId("fc_")},
              {"call_id", NewCallId(format)},
              {"name", first.text},
              {"arguments", ""}};
  }
}

// The output as it arrives: reasoning, messages and calls of functions, each an item.
class OutputItems {
 public:
  // "response.output_text.delta", without the number that streams give it.
  struct Event {
    std::string type;
    Json members;
  };
  using Events = std::vector<Event>;

  explicit OutputItems(ToolFormat format) : format_(format) {}

  Events Add(const std::vector<AnswerDelta>& deltas);
  // Ends the last item, which has this status; if there is none, it is an empty message.
  Events End(const char* status);

  // The items that have ended.
  const Json& items() const { return items_; }

 private:
  using Kind = AnswerDelta::Kind;  // kind of an item; never kArguments

  void Open(const AnswerDelta& first, Events* events);
  void Extend(const std::string& text, Events* events);
  void Close(const char* status, Events* events);
  Json Part(const std::string& text) const;
  // Members of an event that belongs to the open item's text.
  Json InText(Json members) const;

  ToolFormat format_;
  Json items_ = Json::array();
  bool is_open_ = false;
  Kind kind_ = Kind::kContent;  // kind of the open item
  Json item_;                   // likewise, without its text
  std::string text_;            // or the arguments of a call
};

OutputItems::Events OutputItems::Add(const std::vector<AnswerDelta>& deltas) {
  Events events;
  for (const AnswerDelta& delta : deltas) {
    const bool goes_on = is_open_ && (delta.kind == kind_ || delta.kind == Kind::kArguments);
    if (!goes_on || delta.kind == Kind::kCall) {
      Close("completed", &events);
      Open(delta, &events);
    }
    if (delta.kind != Kind::kCall) Extend(delta.text, &events);
  }
  return events;
}

OutputItems::Events OutputItems::End(const char* status) {
  Events events;
  if (!is_open_) Open({.kind = Kind::kContent}, &events);
  Close(status, &events);
  return events;
}

void OutputItems::Open(const AnswerDelta& first, Events* events) {
  is_open_ = true;
  kind_ = first.kind;
  item_ = NewItem(first, format_);
  item_["status"] = "in_progress";
  text_.clear();
  events->push_back(
      {"response.output_item.added", {{"output_index", items_.size()}, {"item", item_}}});
  if (kind_ == Kind::kCall) return;
  events->push_back({"response.content_part.added", InText({{"part", Part("")}})});
}

void OutputItems::Extend(const std::string& text, Events* events) {
  text_ += text;
  Json members = InText({{"delta", text}});
  if (kind_ == Kind::kContent) members["logprobs"] = Json::array();
  events->push_back({EventName(kind_) + ".delta", std::move(members)});
}

void OutputItems::Close(const char* status, Events* events) {
  if (!std::exchange(is_open_, false)) return;
  Json members = InText({{kind_ == Kind::kCall ? "arguments" : "text", text_}});
  if (kind_ == Kind::kContent) members["logprobs"] = Json::array();
  if (kind_ == Kind::kCall) members["name"] = item_["name"];
  events->push_back({EventName(kind_) + ".done", std::move(members)});
  item_["status"] = status;
  if (kind_ == Kind::kCall) {
    item_["arguments"] = text_;
  } else {
    item_["content"].push_back(Part(text_));
    events->push_back({"response.content_part.done", InText({{"part", Part(text_)}})});
  }
  events->push_back(
      {"response.output_item.done", {{"output_index", items_.size()}, {"item", item_}}});
  items_.push_back(std::move(item_));
}

Json OutputItems::Part(const std::string& text) const {
  if (kind_ == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

Json OutputItems::InText(Json members) const {
  members["item_id"] = item_["id"];
  members["output_index"] = items_.size();
  if (kind_ != Kind::kCall) members["content_index"] = 0;
  return members;
}

class ResponsesWriter : public AnswerWriter {
 public:
  explicit ResponsesWriter(const AnswerParts& parts)
      : request_(parts.request),
        model_(parts.model),
        id_(parts.id),
        created_(std::time(nullptr)),
        parser_(NewAnswerParser(parts.answer_shape.format, OptionsOf(parts))),
        items_(parts.answer_shape.format) {}

  Json Whole(std::span<const GenerateResult* const> results, const Usage& usage) override {
    Update(0, {.text = results[0]->text});
    EndChoice(0, *results[0]);
    return Ended(usage);
  }

  std::string Begin() override {
    const Json begun = Response("in_progress");
    std::string events = Event("response.created", {{"response", begun}});
    events += Event("response.in_progress", {{"response", begun}});
    return events;
  }

  std::string Update(int, const RequestUpdate& update) override {
    return Texts(items_.Add(parser_->Feed(update.text)));
  }

  std::string EndChoice(int, const GenerateResult& result) override {
    finish_ = result.finish;
    const std::string rest = Texts(items_.Add(parser_->Finish()));
    return rest + Texts(items_.End(StatusOf(finish_)));
  }

  std::string End(const Usage& usage) override {
    return Event(std::string("response.") + StatusOf(finish_), {{"response", Ended(usage)}});
  }

  std::string Fail(const ApiError& error) override {
    return Event("error", {{"code", error.code.empty() ? Json(nullptr) : Json(error.code)},
                           {"message", error.message},
                           {"param", error.param.empty() ? Json(nullptr) : Json(error.param)}});
  }

 private:
  std::string Texts(OutputItems::Events events) {
    std::string text;
    for (OutputItems::Event& event : events) text += Event(event.type, std::move(event.members));
    return text;
  }

  // What holds before and after. Members that this server does not have are at OpenAI's defaults.
  Json Response(const char* status) const {
    Json response = {{"id", id_},
                     {"object", "response"},
                     {"created_at", created_},
                     {"status", status},
                     {"background", false},
                     {"error", nullptr},
                     {"incomplete_details", nullptr},
                     {"model", model_},
                     {"output", Json::array()},
                     {"parallel_tool_calls", true},
                     {"previous_response_id", nullptr},
                     {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                     {"store", false},
                     {"temperature", request_.sampling.temperature},
                     {"text", {{"format", {{"type", "text"}}}}},
                     {"tool_choice", "auto"},
                     {"tools", Json::array()},
                     {"top_p", request_.sampling.top_p},
                     {"truncation", "disabled"},
                     {"usage", nullptr}};
    response.update(request_.repeated);
    return response;
  }

  Json Ended(const Usage& usage) const {
    Json response = Response(StatusOf(finish_));
    response["output"] = items_.items();
    response["usage"] = UsageJson(usage);
    if (finish_ == FinishReason::kLength) {
      response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    return response;
  }

  std::string Event(const std::string& type, Json members) {
    members["type"] = type;
    members["sequence_number"] = sequence_number_++;
    return "event: " + type + "\ndata: " + JsonText(members) + "\n\n";
  }

  const ApiRequest request_;
  const std::string model_;
  const std::string id_;
  const int64_t created_;
  int64_t sequence_number_ = 0;
  const std::unique_ptr<AnswerParser> parser_;
  OutputItems items_;
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace

std::unique_ptr<AnswerWriter> NewResponsesWriter(const AnswerParts& parts) {
  return std::make_unique<ResponsesWriter>(parts);
}

}  // namespace talon
