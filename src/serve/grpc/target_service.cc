#include "serve/grpc/target_service.h"

#include "base/clock.h"

namespace talon {

int TargetService::vocab_size() const {
  const SessionThread* sessions = sessions_;
  return sessions == nullptr ? 0 : sessions->engine().target().config().vocab_size;
}

Result<std::string> TargetService::Ping() {
  return EncodePingAnswer({.status = sessions_ == nullptr ? "LOADING" : "SERVING",
                           .worker_type = "target",
                           .model_name = options_.model_name,
                           .vocab_size = vocab_size()});
}

Result<std::string> TargetService::Handle(const RpcCall& call) {
  SessionThread* sessions = sessions_;
  if (sessions == nullptr) return Unavailable("LOADING: the target model is not loaded yet");
  if (call.method == "VerifyDrafts") return VerifyDrafts(call, sessions);
  if (call.method == "EndSession") return EndSession(call, sessions);
  return Unimplemented("target: no method '{}'", call.method);
}

Result<std::string> TargetService::VerifyDrafts(const RpcCall& call, SessionThread* sessions) {
  const Stopwatch watch;
  WireLimits limits = options_.limits;
  limits.vocab_size = vocab_size();
  TALON_ASSIGN_OR_RETURN(VerifyCall asked, DecodeVerifyCall(call.message, limits));
  TALON_ASSIGN_OR_RETURN(const VerifyAnswer answer,
                         sessions->Verify(std::move(asked), call.deadline));
  return EncodeVerifyAnswer(answer, {.id = fmt::format("target-{}", next_span_++),
                                     .wall_seconds = watch.Seconds(),
                                     .device = options_.device});
}

Result<std::string> TargetService::EndSession(const RpcCall& call, SessionThread* sessions) const {
  TALON_ASSIGN_OR_RETURN(const std::string id, DecodeEndSessionCall(call.message));
  TALON_ASSIGN_OR_RETURN(const bool was_active, sessions->EndSession(id));
  return EncodeEndSessionAnswer({.session_id = id, .was_active = was_active});
}

}  // namespace talon
