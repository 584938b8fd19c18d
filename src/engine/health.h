// Whether an engine can go on after a step that broke an invariant.
#ifndef TALON_ENGINE_HEALTH_H_
#define TALON_ENGINE_HEALTH_H_

#include "base/log.h"
#include "base/status.h"
#include "observe/metrics.h"

namespace talon {

class EngineHealth {
 public:
  explicit EngineHealth(Metrics* metrics) : metrics_(metrics) {}

  // OK, or Unavailable with the reason why the engine has stopped. It does not start again.
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

  // A step failed by `failure` (from Contain); its requests have ended. The engine goes on if its
  // device works and `audit`, the state of what is left, is in order.
  void StepBroke(const Status& failure, const Status& audit) {
    metrics_->Add(Counter::kInternalErrors, 1);
    LogError("a step failed and its requests with it: {}", failure.message());
    if (failure.code() == StatusCode::kUnavailable) {
      Stop(failure);
    } else if (!audit.ok()) {
      Stop(audit);
    }
  }
  void Stop(const Status& why) {
    if (!ok()) return;
    status_ = Unavailable("the engine has stopped: {}", why.message());
    LogError("{}", status_.message());
  }

 private:
  Metrics* metrics_;
  Status status_;
};

}  // namespace talon

#endif  // TALON_ENGINE_HEALTH_H_
