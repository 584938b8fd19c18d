// Whether an engine, or a draft worker, can go on after a step that broke an invariant.
#ifndef TALON_ENGINE_HEALTH_H_
#define TALON_ENGINE_HEALTH_H_

#include "base/contain.h"
#include "base/log.h"
#include "base/status.h"
#include "observe/metrics.h"

namespace talon {

class EngineHealth {
 public:
  // `metrics`: not owned; null: nothing is counted.
  explicit EngineHealth(Metrics* metrics) : metrics_(metrics) {}

  // OK, or Unavailable with the reason why the engine has stopped. It does not start again.
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

  // A step failed by `failure` (from Contain); its requests have ended. The engine goes on if its
  // device works and `audit` gives OK: the state of what is left is in order.
  template <typename Audit>
  void StepBroke(const Status& failure, const Audit& audit) {
    Count();
    LogError("a step failed and its requests with it: {}", failure.message());
    if (failure.code() == StatusCode::kUnavailable) return StopNow(failure);
    Status state;
    const Status broken = Contain([&] { state = audit(); });
    if (!broken.ok()) state = broken;
    if (!state.ok()) StopNow(state);
  }
  // Something failed after which no step can be trusted.
  void Stop(const Status& why) {
    if (!ok()) return;
    Count();
    StopNow(why);
  }
  // Calls `function`; what it throws stops the engine.
  template <typename Function>
  void StopIfBroken(const Function& function) {
    const Status broken = Contain(function);
    if (!broken.ok()) Stop(broken);
  }

 private:
  void Count() {
    if (metrics_ != nullptr) metrics_->Add(Counter::kInternalErrors, 1);
  }
  void StopNow(const Status& why) {
    if (!ok()) return;
    status_ = Unavailable("the engine has stopped: {}", why.message());
    LogError("{}", status_.message());
  }

  Metrics* metrics_;
  Status status_;
};

}  // namespace talon

#endif  // TALON_ENGINE_HEALTH_H_
