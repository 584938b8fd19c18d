#include "remote/draft_client.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "remote/overlap.h"

namespace talon {
namespace {

constexpr int kMaxCallLength = 64;  // longest that a worker takes
constexpr auto kFirstPause = std::chrono::milliseconds(100);
constexpr auto kLongestPause = std::chrono::milliseconds(2000);
// Timeout of a call as a multiple of the mean time, and its lower bound. Short, because a round may
// wait for all of it without a result.
constexpr double kTimeoutFactor = 10;
constexpr double kMinTimeout = 0.1;
constexpr double kSlow = 0.2;  // weight of a new time

bool StartsWith(std::span<const int32_t> tokens, std::span<const int32_t> prefix) {
  return tokens.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

}  // namespace

const char* SpeculationResultName(SpeculationResult result) {
  switch (result) {
    case SpeculationResult::kHit:
      return "hit";
    case SpeculationResult::kMiss:
      return "miss";
    case SpeculationResult::kSkipped:
      return "skipped";
  }
  return "unknown";
}

// A chain, or room for about two paths and two nodes for each branch beside them.
int DraftClientOptions::Nodes(int length) const {
  if (max_nodes > 0) return max_nodes;
  return num_beams == 1 ? length : 2 * length + 2 * (num_beams - 1);
}

DraftClient::DraftClient(const Parts& parts, const DraftClientOptions& options)
    : parts_(parts),
      options_(options),
      own_control_(options.LengthOptions()),
      backoff_(kFirstPause, kLongestPause) {
  if (parts_.control == nullptr) parts_.control = &own_control_;
}

bool DraftClient::wants_probe() const {
  return down_ ? parts_.timer->Now() >= ask_again_ : parts_.control->wants_probe();
}

double DraftClient::Timeout() const {
  if (mean_seconds_ == 0 || down_) return options_.timeout_seconds;
  return std::min(std::max(kTimeoutFactor * mean_seconds_, kMinTimeout), options_.timeout_seconds);
}

std::unique_ptr<RunningDraft> DraftClient::Begin(DraftCall call) {
  if (parts_.bridge != nullptr) {
    auto context = parts_.bridge->ContextForDraft(call.context);
    if (!context.ok() || context->empty()) {
      Fail(context.ok() ? InvalidArgument("an empty context") : context.status());
      return nullptr;
    }
    call.context = std::move(*context);
  }
  if (parts_.telemetry != nullptr) {
    parts_.telemetry->AddEvent(RemoteEvent::kRpcRequestSent,
                               {{"method", "GenerateDrafts"}, {"current_k", call.max_length}});
  }
  return parts_.link->Begin(call, parts_.timer->Now() + SecondsToDuration(Timeout()));
}

std::optional<DraftForest> DraftClient::Receive(Result<DraftReply> reply,
                                                const std::string& request_id) {
  if (reply.ok() && reply->answer.request_id != request_id) {
    reply =
        Internal("an answer to call '{}' instead of '{}'", reply->answer.request_id, request_id);
  }
  if (!reply.ok()) {
    if (reply.status().code() != StatusCode::kCancelled) Fail(reply.status());
    return std::nullopt;
  }
  Recover();
  const CallReport& report = reply->report;
  mean_seconds_ += (mean_seconds_ == 0 ? 1 : kSlow) * (report.seconds() - mean_seconds_);
  if (parts_.telemetry != nullptr) {
    parts_.telemetry->AddCall({.name = "draft",
                               .worker = "draft",
                               .sent = report.sent,
                               .received = report.received,
                               .worker_wall_seconds = report.worker_seconds,
                               .worker_model_seconds = reply->answer.model_seconds});
    parts_.telemetry->AddEvent(RemoteEvent::kRpcResponseReceived,
                               {{"method", "GenerateDrafts"},
                                {"draft_rpc_ms", 1e3 * report.seconds()},
                                {"rtt_ms_measured", 1e3 * report.rtt_seconds()},
                                {"payload_bytes", report.bytes_sent + report.bytes_received},
                                {"proto_decode_ms", 1e3 * report.decode_seconds},
                                {"tree_node_count", reply->answer.drafts.size()}});
  }
  DraftForest drafts = std::move(reply->answer.drafts);
  return parts_.bridge != nullptr ? parts_.bridge->ForTarget(drafts) : std::move(drafts);
}

void DraftClient::Fail(const Status& status) {
  if (parts_.telemetry != nullptr) {
    parts_.telemetry->AddEvent(RemoteEvent::kRpcError, {{"method", "GenerateDrafts"},
                                                        {"code", StatusCodeName(status.code())}});
  }
  if (!down_) {
    LogFallback("remote", fmt::format("draft worker: {}; decoding without drafts until it is back",
                                      status.message()));
    backoff_.Reset();
    if (parts_.metrics != nullptr) {
      parts_.metrics->Add(Counter::kSpecFallback, 1, "draft_worker_down");
    }
  }
  down_ = true;
  ask_again_ = parts_.timer->Now() + backoff_.Next();
}

void DraftClient::Report(SpeculationResult result) {
  const char* name = SpeculationResultName(result);
  if (parts_.metrics != nullptr) parts_.metrics->Add(Counter::kRemoteSpeculation, 1, name);
  if (parts_.telemetry != nullptr) {
    parts_.telemetry->AddEvent(RemoteEvent::kSpeculationResult, {{"result", name}});
  }
}

void DraftClient::Recover() {
  if (down_) LogInfo("draft worker: answers again");
  down_ = false;
}

DraftStream::DraftStream(DraftClient* client, std::string session_id, const Sampling& sampling)
    : client_(client), session_id_(std::move(session_id)), sampling_(sampling) {}

std::optional<DraftStream::Call> DraftStream::Begin(std::vector<int32_t> context, int length,
                                                    int nodes) {
  const DraftClientOptions& options = client_->options();
  Call call{.request_id = fmt::format("{}-d{}", session_id_, next_call_++),
            .context = std::move(context)};
  call.running = client_->Begin({.request_id = call.request_id,
                                 .session_id = session_id_,
                                 .context = call.context,
                                 .max_length = std::min(length, kMaxCallLength),
                                 .num_beams = options.num_beams,
                                 .max_nodes = options.draws ? 0 : nodes,
                                 .temperature = sampling_.temperature,
                                 .seed = sampling_.seed});
  if (call.running == nullptr) return std::nullopt;
  return call;
}

std::optional<DraftForest> DraftStream::Wait(Call* call) {
  RemoteTimer& timer = *client_->parts_.timer;
  const auto begin = timer.Now();
  Result<DraftReply> reply = call->running->Take();
  waited_ += SecondsBetween(begin, timer.Now());
  if (reply.ok()) draft_seconds_ += reply->report.seconds();
  return client_->Receive(std::move(reply), call->request_id);
}

void DraftStream::Prepare(std::span<const int32_t> context, int max_depth) {
  waited_ = 0;
  draft_seconds_ = 0;
  max_depth_ = max_depth;
  ready_ = {};
  fresh_.reset();
  speculation_ = SpeculationResult::kSkipped;
  if (max_depth < 1) return ahead_.reset();  // no more drafts are needed
  if (ahead_ && !ahead_->probe) {
    SettleAhead(context);
  } else {
    SettleProbe(context);
  }
  client_->Report(speculation_);
  const int length = std::min(client_->length(), max_depth);
  if (!ready_.empty() || length < 1) return;
  fresh_ = Begin({context.begin(), context.end()}, length, client_->options().Nodes(length));
}

// A hit if the target accepted the whole path and its bonus is one of the first drafted tokens.
void DraftStream::SettleAhead(std::span<const int32_t> context) {
  Call call = std::move(*ahead_);
  ahead_.reset();
  speculation_ = SpeculationResult::kMiss;
  if (context.size() != call.context.size() + 1 || !StartsWith(context, call.context)) return;
  const std::optional<DraftForest> drafts = Wait(&call);
  if (!drafts) return;
  ready_ = Below(*drafts, context.back());
  if (!ready_.empty()) speculation_ = SpeculationResult::kHit;
}

// Compares the probe's guesses one by one with the target's tokens. If drafting turns out to pay
// while guesses are left, these are the next drafts.
void DraftStream::SettleProbe(std::span<const int32_t> context) {
  if (ahead_ && ahead_->running->Ready()) TakeProbe();
  if (!StartsWith(context, compared_)) guesses_ = {};
  while (!guesses_.empty() && compared_.size() < context.size()) {
    const int32_t next = context[compared_.size()];
    client_->control().ObserveGuess(MatchedLength(guesses_, {&next, 1}) == 1);
    guesses_ = Below(guesses_, next);
    compared_.push_back(next);
  }
  if (client_->length() == 0 || guesses_.empty()) return;
  ready_ = std::exchange(guesses_, {});
  speculation_ = SpeculationResult::kHit;
}

void DraftStream::TakeProbe() {
  Call call = std::move(*ahead_);
  ahead_.reset();
  Result<DraftReply> reply = call.running->Take();
  const double seconds = reply.ok() ? reply->report.seconds() : 0;
  std::optional<DraftForest> drafts = client_->Receive(std::move(reply), call.request_id);
  if (!drafts) return;
  client_->control().ObserveProbe(seconds);
  guesses_ = std::move(*drafts);
  compared_ = std::move(call.context);
}

DraftForest DraftStream::Take() {
  if (fresh_) {
    Call call = std::move(*fresh_);
    fresh_.reset();
    ready_ = Wait(&call).value_or(DraftForest{});
  }
  const DraftClientOptions& options = client_->options();
  const int length = std::min(max_depth_, std::max(client_->length(), 1));
  const int nodes = std::max(1, options.draws ? ready_.size() : options.Nodes(length));
  return Prune(std::exchange(ready_, {}),
               {.max_depth = length, .max_nodes = nodes, .end_tokens = options.end_tokens});
}

void DraftStream::Ahead(std::span<const int32_t> context, std::span<const int32_t> path,
                        int max_depth) {
  const DraftClientOptions& options = client_->options();
  if (ahead_) return;  // a slow probe
  const bool probe = client_->length() == 0;
  if (probe && !guesses_.empty()) return;  // those of the last probe are still valid
  const bool first = next_call_ == 1 && !client_->down();  // a new text may be easier to draft
  if (probe ? !first && !client_->wants_probe() : !options.overlap) return;
  const bool ends = !path.empty() &&
                    std::ranges::find(options.end_tokens, path.back()) != options.end_tokens.end();
  // One more token than a path, for the bonus.
  const int wanted = probe ? client_->control().probe_length() : client_->length();
  const int length = std::min(wanted, max_depth - static_cast<int>(path.size()));
  if (ends || length < 1) return;
  std::vector<int32_t> guessed(context.begin(), context.end());
  guessed.insert(guessed.end(), path.begin(), path.end());
  ahead_ = Begin(std::move(guessed), length + 1, 2 * options.Nodes(length));
  if (ahead_) ahead_->probe = probe;
}

void DraftStream::Observe(const DraftedRound& round) {
  DraftLengthControl& control = client_->control();
  if (round.path_length > 0) {
    control.ObserveDrafted(round);
  } else {
    control.ObservePlain(round.target_seconds);
  }
  if (client_->parts_.metrics == nullptr) return;
  client_->parts_.metrics->Set(Gauge::kRemoteDraftLength, client_->length());
}

}  // namespace talon
