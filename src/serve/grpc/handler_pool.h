// A few threads that run posted tasks in order, with a bounded queue. Thread-safe.
#ifndef TALON_SERVE_GRPC_HANDLER_POOL_H_
#define TALON_SERVE_GRPC_HANDLER_POOL_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace talon {

class HandlerPool {
 public:
  HandlerPool(int threads, int max_waiting) : max_waiting_(max_waiting) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
  }
  ~HandlerPool() { End(); }
  HandlerPool(const HandlerPool&) = delete;
  HandlerPool& operator=(const HandlerPool&) = delete;

  // Runs the posted tasks, then ends the threads. No task may be posted afterwards.
  void End() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  // False: the queue is full.
  bool Post(std::function<void()> work) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (static_cast<int>(waiting_.size()) >= max_waiting_) return false;
      waiting_.push_back(std::move(work));
    }
    changed_.notify_one();
    return true;
  }

  // Waits until no task runs or waits, or until `grace` is over.
  void WaitUntilIdle(std::chrono::milliseconds grace) {
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait_for(lock, grace, [this] { return running_ == 0 && waiting_.empty(); });
  }

 private:
  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      ++running_;
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
      --running_;
      if (running_ == 0 && waiting_.empty()) idle_.notify_all();
    }
  }

  const int max_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> waiting_;
  int running_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace talon

#endif  // TALON_SERVE_GRPC_HANDLER_POOL_H_
