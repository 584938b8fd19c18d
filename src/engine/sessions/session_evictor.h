// Removes sessions from the table and frees their K/V: those that their clients ended, those that
// were idle too long, and those that make way for others.
#ifndef TALON_ENGINE_SESSIONS_SESSION_EVICTOR_H_
#define TALON_ENGINE_SESSIONS_SESSION_EVICTOR_H_

#include <chrono>

#include "engine/sessions/session_calls.h"
#include "engine/sessions/session_table.h"
#include "kv/kv_cache.h"
#include "observe/metrics.h"

namespace talon {

// A session is idle while no calls of it wait or run. Used by the engine's thread.
class SessionEvictor {
 public:
  struct Parts {  // not owned
    SessionTable* sessions = nullptr;
    const SessionCalls* calls = nullptr;
    KvCache* kv = nullptr;
    Metrics* metrics = nullptr;
  };
  explicit SessionEvictor(const Parts& parts) : parts_(parts) {}

  // Whether a session can make way for the call: an idle one or, while no calls run, one whose
  // calls all wait behind it. Otherwise clients that call again at once would keep others out.
  bool CanMakeWay(const SessionCall& call) const { return OldestFor(call) != nullptr; }
  // Removes the least recently used of these. False: there is none.
  bool MakeWay(const SessionCall& call);
  // Removes idle sessions last used `ttl` ago or earlier. Returns how many.
  int Collect(SessionTable::TimePoint now, std::chrono::seconds ttl);
  // Removes sessions whose end was asked for, once the calls that were there before it are over.
  void RemoveEnded();
  // `reason` is the label of the metric. REQUIRES: it is in the table and has its sequence.
  void Remove(Session* session, const char* reason);

 private:
  Session* OldestFor(const SessionCall& call) const;

  Parts parts_;
};

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_SESSION_EVICTOR_H_
