// Runs an engine on a thread of its own, for many callers at once.
//
// The engine is touched by that thread only. Callers get a stream for each request: a queue of
// updates that they read at their own pace, from any thread.
#ifndef TALON_ENGINE_ENGINE_THREAD_H_
#define TALON_ENGINE_ENGINE_THREAD_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/mailbox.h"
#include "engine/request.h"

namespace talon {

// What one request gives, in order. Read by one thread at a time; filled by the engine's.
class RequestStream {
 public:
  // Waits for the next update, until `wait` is over. None: nothing came in time, or the request
  // has ended and all updates were read (then `done()`).
  std::optional<RequestUpdate> Next(std::chrono::milliseconds wait);
  // All updates were read and the result is there.
  bool done() const;
  // The whole result; REQUIRES done().
  const GenerateResult& result() const { return *result_; }

 private:
  friend class EngineThread;
  void Push(const RequestUpdate& update);
  void Finish(GenerateResult result);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RequestUpdate> updates_;
  std::optional<GenerateResult> result_;
  std::atomic<FinishReason> cancelled_{FinishReason::kNone};  // why; kNone: it is not
};

class EngineThread {
 public:
  static constexpr int kMaxWaiting = 4096;
  // `on_stopped` is called by the engine's thread, once, if the engine stops for good
  // (Engine::health); its requests have been answered then.
  explicit EngineThread(std::unique_ptr<Engine> engine, int max_waiting = kMaxWaiting,
                        std::function<void()> on_stopped = nullptr);
  ~EngineThread();  // as Shutdown without a grace period

  // Queues a request; what is wrong with it is said here, at once. Unavailable after Shutdown
  // began; ResourceExhausted if `max_waiting` requests wait already. REQUIRES: the request's
  // `on_update` is empty.
  Result<std::shared_ptr<RequestStream>> Submit(GenerateRequest request);
  // Ends the request soon, with what it has. Safe at any time, also after its end.
  void Cancel(const std::shared_ptr<RequestStream>& stream,
              FinishReason reason = FinishReason::kCancelled);

  // No new requests from now on; those there may finish until `grace_period` is over, then they are
  // cancelled. Returns when the thread has ended. Again: does nothing.
  void Shutdown(std::chrono::milliseconds grace_period);

  // Between steps of the engine, refreshed after each.
  struct Snapshot {
    Status health;
    int running = 0;
    int waiting = 0;
    int blocks = 0;
    int free_blocks = 0;
    int cached_blocks = 0;
  };
  Snapshot snapshot() const;

  // Calls `inspect` on the engine's thread between two steps and waits for it. Unavailable after
  // the thread has ended; then `inspect` was not called.
  Status Inspect(const std::function<void(const Engine&)>& inspect);

  const Engine& engine() const { return *engine_; }
  Metrics& metrics() { return engine_->metrics(); }

 private:
  struct Submission {
    GenerateRequest request;
    std::shared_ptr<RequestStream> stream;
  };
  struct Running {
    RequestId id = 0;
    std::shared_ptr<RequestStream> stream;
  };

  struct Inspection {
    const std::function<void(const Engine&)>* call = nullptr;
    bool done = false;
  };
  using Message = std::variant<Submission, Inspection*>;

  void Loop();
  // Carries out what was posted. False: nothing more will come.
  bool TakeMessages();
  void Start(Submission submission);
  void CancelRequests(bool all);
  void DeliverResults();
  void PublishSnapshot();
  void RunInspections();

  std::unique_ptr<Engine> engine_;
  const int max_waiting_;
  std::function<void()> on_stopped_;
  // The thread's own.
  std::vector<Running> running_;          // in the engine
  std::vector<Inspection*> inspections_;  // to be done after the step
  // Under the mailbox's lock.
  int waiting_ = 0;  // requests that were submitted and do not run
  Snapshot snapshot_;
  Mailbox<Message> mailbox_;
};

}  // namespace talon

#endif  // TALON_ENGINE_ENGINE_THREAD_H_
