// A chat with the model of a running server.
#include <fmt/core.h>

#include <mutex>
#include <string_view>
#include <utility>

#include "apps/chat/chat_model.h"
#include "base/json.h"
#include "serve/http/chat_client.h"
#include "setup/settings.h"

namespace talon {
namespace {

// A chunk's text cut at its tokens, as Talon's server tells them. Where they differ the rest is one
// piece that claims no draft.
void ShowChunk(const std::string& text, const Json& tokens,
               const std::function<void(const TextPiece&)>& show) {
  size_t at = 0;
  for (const Json& token : tokens) {
    const std::string piece = token.value("text", "");
    if (text.compare(at, piece.size(), piece) != 0) break;
    at += piece.size();
    if (!piece.empty()) show({piece, token.value("drafted", false)});
  }
  if (at < text.size()) show({text.substr(at)});
}

std::string DeltaText(const Json& delta, const char* key) {
  const auto at = delta.find(key);
  return at != delta.end() && at->is_string() ? at->get<std::string>() : "";
}

RequestStats StatsOf(const Json& json) {
  RequestStats stats;
  stats.passes = json.value("passes", int64_t{0});
  stats.emitted = json.value("emitted", int64_t{0});
  stats.drafted = json.value("drafted", int64_t{0});
  stats.accepted = json.value("accepted", int64_t{0});
  stats.decode_seconds = json.value("decode_seconds", 0.0);
  return stats;
}

class ServerChat : public ChatModel {
 public:
  ServerChat(std::unique_ptr<ChatClient> client, ServerChatOptions options)
      : client_(std::move(client)), options_(std::move(options)) {}

  std::string Description() const override {
    const std::string& drafter = client_->drafter();
    return fmt::format("{} at {}{}", client_->model(), options_.url,
                       drafter.empty() ? "" : ", drafter " + drafter);
  }

  Result<ChatAnswerEnd> Answer(const OrderedJson& messages,
                               const std::function<void(const TextPiece&)>& show,
                               const std::function<bool()>& cancelled) override {
    ChatAnswerEnd end;
    const Status status = client_->Stream(
        BodyFor(messages), [&](const Json& event) { Take(event, show, &end); }, cancelled);
    end.stopped = status.code() == StatusCode::kCancelled;
    if (!status.ok() && !end.stopped) return status;
    return end;
  }

 private:
  // Only what the user has set: the rest is the server's to choose.
  Json BodyFor(const OrderedJson& messages) {
    Json body = {{"model", client_->model()},
                 {"messages", messages},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}}}};
    if (!client_->drafter().empty()) body["speculative"] = {{"trace", true}};
    const SamplingConfig& sampling = options_.config.sampling;
    const auto add = [&](const char* key, const auto& value) {
      if (options_.given(key)) body[key] = value;
    };
    add("max_tokens", sampling.max_tokens);
    add("temperature", sampling.temperature);
    add("top_k", sampling.top_k);
    add("top_p", sampling.top_p);
    add("min_p", sampling.min_p);
    add("repetition_penalty", sampling.repetition_penalty);
    add("frequency_penalty", sampling.frequency_penalty);
    add("presence_penalty", sampling.presence_penalty);
    add("seed", sampling.seed);
    add("stop", sampling.stop);
    add("ignore_eos", sampling.ignore_eos);
    return body;
  }

  static void Take(const Json& event, const std::function<void(const TextPiece&)>& show,
                   ChatAnswerEnd* end) {
    const Json talon = event.value("talon", Json::object());
    if (talon.contains("stats")) {
      const int64_t prompt = end->stats.prompt_tokens;
      end->stats = StatsOf(talon["stats"]);
      end->stats.prompt_tokens = prompt;
    }
    if (event.contains("usage") && event["usage"].is_object()) {
      end->stats.prompt_tokens = event["usage"].value("prompt_tokens", int64_t{0});
    }
    if (!event.contains("choices") || event["choices"].empty()) return;
    const Json& choice = event["choices"][0];
    const Json delta = choice.value("delta", Json::object());
    const std::string content = DeltaText(delta, "content");
    end->content += content;
    ShowChunk(DeltaText(delta, "reasoning_content") + content, talon.value("tokens", Json::array()),
              show);
    end->at_limit = end->at_limit || DeltaText(choice, "finish_reason") == "length";
  }

  std::unique_ptr<ChatClient> client_;
  ServerChatOptions options_;
};

}  // namespace

Result<std::unique_ptr<ChatModel>> OpenServerChat(const ServerChatOptions& options) {
  TALON_RETURN_IF_ERROR(CheckSettings(options.config, kSamplingSettings));
  TALON_ASSIGN_OR_RETURN(auto client, ChatClient::Connect(options.url, options.api_key));
  return std::unique_ptr<ChatModel>(std::make_unique<ServerChat>(std::move(client), options));
}

}  // namespace talon
