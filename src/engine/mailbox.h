// A thread with a mailbox: many callers post messages, one loop takes them.
//
// The loop's own data is touched by the loop only. Callers share with it what they change in
// Locked() or Answer(). Thread-safe, but for Start.
#ifndef TALON_ENGINE_MAILBOX_H_
#define TALON_ENGINE_MAILBOX_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"

namespace talon {

template <typename Message>
class Mailbox {
 public:
  using Clock = std::chrono::steady_clock;

  // ---- For callers ----

  // Posts a message if `admit`, called under the lock, agrees. It is told whether the mailbox is
  // closed and whether the loop has ended.
  struct State {
    bool closed = false;
    bool ended = false;
  };
  template <typename Admit>
  Status Post(Message message, const Admit& admit) {
    const std::lock_guard<std::mutex> lock(mutex_);
    TALON_RETURN_IF_ERROR(admit(state_));
    messages_.push_back(std::move(message));
    messages_changed_.notify_all();
    return OkStatus();
  }
  // Wakes the loop, whose next Batch says so.
  void Alert() {
    const std::lock_guard<std::mutex> lock(mutex_);
    alerted_ = true;
    messages_changed_.notify_all();
  }
  // Waits until `done`, called under the lock, is true or the loop has ended. False: neither was
  // before the deadline.
  template <typename Done>
  bool WaitUntil(Clock::time_point deadline, const Done& done) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto over = [&] { return done() || state_.ended; };
    if (deadline != Clock::time_point::max()) return answered_.wait_until(lock, deadline, over);
    answered_.wait(lock, over);
    return true;
  }
  template <typename Function>
  auto Locked(const Function& function) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return function();
  }

  // Closes the mailbox. The loop may work on until `grace_period` is over, then it is told to stop.
  // Returns when the thread has ended. Again: does nothing.
  void Shutdown(std::chrono::milliseconds grace_period) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      state_.closed = true;
      messages_changed_.notify_all();
      answered_.wait_for(lock, grace_period, [this] { return state_.ended; });
      stops_ = true;
      messages_changed_.notify_all();
    }
    const std::lock_guard<std::mutex> joining(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  // ---- For the loop ----

  // Starts the thread. The mailbox must outlive it: Shutdown ends it.
  void Start(std::function<void()> loop) {
    thread_ = std::thread([this, loop = std::move(loop)] {
      loop();
      Answer([this] { state_.ended = true; });
    });
  }

  struct Batch {
    std::vector<Message> messages;
    bool alerted = false;
    bool stop = false;  // the grace period is over
  };
  // Waits for something to do, until `deadline`; at once where the loop has work. None: the mailbox
  // is closed and empty and there is no work left.
  std::optional<Batch> Take(bool has_work, Clock::time_point deadline = Clock::time_point::max()) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto ready = [&] { return has_work || !messages_.empty() || alerted_ || state_.closed; };
    if (deadline == Clock::time_point::max()) {
      messages_changed_.wait(lock, ready);
    } else {
      messages_changed_.wait_until(lock, deadline, ready);
    }
    if (state_.closed && messages_.empty() && !has_work) return std::nullopt;
    return Batch{.messages = std::exchange(messages_, {}),
                 .alerted = std::exchange(alerted_, false),
                 .stop = stops_};
  }
  // Changes what callers wait for, and wakes them.
  template <typename Function>
  void Answer(const Function& function) {
    const std::lock_guard<std::mutex> lock(mutex_);
    function();
    answered_.notify_all();
  }
  // Messages that wait. REQUIRES: called in Locked() or Answer().
  const std::vector<Message>& messages() const { return messages_; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable messages_changed_;
  std::condition_variable answered_;
  std::vector<Message> messages_;
  bool alerted_ = false;
  State state_;
  bool stops_ = false;

  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace talon

#endif  // TALON_ENGINE_MAILBOX_H_
