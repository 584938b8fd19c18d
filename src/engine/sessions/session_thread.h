// Runs a session engine on a thread of its own, for many callers at once.
//
// The engine is touched by that thread only. A caller waits until its call is answered or its
// deadline passes; nothing of a caller that gave up is kept but what its session is meant to keep.
// Thread-safe.
#ifndef TALON_ENGINE_SESSIONS_SESSION_THREAD_H_
#define TALON_ENGINE_SESSIONS_SESSION_THREAD_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/mailbox.h"
#include "engine/remote_calls.h"
#include "engine/sessions/session_engine.h"

namespace talon {

class SessionThread {
 public:
  using Clock = std::chrono::steady_clock;

  // Idle sessions are collected every `collect_every`. `on_stopped` is called by the engine's
  // thread, once, if the engine stops for good (SessionEngine::health); its calls have been
  // answered then.
  explicit SessionThread(std::unique_ptr<SessionEngine> engine,
                         std::chrono::seconds collect_every = std::chrono::seconds(60),
                         std::function<void()> on_stopped = nullptr);
  ~SessionThread();  // as Shutdown without a grace period

  // Waits for the answer. DeadlineExceeded: a call that had not begun never will; one that had is
  // finished, and its session keeps the answer for a retry by request id. Unavailable, "STOPPING",
  // after Shutdown began.
  Result<VerifyAnswer> Verify(VerifyCall call,
                              Clock::time_point deadline = Clock::time_point::max());
  // Whether there was such a session. Unavailable where its blocks cannot be freed.
  Result<bool> EndSession(const std::string& id);

  // No new calls from now on; those there may finish until `grace_period` is over, then they are
  // answered with Unavailable. Returns when the thread has ended. Again: does nothing.
  void Shutdown(std::chrono::milliseconds grace_period);

  // Between passes, refreshed after each.
  struct Snapshot {
    Status health;
    int sessions = 0;
    int calls = 0;  // waiting and running
    int blocks = 0;
    int free_blocks = 0;
    int cached_blocks = 0;
  };
  Snapshot snapshot() const;

  const SessionEngine& engine() const { return *engine_; }
  Metrics& metrics() { return engine_->metrics(); }

 private:
  // What a caller waits for: filled by the engine's thread, abandoned by the caller.
  struct Ticket {
    std::optional<VerifyCall> call;    // until it is submitted, or
    std::shared_ptr<Matcher> grammar;  // the call's
    std::string ending;                // the session to end
    SessionEngine::CallId id = 0;
    bool abandoned = false;
    std::optional<Result<VerifyAnswer>> answer;
    std::optional<bool> was_active;
    Status refused;  // instead of either
    bool done() const { return answer.has_value() || was_active.has_value() || !refused.ok(); }
  };

  // Posts the ticket and waits until it is answered, or abandons it at the deadline.
  Status Wait(const std::shared_ptr<Ticket>& ticket, Clock::time_point deadline);
  void Loop();
  // Carries out what was posted. False: nothing more is to be done.
  bool TakeTickets();
  void DropAbandoned();
  void DeliverAnswers();
  void RefuseAll();
  void PublishSnapshot();

  std::unique_ptr<SessionEngine> engine_;
  std::function<void()> on_stopped_;
  const std::chrono::seconds collect_every_;
  Clock::time_point collect_at_;
  std::vector<std::shared_ptr<Ticket>> in_engine_;  // submitted; the thread's own
  Snapshot snapshot_;                               // under the mailbox's lock
  Mailbox<std::shared_ptr<Ticket>> mailbox_;
};

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_SESSION_THREAD_H_
