#include "remote/orchestrator.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "engine/draft_forest.h"
#include "engine/output_text.h"
#include "remote/overlap.h"
#include "remote/verifier.h"

namespace talon {
namespace {

std::string NewSessionId() { return fmt::format("talon-{:016x}", RandomSeed()); }

bool Contains(const std::vector<int32_t>& tokens, int32_t token) {
  return std::ranges::find(tokens, token) != tokens.end();
}

// Tokens that end the request by themselves.
std::vector<int32_t> StopTokens(const SamplingParams& sampling, const std::vector<int32_t>& eos) {
  std::vector<int32_t> stops = sampling.stop_token_ids;
  if (sampling.ignore_eos) return stops;
  for (const int32_t id : eos) {
    if (!Contains(stops, id)) stops.push_back(id);
  }
  return stops;
}

Status NotRemote(const char* parameter) {
  return InvalidArgument("{}: not possible with a remote target", parameter);
}

}  // namespace

// A running request.
class Orchestrator::Run {
 public:
  Run(Orchestrator* owner, GenerateRequest request, StopMatcher stops);

  GenerateResult ToEnd();

 private:
  // What a round did, for reports.
  struct Round {
    DraftForest tree;
    std::vector<int32_t> path;  // the longest
    VerifyReply reply;
    std::vector<EmittedToken> emitted;
  };

  void RunRound();
  DraftForest NextTree();
  void Emit(Round* round);
  void Deliver(const Round& round);
  void Count(const Round& round);
  void Report(const Round& round);
  void Close(FinishReason reason);
  void EndWith(const Status& failure);
  // Tokens that a path may still have, the bonus not counted.
  int DepthLeft() const;
  bool Cancelled() const { return parts_.cancelled && parts_.cancelled(); }
  void Event(RemoteEvent event, std::initializer_list<LogField> fields) const {
    if (parts_.telemetry != nullptr) parts_.telemetry->AddEvent(event, fields);
  }

