#include "serve/http/completion.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/json.h"
#include "base/random.h"
#include "serve/http/api/tool_grammar.h"
#include "serve/http/prompt_tokens.h"

namespace talon {
namespace {

constexpr std::chrono::milliseconds kWait(50);  // the longest time until a disconnect is noticed
constexpr std::chrono::milliseconds kNoWait(0);

bool IsChat(const ApiRequest& request) {
  return request.endpoint == Endpoint::kChat || request.endpoint == Endpoint::kResponses;
}

// How calls are written. Without tools only channels are of interest.
ToolFormat AnswerFormat(const ServeParts& parts, const ApiRequest& request) {
  const ToolFormat format = parts.defaults.tool_format;
  const bool used = request.tools.active() || (IsChat(request) && format == ToolFormat::kHarmony);
  return used ? format : ToolFormat::kNone;
}

// The special tokens that an answer is taken apart by.
std::vector<int32_t> ShownTokens(const Tokenizer& tokenizer, const AnswerShape& shape) {
  std::vector<int32_t> tokens = MarkerTokens(tokenizer, shape.format);
  if (shape.thinking == Thinking::kNever) return tokens;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    if (token.content == kThinkBegin || token.content == kThinkEnd) tokens.push_back(token.id);
  }
  return tokens;
}

// The model's tags of reasoning are in its template, or are tokens of their own.
bool HasThinkTags(const ServeParts& parts) {
  const std::string& source = parts.chat_template->source();
  if (source.find(kThinkBegin) != std::string::npos) return true;
  if (source.find(kThinkEnd) != std::string::npos) return true;
  return std::ranges::any_of(parts.tokenizer->added_tokens(),
                             [](const AddedToken& token) { return token.content == kThinkBegin; });
}

Thinking ThinkingOf(const ServeParts& parts, std::span<const int32_t> prompt) {
  constexpr size_t kLastTokens = 16;
  if (!HasThinkTags(parts)) return Thinking::kNever;
  std::string end = parts.tokenizer->Decode(prompt.last(std::min(prompt.size(), kLastTokens)),
                                            /*skip_special_tokens=*/false);
  end.resize(end.find_last_not_of(" \n") + 1);
  return end.ends_with(kThinkBegin) ? Thinking::kBegun : Thinking::kMay;
}

// How the text of the answer to a prompt is taken apart.
AnswerShape ShapeOf(const ServeParts& parts, const ApiRequest& request,
                    std::span<const int32_t> prompt) {
  AnswerShape shape{.format = AnswerFormat(parts, request)};
  const bool thinks = IsChat(request) && shape.format != ToolFormat::kHarmony;
  if (thinks) shape.thinking = ThinkingOf(parts, prompt);
  return shape;
}

// The message begins with the tool whose schema is at fault; else it is the answer's own grammar.
ApiError GrammarError(const Status& status, const std::string& param) {
  ApiError error = ErrorFromStatus(status);
  if (error.status != 400) return error;  // the server has too much to do
  const bool tool = error.message.starts_with("tools[");
  error.param = tool ? error.message.substr(0, error.message.find(':')) : param;
  return error;
}

}  // namespace

Completion::Completion(const ServeParts& parts, ApiRequest request, std::string id,
                       std::unique_ptr<AnswerWriter> writer)
    : parts_(parts), request_(std::move(request)), id_(std::move(id)), writer_(std::move(writer)) {
  // One seed for all choices, which differ by their number.
  if (!request_.sampling.seed) request_.sampling.seed = RandomSeed();
}

Completion::~Completion() {
  const FinishReason reason = expired_ ? FinishReason::kTimeout : FinishReason::kCancelled;
  for (const Choice& choice : choices_) {
    if (!choice.stream->done()) parts_.engine->Cancel(choice.stream, reason);
  }
}

