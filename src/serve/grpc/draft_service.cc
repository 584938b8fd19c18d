#include "serve/grpc/draft_service.h"

#include "base/clock.h"

namespace talon {

void DraftService::Serve(DraftSessions* sessions, int vocab_size) {
  vocab_size_ = vocab_size;
  sessions_ = sessions;
}

Result<std::string> DraftService::Ping() {
  return EncodePingAnswer({.status = sessions_ == nullptr ? "LOADING" : "SERVING",
                           .worker_type = "draft",
                           .model_name = options_.model_name,
                           .vocab_size = vocab_size_});
}

Result<std::string> DraftService::Handle(const RpcCall& call) {
  if (call.method != "GenerateDrafts") return Unimplemented("draft: no method '{}'", call.method);
  const Stopwatch watch;
  DraftSessions* sessions = sessions_;
  if (sessions == nullptr) return Unavailable("LOADING: the draft model is not loaded yet");
  WireLimits limits = options_.limits;
  limits.vocab_size = vocab_size_;
  TALON_ASSIGN_OR_RETURN(const DraftCall asked, DecodeDraftCall(call.message, limits));
  TALON_ASSIGN_OR_RETURN(const DraftAnswer answer, sessions->Draft(asked, call.cancelled));
  if (options_.metrics != nullptr) {
    options_.metrics->Set(Gauge::kRemoteSessions, sessions->num_sessions());
  }
  return EncodeDraftAnswer(answer, AnswerForm(asked),
                           {.id = fmt::format("draft-{}", next_span_++),
                            .wall_seconds = watch.Seconds(),
                            .device = options_.device});
}

}  // namespace talon
