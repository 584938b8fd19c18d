// Answers of /v1/responses: one message of one text.
#include <ctime>
#include <utility>

#include "base/json.h"
#include "serve/http/api/answer_writer.h"
#include "serve/http/api/chat_answer.h"

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

Json TextPart(const std::string& text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

class ResponsesWriter : public AnswerWriter {
 public:
  explicit ResponsesWriter(const AnswerParts& parts)
      : request_(parts.request),
        model_(parts.model),
        id_(parts.id),
        message_id_(NewAnswerId("msg_")),
        created_(std::time(nullptr)),
        answer_(parts.answer_format, {}) {}

  Json Whole(std::span<const GenerateResult* const> results, const Usage& usage) override {
    answer_.Feed(results[0]->text);
    answer_.Finish();
    finish_ = results[0]->finish;
    return Ended(usage);
  }

  std::string Begin() override {
    const Json begun = Response("in_progress");
    Json item = Message("in_progress");
    item["content"] = Json::array();
    return Event("response.created", {{"response", begun}}) +
           Event("response.in_progress", {{"response", begun}}) +
           Event("response.output_item.added", {{"output_index", 0}, {"item", std::move(item)}}) +
           Event("response.content_part.added", InPart({{"part", TextPart("")}}));
  }

  std::string Update(int, const RequestUpdate& update) override {
    return Deltas(answer_.Feed(update.text));
  }

  std::string EndChoice(int, const GenerateResult& result) override {
    finish_ = result.finish;
    std::string events = Deltas(answer_.Finish());
    return std::move(events) +
           Event("response.output_text.done",
                 InPart({{"text", answer_.content()}, {"logprobs", Json::array()}})) +
           Event("response.content_part.done", InPart({{"part", TextPart(answer_.content())}})) +
           Event("response.output_item.done",
                 {{"output_index", 0}, {"item", Message(StatusOf(finish_))}});
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
  std::string Deltas(const std::vector<Json>& deltas) {
    std::string events;
    for (const Json& delta : deltas) {
      if (!delta.contains("content")) continue;
      events += Event("response.output_text.delta",
                      InPart({{"delta", delta.at("content")}, {"logprobs", Json::array()}}));
    }
    return events;
  }

  Json Message(const char* status) const {
    return {{"type", "message"},
            {"id", message_id_},
            {"status", status},
            {"role", "assistant"},
            {"content", Json::array({TextPart(answer_.content())})}};
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
    response["output"].push_back(Message(StatusOf(finish_)));
    response["usage"] = UsageJson(usage);
    if (finish_ == FinishReason::kLength) {
      response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    return response;
  }

  // Members of an event that belongs to the message's text.
  Json InPart(Json members) const {
    members.update({{"item_id", message_id_}, {"output_index", 0}, {"content_index", 0}});
    return members;
  }

  std::string Event(const std::string& type, Json members) {
    members["type"] = type;
    members["sequence_number"] = sequence_number_++;
    return "event: " + type + "\ndata: " + JsonText(members) + "\n\n";
  }

  const ApiRequest request_;
  const std::string model_;
  const std::string id_;
  const std::string message_id_;
  const int64_t created_;
  int64_t sequence_number_ = 0;
  ChatAnswer answer_;  // only its content is shown
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace

std::unique_ptr<AnswerWriter> NewResponsesWriter(const AnswerParts& parts) {
  return std::make_unique<ResponsesWriter>(parts);
}

}  // namespace talon