std::optional<ApiError> Completion::Start(const ServeParts& parts, ApiRequest request,
                                          std::unique_ptr<Completion>* out) {
  std::vector<std::vector<int32_t>> prompts;
  if (auto error = EncodePrompts(parts, request, &prompts)) return error;
  if (!request.bad_words.empty()) {
    auto banned = EncodeBannedWords(parts, request.bad_words);
    if (!banned.ok()) return ErrorFromStatus(banned.status());
    request.sampling.bad_words = std::move(*banned);
  }
  const AnswerShape shape = ShapeOf(parts, request, prompts[0]);
  if (NeedsAnswerGrammar(shape, request.tools, request.grammar)) {
    request.grammar = AnswerGrammar(shape, request.tools, request.grammar);
  }
  if (request.grammar.kind != GrammarSpec::Kind::kNone) {
    auto grammar = parts.grammars->Compile(request.grammar);
    if (!grammar.ok()) return GrammarError(grammar.status(), request.grammar_param);
    request.sampling.grammar = std::move(*grammar);
  }
  const std::string id = NewAnswerId(request.endpoint);
  AnswerParts answer{.request = request,
                     .id = id,
                     .prompts = prompts,
                     .tokenizer = parts.tokenizer,
                     .model = parts.model_name,
                     .answer_shape = shape};
  if (request.echo) answer.echoes = PromptTexts(parts, request, prompts);
  request.prompts.clear();  // may be large
  request.chat = {};
  auto writer = NewAnswerWriter(answer);
  std::unique_ptr<Completion> completion(
      new Completion(parts, std::move(request), id, std::move(writer)));
  completion->prompts_.assign(std::make_move_iterator(prompts.begin()),
                              std::make_move_iterator(prompts.end()));
  if (auto error = completion->SubmitMore(/*ended=*/0)) return error;
  *out = std::move(completion);
  return std::nullopt;
}

std::optional<ApiError> Completion::SubmitMore(size_t ended) {
  const auto most = static_cast<size_t>(ApiRequest::kMaxStreams);
  while (!prompts_.empty() && choices_.size() - ended + request_.n <= most) {
    if (auto error = Submit(std::move(prompts_.front()))) return error;
    prompts_.pop_front();
  }
  return std::nullopt;
}

std::optional<ApiError> Completion::Submit(std::vector<int32_t> prompt) {
  progress_.prompt_tokens += static_cast<int64_t>(prompt.size());
  GenerateRequest generate{.prompt = std::move(prompt),
                           .sampling = request_.sampling,
                           .prompt_outputs = request_.prompt_outputs,
                           .stop = request_.stop,
                           .text = {.skip_special_tokens = request_.skip_special_tokens,
                                    .include_stop = request_.include_stop},
                           .speculate = request_.speculate,
                           .drafter = request_.drafter,
                           .max_draft_nodes = request_.max_draft_nodes,
                           .specpv = request_.specpv,
                           .watched = request_.trace,
                           .label = id_};
  if (IsChat(request_) && !generate.sampling.ignore_eos) {
    std::ranges::copy(parts_.ends_of_turn, std::back_inserter(generate.sampling.stop_token_ids));
  }
  const AnswerShape shape = ShapeOf(parts_, request_, generate.prompt);
  if (shape != AnswerShape{}) {
    generate.text.shown_special_tokens = ShownTokens(*parts_.tokenizer, shape);
  }
  const int room = RoomAfter(*parts_.engine, generate.prompt.size());
  generate.sampling.max_tokens = std::min(generate.sampling.max_tokens, room);
  generate.sampling.min_tokens = std::min(generate.sampling.min_tokens, room);
  for (int i = 0; i < request_.n; ++i) {
    generate.sampling.choice = static_cast<uint32_t>(i);
    auto stream = parts_.engine->Submit(generate);
    if (!stream.ok()) return ErrorFromStatus(stream.status());
    choices_.push_back({.index = static_cast<int>(choices_.size()),
                        .first_of_prompt = i == 0,
                        .stream = std::move(*stream)});
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
  std::vector<const GenerateResult*> results;
  for (size_t i = 0; i < choices_.size(); ++i) {  // more are added on the way
    const Choice& choice = choices_[i];
    while (!choice.stream->done()) {
      if (const auto update = choice.stream->Next(kWait)) Note(*update);
      if (client_gone()) return ApiError{.status = 499, .message = "the client hung up"};
      if (auto error = Expired()) return error;
    }
    const GenerateResult& result = choice.stream->result();
    if (auto error = ErrorOf(result)) return error;
    Count(choice);
    results.push_back(&result);
    if (auto error = SubmitMore(/*ended=*/i + 1)) return error;
  }
  *answer = writer_->Whole(results, usage_);
  return std::nullopt;
}

std::string Completion::EndWithError(const ApiError& error) {
  ended_ = true;
  return writer_->Fail(error);
}

std::optional<ApiError> Completion::Drain(Choice* choice, std::chrono::milliseconds wait,
                                          std::string* events) {
  while (const auto update = choice->stream->Next(wait)) {
    Note(*update);
    *events += writer_->Update(choice->index, *update);
    wait = kNoWait;
  }
  if (!choice->stream->done()) return std::nullopt;
  choice->ended = true;
  const GenerateResult& result = choice->stream->result();
  if (auto error = ErrorOf(result)) return error;
  Count(*choice);
  *events += writer_->EndChoice(choice->index, result);
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
  if (!std::exchange(begun_, true)) events = writer_->Begin();
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
    events += writer_->End(usage_);
    ended_ = true;
  }
  return events;
}

}  // namespace talon
