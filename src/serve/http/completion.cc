#include "serve/http/completion.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/json.h"
#include "base/random.h"
#include "serve/http/prompt_tokens.h"

namespace talon {
namespace {

constexpr std::chrono::milliseconds kWait(50);  // the longest time until a disconnect is noticed
constexpr std::chrono::milliseconds kNoWait(0);

}  // namespace

Completion::Completion(const ServeParts& parts, const ApiRequest& request)
    : parts_(parts),
      head_{
          .endpoint = request.endpoint,
          .id = fmt::format("{}-{:016x}", request.endpoint == Endpoint::kChat ? "chatcmpl" : "cmpl",
                            RandomSeed()),
          .created = std::time(nullptr),
          .model = parts.model_name},
      logprobs_(request.sampling.logprobs >= 0),
      include_usage_(request.include_usage) {}

Completion::~Completion() {
  const FinishReason reason = expired_ ? FinishReason::kTimeout : FinishReason::kCancelled;
  for (const Choice& choice : choices_) {
    if (!choice.stream->done()) parts_.engine->Cancel(choice.stream, reason);
  }
}

std::optional<ApiError> Completion::Start(const ServeParts& parts, const ApiRequest& request,
                                          std::unique_ptr<Completion>* out) {
  std::vector<std::vector<int32_t>> prompts;
  if (auto error = EncodePrompts(parts, request, &prompts)) return error;
  std::unique_ptr<Completion> completion(new Completion(parts, request));
  // One seed for all choices, which differ by their number.
  const uint64_t seed = request.sampling.seed ? *request.sampling.seed : RandomSeed();
  for (std::vector<int32_t>& prompt : prompts) {
    if (auto error = completion->Submit(std::move(prompt), request, seed)) return error;
  }
  *out = std::move(completion);
  return std::nullopt;
}

std::optional<ApiError> Completion::Submit(std::vector<int32_t> prompt, const ApiRequest& request,
                                           uint64_t seed) {
  progress_.prompt_tokens += static_cast<int64_t>(prompt.size());
  GenerateRequest generate{.prompt = std::move(prompt),
                           .sampling = request.sampling,
                           .stop = request.stop,
                           .speculate = request.speculate,
                           .max_draft_nodes = request.max_draft_nodes,
                           .watched = request.trace,
                           .label = head_.id};
  generate.sampling.seed = seed;
  if (request.endpoint == Endpoint::kChat && parts_.end_of_turn >= 0 &&
      !generate.sampling.ignore_eos) {
    generate.sampling.stop_token_ids.push_back(parts_.end_of_turn);
  }
  const int room = RoomAfter(*parts_.engine, generate.prompt.size());
  generate.sampling.max_tokens = std::min(generate.sampling.max_tokens, room);
  generate.sampling.min_tokens = std::min(generate.sampling.min_tokens, room);
  for (int i = 0; i < request.n; ++i) {
    generate.sampling.choice = static_cast<uint32_t>(i);
    auto stream = parts_.engine->Submit(generate);
    if (!stream.ok()) return ErrorFromStatus(stream.status());
    choices_.push_back({.index = static_cast<int>(choices_.size()),
                        .first_of_prompt = i == 0,
                        .stream = std::move(*stream),
                        .writer = TokenJsonWriter(parts_.tokenizer, generate.prompt)});
  }
  return std::nullopt;
}

std::optional<ApiError> Completion::Expired() {
  const auto limit = parts_.request_timeout;
  if (limit.count() == 0 || std::chrono::steady_clock::now() - start_ < limit) return std::nullopt;
  expired_ = true;
  return ApiError{.status = 504,
                  .message = fmt::format("the request took longer than {} s",
                                         static_cast<double>(limit.count()) / 1000),
                  .code = "timeout"};
}

void Completion::Count(const Choice& choice) {
  const GenerateResult& result = choice.stream->result();
  if (choice.first_of_prompt) usage_.AddPrompt(result.stats);
  usage_.AddChoice(result);
}

std::optional<ApiError> Completion::Collect(const std::function<bool()>& client_gone,
                                            Json* answer) {
  std::vector<ChoiceJson> parts;
  for (Choice& choice : choices_) {
    while (!choice.stream->done()) {
      if (const auto update = choice.stream->Next(kWait)) Note(*update);
      if (client_gone()) return ApiError{.status = 499, .message = "the client hung up"};
      if (auto error = Expired()) return error;
    }
    const GenerateResult& result = choice.stream->result();
    if (auto error = ErrorOf(result)) return error;
    Count(choice);
    parts.push_back({.index = choice.index, .text = result.text, .finish = result.finish});
    if (logprobs_) parts.back().logprobs = choice.writer.Logprobs(head_.endpoint, result.tokens);
  }
  *answer = WholeAnswer(head_, parts, usage_);
  return std::nullopt;
}

std::string Completion::Event(Json chunk) const {
  if (include_usage_ && !chunk.contains("usage")) chunk["usage"] = nullptr;
  return "data: " + JsonText(chunk) + "\n\n";
}

std::string Completion::EndWithError(const ApiError& error) {
  ended_ = true;
  return "data: " + JsonText(ErrorJson(error)) + "\n\n";
}

std::string Completion::UpdateEvent(Choice* choice, const RequestUpdate& update) {
  ChoiceJson part{.index = choice->index, .text = update.text};
  if (logprobs_) part.logprobs = choice->writer.Logprobs(head_.endpoint, update.tokens);
  const bool watched = update.stats.has_value();
  if (update.text.empty() && !logprobs_ && !watched) return "";
  Json chunk = TextChunk(head_, part);
  if (watched) chunk["talon"] = choice->writer.Trace(update);
  return Event(std::move(chunk));
}

void Completion::Begin(Choice* choice, std::string* events) {
  choice->begun = true;
  if (head_.endpoint == Endpoint::kChat) *events += Event(RoleChunk(head_, choice->index));
}

std::optional<ApiError> Completion::Drain(Choice* choice, std::chrono::milliseconds wait,
                                          std::string* events) {
  while (const auto update = choice->stream->Next(wait)) {
    Note(*update);
    if (!choice->begun) Begin(choice, events);
    *events += UpdateEvent(choice, *update);
    wait = kNoWait;
  }
  if (!choice->stream->done()) return std::nullopt;
  choice->ended = true;
  const GenerateResult& result = choice->stream->result();
  if (auto error = ErrorOf(result)) return error;
  if (!choice->begun) Begin(choice, events);
  Count(*choice);
  *events += Event(TextChunk(head_, {.index = choice->index, .finish = result.finish}));
  return std::nullopt;
}

void Completion::Note(const RequestUpdate& update) {
  if (progress_.tokens == 0 && !update.tokens.empty()) {
    const std::chrono::duration<double> age = std::chrono::steady_clock::now() - start_;
    progress_.first_token_seconds = age.count();
  }
  progress_.tokens += static_cast<int64_t>(update.tokens.size());
}

Completion::Choice* Completion::FirstRunning() {
  const auto at = std::find_if(choices_.begin(), choices_.end(),
                               [](const Choice& choice) { return !choice.ended; });
  return at == choices_.end() ? nullptr : &*at;
}

std::string Completion::NextEvents() {
  std::string events;
  for (Choice& choice : choices_) {
    if (choice.ended) continue;
    if (auto error = Drain(&choice, kNoWait, &events)) return events + EndWithError(*error);
  }
  Choice* running = FirstRunning();
  if (running != nullptr && events.empty()) {
    if (auto error = Expired()) return EndWithError(*error);
    if (auto error = Drain(running, kWait, &events)) return events + EndWithError(*error);
    running = FirstRunning();
  }
  if (running == nullptr) {
    if (include_usage_) events += Event(UsageChunk(head_, usage_));
    events += "data: [DONE]\n\n";
    ended_ = true;
  }
  return events;
}

}  // namespace talon
