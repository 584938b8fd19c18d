// A backend whose passes take a while after they were queued, as a device's do, for tests: the time
// is spent when something waits.
#ifndef TALON_ENGINE_STEP_LAGGING_BACKEND_H_
#define TALON_ENGINE_STEP_LAGGING_BACKEND_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "compute/forwarding_backend.h"

namespace talon {

class LaggingBackend : public ForwardingBackend {
 public:
  LaggingBackend(std::unique_ptr<Backend> inner, std::chrono::milliseconds lag)
      : ForwardingBackend(std::move(inner)), lag_(lag) {}

  // Passes that nothing has waited for, and the most there ever were.
  int in_flight() const { return in_flight_; }
  int most_in_flight() const { return most_in_flight_; }

  void CopyOut(void* host, const void* device, size_t bytes) override {
    Synchronize();
    ForwardingBackend::CopyOut(host, device, bytes);
  }
  TokenOps* token_ops() override {  // their results are read
    Synchronize();
    return ForwardingBackend::token_ops();
  }
  void Synchronize() override { std::this_thread::sleep_for(lag_ * std::exchange(in_flight_, 0)); }
  void Record(Pass* pass, const Pass* second, uint64_t key,
              const std::function<void()>& ops) override {
    ForwardingBackend::Record(pass, second, key, ops);
    most_in_flight_ = std::max(most_in_flight_, ++in_flight_);
  }

 private:
  std::chrono::milliseconds lag_;
  int in_flight_ = 0;
  int most_in_flight_ = 0;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_LAGGING_BACKEND_H_
