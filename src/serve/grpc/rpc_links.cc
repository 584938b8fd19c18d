#include "serve/grpc/rpc_links.h"

#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace talon {
namespace {

constexpr auto kCancelInterval = std::chrono::milliseconds(50);

// A call from its sending to its answer's bytes.
class TimedCall {
 public:
  TimedCall(const RpcLinkOptions& options, RpcChannel* channel, const RpcRequest& request)
      : options_(options),
        method_(request.method),
        bytes_sent_(static_cast<int64_t>(request.message.size())),
        sent_(RemoteClock::now()),
        running_(channel->Begin(request)) {}

  bool Ready() const { return running_->Ready() && RemoteClock::now() >= Arrival(); }

  // Waits until Take would not, or until the call was cancelled and soon will be.
  void WaitOrCancel() {
    if (!options_.cancelled) return;
    while (!running_->WaitFor(kCancelInterval)) {
      if (options_.cancelled()) return running_->Cancel();
    }
  }

  // Waits. `report` gets what is known of the call without its content.
  Result<std::string> Take(CallReport* report) {
    Result<std::string> answer = running_->Take();
    if (answer.status().code() == StatusCode::kUnimplemented) answer = WrongWorker();
    const auto arrival = Arrival();
    std::this_thread::sleep_until(arrival);
    const auto bytes_received = answer.ok() ? static_cast<int64_t>(answer->size()) : 0;
    *report = {.sent = sent_,
               .received = arrival,
               .bytes_sent = bytes_sent_,
               .bytes_received = bytes_received};
    Count(answer.status(), *report);
    return answer;
  }

 private:
  Status WrongWorker() const {
    const bool target = method_.find("TargetService") != std::string_view::npos;
    return Unimplemented("this is not a {} worker (are the two addresses swapped?)",
                         target ? "target" : "draft");
  }

  RemoteClock::time_point Arrival() const { return running_->ended() + options_.simulated_rtt; }

  void Count(const Status& status, const CallReport& report) const {
    if (options_.metrics == nullptr) return;
    const std::string_view method = method_.substr(method_.rfind('/') + 1);
    options_.metrics->Observe(Histogram::kRemoteRpcSeconds, report.seconds(), method,
                              StatusCodeName(status.code()));
    options_.metrics->Add(Counter::kRemotePayloadBytes, report.bytes_sent, "sent");
    options_.metrics->Add(Counter::kRemotePayloadBytes, report.bytes_received, "received");
  }

  const RpcLinkOptions& options_;
  const std::string_view method_;
  const int64_t bytes_sent_;
  const RemoteClock::time_point sent_;
  std::unique_ptr<RunningRpc> running_;
};

Result<PingAnswer> PingBy(const RpcLinkOptions& options, RpcChannel* channel, const char* method,
                          RemoteClock::time_point deadline) {
  TimedCall call(options, channel,
                 {.method = method, .message = EncodePingCall(), .deadline = deadline});
  CallReport report;
  TALON_ASSIGN_OR_RETURN(const std::string bytes, call.Take(&report));
  return DecodePingAnswer(bytes);
}

class RunningRpcDraft : public RunningDraft {
 public:
  RunningRpcDraft(const RpcLinkOptions& options, RpcChannel* channel, const RpcRequest& request)
      : options_(options), call_(options, channel, request) {}

  bool Ready() override { return call_.Ready(); }

  Result<DraftReply> Take() override {
    DraftReply reply;
    call_.WaitOrCancel();
    TALON_ASSIGN_OR_RETURN(const std::string bytes, call_.Take(&reply.report));
    const Stopwatch decoding;
    WorkerSpan span;
    TALON_ASSIGN_OR_RETURN(reply.answer, DecodeDraftAnswer(bytes, options_.limits, &span));
    reply.report.worker_seconds = span.wall_seconds;
    reply.report.decode_seconds = decoding.Seconds();
    return reply;
  }

 private:
  const RpcLinkOptions& options_;
  TimedCall call_;
};

}  // namespace

Result<std::unique_ptr<RpcTargetLink>> RpcTargetLink::Open(const RpcLinkOptions& options) {
  TALON_ASSIGN_OR_RETURN(auto channel, RpcChannel::Open(options.address, options.security));
  return std::unique_ptr<RpcTargetLink>(new RpcTargetLink(options, std::move(channel)));
}

Result<VerifyReply> RpcTargetLink::Verify(const VerifyCall& call,
                                          RemoteClock::time_point deadline) {
  TimedCall timed(options_, channel_.get(),
                  {.method = kVerifyDraftsMethod,
                   .message = EncodeVerifyCall(call),
                   .session_id = call.session_id,
                   .deadline = deadline});
  VerifyReply reply;
  timed.WaitOrCancel();
  TALON_ASSIGN_OR_RETURN(const std::string bytes, timed.Take(&reply.report));
  const Stopwatch decoding;
  WorkerSpan span;
  TALON_ASSIGN_OR_RETURN(reply.answer, DecodeVerifyAnswer(bytes, options_.limits, &span));
  reply.report.worker_seconds = span.wall_seconds;
  reply.report.decode_seconds = decoding.Seconds();
  return reply;
}

Status RpcTargetLink::EndSession(const std::string& session_id, RemoteClock::time_point deadline) {
  TimedCall call(options_, channel_.get(),
                 {.method = kEndSessionMethod,
                  .message = EncodeEndSessionCall(session_id),
                  .session_id = session_id,
                  .deadline = deadline});
  CallReport report;
  TALON_ASSIGN_OR_RETURN(const std::string bytes, call.Take(&report));
  return DecodeEndSessionAnswer(bytes).status();
}

Result<PingAnswer> RpcTargetLink::Ping(RemoteClock::time_point deadline) {
  return PingBy(options_, channel_.get(), kTargetPingMethod, deadline);
}

Result<std::unique_ptr<RpcDraftLink>> RpcDraftLink::Open(const RpcLinkOptions& options) {
  TALON_ASSIGN_OR_RETURN(auto channel, RpcChannel::Open(options.address, options.security));
  return std::unique_ptr<RpcDraftLink>(new RpcDraftLink(options, std::move(channel)));
}

std::unique_ptr<RunningDraft> RpcDraftLink::Begin(const DraftCall& call,
                                                  RemoteClock::time_point deadline) {
  return std::make_unique<RunningRpcDraft>(options_, channel_.get(),
                                           RpcRequest{.method = kGenerateDraftsMethod,
                                                      .message = EncodeDraftCall(call),
                                                      .session_id = call.session_id,
                                                      .deadline = deadline});
}

Result<PingAnswer> RpcDraftLink::Ping(RemoteClock::time_point deadline) {
  return PingBy(options_, channel_.get(), kDraftPingMethod, deadline);
}

}  // namespace talon
