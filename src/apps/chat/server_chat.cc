// A chat with the model of a running server.
#include <fmt/core.h>

#include <utility>

#include "apps/chat/chat_model.h"
#include "base/json.h"
#include "serve/http/chat_client.h"
#include "setup/settings.h"

namespace talon {
namespace {

// Members of what a server sent, whatever that is: null, "" or 0 where there is no such member.
const Json& MemberOf(const Json& json, const char* key) {
  static const Json kNothing;
  const auto at = json.find(key);
  return at == json.end() ? kNothing : *at;
}
std::string TextOf(const Json& json, const char* key) {
  const Json& member = MemberOf(json, key);
  return member.is_string() ? member.get<std::string>() : "";
}
template <typename T>
T NumberOf(const Json& json, const char* key) {
  const Json& member = MemberOf(json, key);
  return member.is_number() ? member.get<T>() : T{0};
}

// A chunk's text cut at its tokens, as Talon's server tells them. Where they differ the rest is one
// piece that claims no draft.
void ShowChunk(const std::string& text, const Json& tokens,
               const std::function<void(const TextPiece&)>& show) {
  size_t at = 0;
  for (const Json& token : tokens) {
    const std::string piece = TextOf(token, "text");
    if (text.compare(at, piece.size(), piece) != 0) break;
    at += piece.size();
    if (!piece.empty()) show({piece, MemberOf(token, "drafted") == true});
  }
  if (at < text.size()) show({text.substr(at)});
}

void TakeStats(const Json& json, RequestStats* stats) {
  stats->passes = NumberOf<int64_t>(json, "passes");
  stats->emitted = NumberOf<int64_t>(json, "emitted");
  stats->drafted = NumberOf<int64_t>(json, "drafted");
  stats->accepted = NumberOf<int64_t>(json, "accepted");
  stats->decode_seconds = NumberOf<double>(json, "decode_seconds");
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
    const Json& talon = MemberOf(event, "talon");
    if (const Json& stats = MemberOf(talon, "stats"); stats.is_object()) {
      TakeStats(stats, &end->stats);
    }
    if (const Json& usage = MemberOf(event, "usage"); usage.is_object()) {
      end->stats.prompt_tokens = NumberOf<int64_t>(usage, "prompt_tokens");
      end->stats.cached_tokens =
          NumberOf<int64_t>(MemberOf(usage, "prompt_tokens_details"), "cached_tokens");
    }
    const Json& choices = MemberOf(event, "choices");
    if (!choices.is_array() || choices.empty()) return;
    const Json& delta = MemberOf(choices[0], "delta");
    const std::string content = TextOf(delta, "content");
    end->content += content;
    ShowChunk(TextOf(delta, "reasoning_content") + content, MemberOf(talon, "tokens"), show);
    end->at_limit = end->at_limit || TextOf(choices[0], "finish_reason") == "length";
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
