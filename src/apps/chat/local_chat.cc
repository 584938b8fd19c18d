// A chat with a model that runs in this process.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "apps/chat/chat_model.h"
#include "apps/run_remote.h"
#include "base/json.h"
#include "setup/chat.h"
#include "setup/loader.h"
#include "text/answers/answer_parser.h"
#include "text/chat_options.h"

namespace talon {
namespace {

class LocalChat : public ChatModel {
 public:
  explicit LocalChat(const Config& config) : config_(config) { config_.max_sequences = 1; }

  Status Open() {
    TALON_ASSIGN_OR_RETURN(model_, LoadTarget(config_));
    TALON_ASSIGN_OR_RETURN(tokenizer_, RequireTokenizer(*model_));
    TALON_ASSIGN_OR_RETURN(chat_, RequireChat(config_.serve, *model_));
    TALON_ASSIGN_OR_RETURN(sampling_, MakeSamplingParams(config_.sampling, tokenizer_));
    if (model_->engine_options.kv_tokens == 0) {
      model_->engine_options.kv_tokens = DefaultKvTokens(*model_, 1);
    }
    TALON_ASSIGN_OR_RETURN(engine_, MakeEngine(model_.get(), config_, model_->drafters));
    return OkStatus();
  }

  std::string Description() const override {
    return fmt::format("{} on {}, drafter {}", ShortModelName(model_->name),
                       model_->backend->info().description, model_->drafters.Name());
  }

  Result<ChatAnswerEnd> Answer(const OrderedJson& messages,
                               const std::function<void(const TextPiece&)>& show,
                               const std::function<bool()>& cancelled) override {
    TALON_ASSIGN_OR_RETURN(GenerateRequest request, RequestFor(messages));
    TextPieces pieces(tokenizer_, request.prompt, request.text);
    request.on_update = [&](const RequestUpdate& update) {
      for (const TextPiece& piece : pieces.Split(update)) show(piece);
    };
    TALON_ASSIGN_OR_RETURN(const RequestId id, engine_->Submit(std::move(request)));
    while (engine_->HasWork()) {
      if (cancelled()) engine_->Cancel(id);
      engine_->RunStep();
    }
    TALON_ASSIGN_OR_RETURN(GenerateResult result, engine_->Take(id));
    if (result.finish == FinishReason::kError) return result.error;
    return ChatAnswerEnd{.content = ContentOf(result.text),
                         .stopped = result.finish == FinishReason::kCancelled,
                         .at_limit = result.finish == FinishReason::kLength,
                         .stats = result.stats};
  }

 private:
  Result<GenerateRequest> RequestFor(const OrderedJson& messages) {
    TALON_ASSIGN_OR_RETURN(GenerateRequest request,
                           ChatRequest(*chat_, *tokenizer_, messages, sampling_, {}));
    request.stop = config_.sampling.stop;
    const int context = engine_->options().max_length;
    const int room = context - static_cast<int>(request.prompt.size());
    if (room < 1) {
      return InvalidArgument("the conversation has {} tokens, the context holds {}: /reset",
                             request.prompt.size(), context);
    }
    request.sampling.max_tokens = std::min(request.sampling.max_tokens, room);
    *request.sampling.seed += turn_++;  // answers to the same messages differ
    return request;
  }

  // The answer without its reasoning, which models do not get back.
  std::string ContentOf(const std::string& text) const {
    if (chat_->tool_format != ToolFormat::kHarmony) return text;
    const auto parser = NewAnswerParser(chat_->tool_format, {});
    std::string content;
    for (const auto& deltas : {parser->Feed(text), parser->Finish()}) {
      for (const AnswerDelta& delta : deltas) {
        if (delta.kind == AnswerDelta::Kind::kContent) content += delta.text;
      }
    }
    return content;
  }

  Config config_;
  std::unique_ptr<LoadedModel> model_;
  const Tokenizer* tokenizer_ = nullptr;  // the model's
  std::optional<Chat> chat_;
  SamplingParams sampling_;
  std::unique_ptr<Engine> engine_;
  uint64_t turn_ = 0;
};

}  // namespace

Result<std::unique_ptr<ChatModel>> OpenLocalChat(const Config& config) {
  auto chat = std::make_unique<LocalChat>(config);
  TALON_RETURN_IF_ERROR(chat->Open());
  return std::unique_ptr<ChatModel>(std::move(chat));
}

}  // namespace talon
