// How a call ends: what its session keeps, and what its client is told.
#ifndef TALON_ENGINE_SESSIONS_CALL_ENDER_H_
#define TALON_ENGINE_SESSIONS_CALL_ENDER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/remote_calls.h"
#include "engine/sessions/session_calls.h"
#include "engine/sessions/session_evictor.h"
#include "engine/sessions/session_table.h"
#include "kv/kv_cache.h"
#include "observe/metrics.h"

namespace talon {

struct FinishedCall {
  int64_t id = 0;
  Result<VerifyAnswer> answer;
};

// Used by the engine's thread.
class CallEnder {
 public:
  using TimePoint = SessionTable::TimePoint;

  struct Parts {  // not owned
    SessionTable* sessions = nullptr;
    SessionEvictor* evictor = nullptr;
    KvCache* kv = nullptr;
    Metrics* metrics = nullptr;
  };
  explicit CallEnder(const Parts& parts) : parts_(parts) {}

  // After a pass: ends the call if it is done. REQUIRES: it runs.
  void Settle(SessionCall* call, TimePoint now);
  // Ends a call after a broken invariant, and its session, whose state cannot be trusted any more.
  // REQUIRES: it runs.
  void Abandon(SessionCall* call, const Status& why);
  // The call is over, and what was its own goes with it.
  void End(SessionCall* call, Result<VerifyAnswer> answer);
  // Answers a call that has nothing to free, or whose K/V cannot be freed.
  void Refuse(const SessionCall& call, const Status& why) { finished_.push_back({call.id, why}); }

  // The calls that ended since the last time, in order.
  std::vector<FinishedCall> TakeFinished() { return std::exchange(finished_, {}); }

 private:
  void Answer(SessionCall* call, TimePoint now);

  Parts parts_;
  std::vector<FinishedCall> finished_;
};

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_CALL_ENDER_H_
