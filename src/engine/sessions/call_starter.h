// How a waiting call begins: what its context is, what of it the session already has, and whether
// there is room for it.
#ifndef TALON_ENGINE_SESSIONS_CALL_STARTER_H_
#define TALON_ENGINE_SESSIONS_CALL_STARTER_H_

#include <string_view>

#include "base/status.h"
#include "engine/sessions/session_calls.h"
#include "engine/sessions/session_evictor.h"
#include "engine/sessions/session_options.h"
#include "engine/sessions/session_table.h"
#include "kv/kv_cache.h"
#include "observe/metrics.h"

namespace talon {

// Used by the engine's thread.
class CallStarter {
 public:
  using TimePoint = SessionTable::TimePoint;

  struct Parts {  // not owned
    const SessionOptions* options = nullptr;
    const SessionCalls* calls = nullptr;
    SessionTable* sessions = nullptr;
    SessionEvictor* evictor = nullptr;
    KvCache* kv = nullptr;
    Metrics* metrics = nullptr;
  };
  explicit CallStarter(const Parts& parts) : parts_(parts) {}

  // Gives the call its context and its run, and enters its session in the table. Idle sessions make
  // way. On failure the call has no run, and its session has the same tokens but perhaps less K/V.
  // ResourceExhausted: there is no room until running calls end. Other codes: it cannot begin.
  //
  // REQUIRES: a waiting call; its `session` is the one that the table has for it, or null.
  Status Start(SessionCall* call, TimePoint now);

 private:
  Status FindContext(SessionCall* call);
  static Status CheckAnswer(const SessionCall& call);
  Status Desync(const SessionCall& call, std::string_view problem);
  void StartRun(SessionCall* call);
  void Prepare(SessionCall* call);
  Status FindRoom(const SessionCall& call);
  void EnterTable(SessionCall* call, TimePoint now);
  void StepBack(SessionCall* call);
  int BlocksToCome(const SessionCall& call) const;
  const EngineOptions& engine_options() const { return parts_.options->engine; }

  Parts parts_;
  SequenceId next_sequence_ = 1;
};

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_CALL_STARTER_H_
