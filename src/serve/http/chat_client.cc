#include "serve/http/chat_client.h"

#include <httplib.h>

#include <chrono>
#include <future>
#include <utility>

#include "base/json.h"
#include "serve/http/event_stream.h"

namespace talon {
namespace {

constexpr int kReadTimeoutSeconds = 600;  // for the next byte of an answer
constexpr std::chrono::milliseconds kPoll(50);

// The message of OpenAI's error object, or what else the server said.
Status ErrorOf(const std::string& url, int status, const std::string& body) {
  const auto json = ParseJson(body, "answer");
  const bool said = json.ok() && json->is_object() && json->contains("error") &&
                    (*json)["error"].is_object() && (*json)["error"].contains("message") &&
                    (*json)["error"]["message"].is_string();
  const std::string message = said ? (*json)["error"]["message"].get<std::string>() : "";
  if (status == 401) return InvalidArgument("{}: needs another --api-key", url);
  return InvalidArgument("{}: status {}{}{}", url, status, said ? ": " : "", message);
}

class HttpChatClient : public ChatClient {
 public:
  HttpChatClient(std::string url, const std::string& api_key) : url_(std::move(url)), http_(url_) {
    http_.set_keep_alive(true);
    http_.set_tcp_nodelay(true);
    http_.set_read_timeout(kReadTimeoutSeconds);
    if (!api_key.empty()) http_.set_bearer_token_auth(api_key);
  }

  Status Open() {
    TALON_ASSIGN_OR_RETURN(const Json models, Get("/v1/models"));
    const Json& list = models.is_object() && models.contains("data") ? models["data"] : Json();
    if (!list.is_array() || list.empty() || !list[0].is_object() || !list[0].contains("id") ||
        !list[0]["id"].is_string()) {
      return InvalidArgument("{}/v1/models: lists no model", url_);
    }
    model_ = list[0]["id"].get<std::string>();
    const auto status = Get("/talon/status");
    if (status.ok() && status->contains("drafter") && (*status)["drafter"].is_string()) {
      drafter_ = (*status)["drafter"].get<std::string>();
    }
    return OkStatus();
  }

  Status Stream(const Json& body, const std::function<void(const Json&)>& on_event,
                const std::function<bool()>& cancelled) override {
    EventStream events;
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/chat/completions";
    request.set_header("Content-Type", "application/json");
    request.body = body.dump();
    request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      events.Read({data, size}, on_event);
      return true;
    };
    auto answer = std::async(std::launch::async, [&] { return http_.send(request); });
    bool stopped = false;
    while (answer.wait_for(kPoll) != std::future_status::ready) {
      if (stopped || !cancelled()) continue;
      stopped = true;
      http_.stop();
    }
    const httplib::Result result = answer.get();
    if (stopped) return Cancelled("stopped");
    if (!result) return NoAnswer(result);
    if (result->status != 200) return ErrorOf(url_, result->status, events.unread());
    return events.End();
  }

 private:
  Status NoAnswer(const httplib::Result& result) const {
    return Unavailable("{}: no answer ({}); is a server running there?", url_,
                       httplib::to_string(result.error()));
  }

  Result<Json> Get(const char* path) {
    const httplib::Result result = http_.Get(path);
    if (!result) return NoAnswer(result);
    if (result->status != 200) return ErrorOf(url_ + path, result->status, result->body);
    return ParseJson(result->body, url_ + path);
  }

  std::string url_;
  httplib::Client http_;
};

}  // namespace

Result<std::unique_ptr<ChatClient>> ChatClient::Connect(const std::string& url,
                                                        const std::string& api_key) {
  if (!url.starts_with("http://"))
    return InvalidArgument("url: '{}', must be http://HOST:PORT", url);
  auto client = std::make_unique<HttpChatClient>(url, api_key);
  TALON_RETURN_IF_ERROR(client->Open());
  return std::unique_ptr<ChatClient>(std::move(client));
}

}  // namespace talon
