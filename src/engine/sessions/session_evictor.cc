#include "engine/sessions/session_evictor.h"

#include "base/log.h"

namespace talon {

bool SessionEvictor::MakeWay(const SessionCall& call) {
  Session* oldest = OldestFor(call);
  if (oldest == nullptr) return false;
  Remove(oldest, "lru");
  return true;
}

int SessionEvictor::Collect(SessionTable::TimePoint now, std::chrono::seconds ttl) {
  const auto is_over = [&](const Session& session) {
    return now - session.last_accessed >= ttl && !parts_.calls->IsBusy(session);
  };
  int collected = 0;
  while (Session* session = parts_.sessions->Oldest(is_over)) {
    Remove(session, "ttl");
    ++collected;
  }
  return collected;
}

void SessionEvictor::RemoveEnded() {
  const auto is_over = [this](const Session& session) {
    return session.ends_after > 0 && !parts_.calls->IsBusyUpTo(session, session.ends_after);
  };
  while (Session* session = parts_.sessions->Oldest(is_over)) Remove(session, "end");
}

void SessionEvictor::Remove(Session* session, const char* reason) {
  LogEvent(LogLevel::kInfo, "session ended",
           {{"id", session->id}, {"reason", reason}, {"tokens", session->tokens.size()}});
  parts_.kv->Free(&session->sequence);
  parts_.sessions->Remove(session);
  parts_.metrics->Add(Counter::kRemoteSessionEvictions, 1, reason);
}

Session* SessionEvictor::OldestFor(const SessionCall& call) const {
  Session* idle = parts_.sessions->Oldest(
      [this](const Session& session) { return !parts_.calls->IsBusy(session); });
  if (idle != nullptr || !parts_.calls->running().empty()) return idle;
  return parts_.sessions->Oldest(
      [&](const Session& session) { return !parts_.calls->IsBusyUpTo(session, call.id); });
}

}  // namespace talon
