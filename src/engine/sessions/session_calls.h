// The calls that a session engine works on: those that wait, and those that run.
#ifndef TALON_ENGINE_SESSIONS_SESSION_CALLS_H_
#define TALON_ENGINE_SESSIONS_SESSION_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/active_request.h"
#include "engine/remote_calls.h"
#include "engine/sessions/session_table.h"
#include "grammar/matcher.h"

namespace talon {

struct SessionCall {
  int64_t id = 0;
  VerifyCall asked;
  std::shared_ptr<Matcher> grammar;  // the call's, compiled; null: none
  Session* session = nullptr;        // from the table, or
  std::unique_ptr<Session> own;      // not in the table: new, or of this call only
  std::vector<int32_t> context;      // all tokens before the drafts
  // While it runs. It has the session's sequence and partial state then.
  std::unique_ptr<ActiveRequest> run;
  int tree_rows = 0;  // nodes of its one step, root included; 0: it only computes the context
  int path_rows = 0;  // nodes of their longest path, which it may commit
  int failed_steps = 0;
  VerifyAnswer answer;

  // Tokens whose K/V the step needs, or the call leaves behind.
  int context_end() const { return static_cast<int>(context.size()) - 1; }
};

// A call gets its id here, waits, and either runs or is erased. Ids rise in the order of arrival.
// Used by the engine's thread.
class SessionCalls {
 public:
  // Queues the call behind all others. Returns its id.
  int64_t Add(VerifyCall asked, std::shared_ptr<Matcher> grammar);
  // Takes a call back that waits. False: it runs, or is unknown.
  bool Drop(int64_t id);
  int64_t last_id() const { return next_id_ - 1; }

  bool empty() const { return waiting_.empty() && running_.empty(); }
  // In the order of arrival.
  const std::deque<std::unique_ptr<SessionCall>>& waiting() const { return waiting_; }
  // In the order they began.
  const std::vector<std::unique_ptr<SessionCall>>& running() const { return running_; }

  // REQUIRES: a waiting call at `index`.
  void MoveToRunning(size_t index);
  void EraseWaiting(size_t index);
  // Erases the running calls that have ended: their `run` is null.
  void EraseEnded();

  // Whether another call of the call's session runs.
  bool SessionRuns(const SessionCall& call) const;
  // Whether calls of the session wait or run.
  bool IsBusy(const Session& session) const;
  // The same for calls with ids up to `last` only.
  bool IsBusyUpTo(const Session& session, int64_t last) const;

 private:
  int64_t next_id_ = 1;
  std::deque<std::unique_ptr<SessionCall>> waiting_;
  std::vector<std::unique_ptr<SessionCall>> running_;
};

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_SESSION_CALLS_H_