  const Parts& parts_;
  const OrchestratorOptions& options_;
  GenerateRequest request_;
  const std::vector<int32_t> stop_tokens_;
  OutputText text_;
  GenerateResult result_;
  std::vector<int32_t> context_;  // prompt and confirmed tokens
  Verifier verifier_;
  std::optional<DraftClient> drafter_;
  std::optional<DraftStream> stream_;
  int rounds_ = 0;
};

namespace {

DraftClientOptions DraftOptionsOf(const OrchestratorOptions& options,
                                  std::vector<int32_t> end_tokens) {
  DraftClientOptions draft = options.draft;
  draft.end_tokens = std::move(end_tokens);
  draft.draws = options.rejection;
  return draft;
}

}  // namespace

Orchestrator::Run::Run(Orchestrator* owner, GenerateRequest request, StopMatcher stops)
    : parts_(owner->parts_),
      options_(owner->options_),
      request_(std::move(request)),
      stop_tokens_(StopTokens(request_.sampling, options_.eos_ids)),
      text_(parts_.tokenizer, std::move(stops), request_.prompt, request_.ShownText()),
      context_(request_.prompt),
      verifier_({.target = parts_.target,
                 .timer = parts_.timer,
                 .telemetry = parts_.telemetry,
                 .metrics = parts_.metrics,
                 .cancelled = parts_.cancelled},
                {.timeout_seconds = options_.timeout_seconds,
                 .rejection = options_.rejection,
                 .stop_token_ids = stop_tokens_,
                 .vocab_size = options_.vocab_size,
                 .answer_start = static_cast<int>(request_.prompt.size())},
                NewSessionId(), request_.sampling) {
  result_.id = 1;
  result_.seed = *request_.sampling.seed;
  result_.stats.prompt_tokens = static_cast<int64_t>(request_.prompt.size());
  if (parts_.draft == nullptr || !request_.speculate) return;
  drafter_.emplace(DraftClient::Parts{.link = parts_.draft,
                                      .bridge = parts_.bridge,
                                      .timer = parts_.timer,
                                      .telemetry = parts_.telemetry,
                                      .metrics = parts_.metrics,
                                      .control = &owner->draft_length_},
                   DraftOptionsOf(options_, stop_tokens_));
  const float temperature =
      options_.draft_temperature >= 0 ? options_.draft_temperature : request_.sampling.temperature;
  stream_.emplace(&*drafter_, NewSessionId(),
                  DraftStream::Sampling{.temperature = temperature, .seed = result_.seed});
}

GenerateResult Orchestrator::Run::ToEnd() {
  Event(RemoteEvent::kPipelineStarted, {{"prompt_tokens", result_.stats.prompt_tokens}});
  while (result_.finish == FinishReason::kNone) {
    if (Cancelled()) {
      Close(FinishReason::kCancelled);
    } else if (options_.max_rounds > 0 && rounds_ >= options_.max_rounds) {
      Close(FinishReason::kLength);
    } else {
      RunRound();
    }
  }
  verifier_.End();
  const bool whole =
      result_.finish == FinishReason::kStop || result_.finish == FinishReason::kLength;
  Event(whole ? RemoteEvent::kPipelineCompleted : RemoteEvent::kPipelineTerminated,
        {{"finish_reason", FinishReasonName(result_.finish)}, {"rounds", rounds_}});
  return std::move(result_);
}

int Orchestrator::Run::DepthLeft() const {
  int64_t left = request_.sampling.max_tokens - static_cast<int64_t>(result_.tokens.size());
  if (options_.max_length > 0) {
    left = std::min(left, options_.max_length - static_cast<int64_t>(context_.size()));
  }
  return static_cast<int>(left - 1);
}

// The first round has nothing to verify yet: the target computes the prompt beside the drafter.
DraftForest Orchestrator::Run::NextTree() {
  if (rounds_ == 0 && options_.draft.overlap) return {};
  stream_->Prepare(context_, DepthLeft());
  return stream_->Take();
}

void Orchestrator::Run::RunRound() {
  const auto begin = parts_.timer->Now();
  Event(RemoteEvent::kRoundStarted,
        {{"round_idx", rounds_}, {"current_k", drafter_ ? drafter_->length() : 0}});
  Round round;
  if (stream_) {
    round.tree = NextTree();
    round.path = LongestPath(round.tree, stop_tokens_);
    stream_->Ahead(context_, round.path, DepthLeft() - 1);  // the bonus comes between
  }
  auto reply = verifier_.Verify(context_, round.tree);
  if (!reply.ok()) return EndWith(reply.status());
  round.reply = std::move(*reply);
  Emit(&round);
  const auto accepted = static_cast<int>(round.reply.answer.accepted.size());
  if (stream_ && rounds_ > 0) {
    stream_->Observe({.path_length = static_cast<int>(round.path.size()),
                      .accepted = accepted,
                      .wait_seconds = stream_->waited_seconds(),
                      .target_seconds = round.reply.report.seconds()});
  }
  const double seconds = SecondsBetween(begin, parts_.timer->Now());
  (rounds_ == 0 ? result_.stats.prompt_seconds : result_.stats.decode_seconds) += seconds;
  if (rounds_ == 0) result_.stats.first_token_seconds = seconds;
  Count(round);
  Report(round);
  Deliver(round);
  ++rounds_;
}

// Tokens in emission order up to the first that ends the request; later ones are dropped.
void Orchestrator::Run::Emit(Round* round) {
  const VerifyAnswer& answer = round->reply.answer;
  std::vector<int32_t> tokens = answer.accepted;
  if (answer.correction) tokens.push_back(*answer.correction);
  for (size_t i = 0; i < tokens.size() && result_.finish == FinishReason::kNone; ++i) {
    const int32_t token = tokens[i];
    round->emitted.push_back({.token = token, .drafted = i < answer.accepted.size()});
    context_.push_back(token);
    result_.tokens.push_back(round->emitted.back());
    const bool full =
        options_.max_length > 0 && static_cast<int>(context_.size()) >= options_.max_length;
    if (Contains(stop_tokens_, token) || text_.Push(token)) {
      result_.finish = FinishReason::kStop;
    } else if (full || static_cast<int>(result_.tokens.size()) >= request_.sampling.max_tokens) {
      result_.finish = FinishReason::kLength;
    }
  }
}

void Orchestrator::Run::Deliver(const Round& round) {
  if (result_.finish != FinishReason::kNone) text_.Finish();
  RequestUpdate update{.id = result_.id,
                       .tokens = round.emitted,
                       .text = text_.TakeText(),
                       .finish = result_.finish};
  result_.text += update.text;
  if (request_.watched) {
    const TokenTree tree = TreeOfForest(0, round.tree);
    VerifiedTree seen{.tokens = tree.tokens, .parents = tree.parents, .path = {0}};
    seen.tokens[0] = context_[context_.size() - round.emitted.size() - 1];
    for (const int32_t token : round.reply.answer.accepted) {
      seen.path.push_back(tree.FindChild(seen.path.back(), token));
    }
    update.tree = std::move(seen);
    update.stats = result_.stats;
  }
  if (request_.on_update) request_.on_update(update);
}

void Orchestrator::Run::Count(const Round& round) {
  RequestStats& stats = result_.stats;
  const VerifyAnswer& answer = round.reply.answer;
  ++stats.passes;
  stats.emitted += static_cast<int64_t>(round.emitted.size());
  stats.drafted += round.tree.size();
  stats.accepted += static_cast<int64_t>(answer.accepted.size());
  stats.rows += answer.rows;
  stats.verify_seconds += round.reply.report.seconds();
  if (stream_) stats.draft_seconds += stream_->waited_seconds();
  for (size_t depth = 0; depth < std::min<size_t>(round.path.size(), RequestStats::kMaxDepth);
       ++depth) {
    ++stats.tried_at_depth[depth];
    if (depth < answer.accepted.size()) ++stats.accepted_at_depth[depth];
  }
}

void Orchestrator::Run::Report(const Round& round) {
  const VerifyAnswer& answer = round.reply.answer;
  const CallReport& report = round.reply.report;
  const double waited = stream_ ? stream_->waited_seconds() : 0;
  const double drafting = stream_ ? stream_->drafting_seconds() : 0;
  const auto accepted = static_cast<double>(answer.accepted.size());
  const double rate = round.path.empty() ? 0 : accepted / static_cast<double>(round.path.size());
  Event(RemoteEvent::kRoundVerified,
        {{"round_idx", rounds_},
         {"accepted_length", answer.accepted.size()},
         {"path_depth", round.path.size()},
         {"tree_node_count", round.tree.size()},
         {"acceptance_rate", rate},
         {"bonus_token", answer.correction.value_or(-1)},
         {"delta_token_count", verifier_.sent_tokens()},
         {"expected_prefix_length", verifier_.expected_prefix()},
         {"verify_rpc_ms", 1e3 * report.seconds()},
         {"draft_rpc_ms", 1e3 * drafting},
         {"overlap_savings_ms", 1e3 * std::max(0.0, drafting - waited)},
         {"actual_wait_ms", 1e3 * waited},
         {"rtt_ms_measured", 1e3 * report.rtt_seconds()},
         {"payload_bytes", report.bytes_sent + report.bytes_received},
         {"proto_decode_ms", 1e3 * report.decode_seconds},
         {"current_k", drafter_ ? drafter_->length() : 0},
         {"k_pid_error", drafter_ ? drafter_->control().error() : 0},
         {"k_pid_integral", drafter_ ? drafter_->control().integral() : 0}});
}

// Ends the request between rounds and flushes the text that was held back.
void Orchestrator::Run::Close(FinishReason reason) {
  result_.finish = reason;
  text_.Finish();
  const RequestUpdate update{.id = result_.id, .text = text_.TakeText(), .finish = reason};
  result_.text += update.text;
  if (request_.on_update) request_.on_update(update);
}

void Orchestrator::Run::EndWith(const Status& failure) {
  if (failure.code() == StatusCode::kDeadlineExceeded && !result_.tokens.empty()) {
    LogFallback("remote", failure.message() + "; ended with what is confirmed");
    return Close(FinishReason::kTimeout);
  }
  if (failure.code() == StatusCode::kCancelled) return Close(FinishReason::kCancelled);
  result_.error = failure;
  Close(FinishReason::kError);
}

Orchestrator::Orchestrator(Parts parts, OrchestratorOptions options)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      draft_length_(options_.draft.LengthOptions()) {
  if (parts_.timer == nullptr) parts_.timer = &clock_;
}

Status Orchestrator::Check(const GenerateRequest& request) const {
  const SamplingParams& sampling = request.sampling;
  if (request.prompt.empty()) return InvalidArgument("prompt: no tokens");
  const int vocabulary =
      options_.vocab_size > 0 ? options_.vocab_size : std::numeric_limits<int>::max();
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const int32_t token = request.prompt[i];
    if (token >= 0 && token < vocabulary) continue;
    return InvalidArgument("prompt: token {} at {}, vocabulary {}", token, i, vocabulary);
  }
  TALON_RETURN_IF_ERROR(sampling.Validate(vocabulary));
  if (sampling.repetition_penalty != 1) return NotRemote("repetition_penalty");
  if (sampling.frequency_penalty != 0) return NotRemote("frequency_penalty");
  if (sampling.presence_penalty != 0) return NotRemote("presence_penalty");
  if (!sampling.logit_bias.empty()) return NotRemote("logit_bias");
  if (!sampling.bad_words.empty()) return NotRemote("bad_words");
  if (sampling.min_tokens > 0) return NotRemote("min_tokens");
  if (sampling.logprobs >= 0) return NotRemote("logprobs");
  if (sampling.choice != 0) return NotRemote("n above 1");
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (options_.max_length > 0 && prompt >= options_.max_length) {
    return InvalidArgument("prompt: {} tokens, the context holds {} and one must be left", prompt,
                           options_.max_length);
  }
  if (!request.stop.empty() && parts_.tokenizer == nullptr) {
    return InvalidArgument("stop: the model has no tokenizer");
  }
  return StopMatcher::Create(request.stop).status();
}

GenerateResult Orchestrator::Generate(GenerateRequest request) {
  if (!request.sampling.seed) request.sampling.seed = RandomSeed();
  auto stops = StopMatcher::Create(request.stop);
  if (!stops.ok()) {
    GenerateResult failed;
    failed.finish = FinishReason::kError;
    failed.error = stops.status();
    return failed;
  }
  return Run(this, std::move(request), std::move(*stops)).ToEnd();
}

}  // namespace talon
