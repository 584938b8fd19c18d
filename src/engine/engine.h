// The engine: takes requests, schedules them into steps, returns their tokens.
//
// Requests join and leave between steps. All members are called on one thread, the engine's; a
// server puts a queue in front. After Create the engine allocates no device memory.
#ifndef TALON_ENGINE_ENGINE_H_
#define TALON_ENGINE_ENGINE_H_

#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "engine/active_request.h"
#include "engine/engine_options.h"
#include "engine/health.h"
#include "engine/request.h"
#include "engine/request_checks.h"
#include "engine/schedule/scheduler.h"
#include "engine/step/step.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "spec/drafter.h"
#include "spec/policy/policy.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

class Engine {
 public:
  struct Parts {
    Backend* backend = nullptr;            // not owned
    Decoder* target = nullptr;             // not owned
    const Tokenizer* tokenizer = nullptr;  // not owned; null: tokens only
    std::unique_ptr<Drafter> drafter;      // null: plain decoding
    std::unique_ptr<Policy> policy;        // null: FixedPolicy
    std::unique_ptr<Metrics> metrics;      // null: the engine makes its own
  };
  static Result<std::unique_ptr<Engine>> Create(Parts parts, const EngineOptions& options);
  ~Engine();

  // Everything wrong with a request. Any thread.
  Status Check(const GenerateRequest& request) const { return CheckRequest(request, limits_); }
  // Queues a request that passes Check.
  Result<RequestId> Submit(GenerateRequest request);
  // Ends a request at once with what it has; unknown ids are ignored.
  void Cancel(RequestId id, FinishReason reason = FinishReason::kCancelled);

  int num_running() const { return scheduler_->num_running(); }
  int num_waiting() const { return scheduler_->num_waiting(); }
  bool HasWork() const { return num_waiting() > 0 || num_running() > 0; }
  // One step of everything that runs. A failure ends the running requests with that error, a broken
  // invariant too; the others go on if the KV cache is in order.
  void RunStep();
  // Not OK: the engine has stopped for good. All its requests have ended, Submit refuses.
  const Status& health() const { return health_.status(); }
  // The result of a finished request, once. NotFound while it runs or after it was taken.
  Result<GenerateResult> Take(RequestId id);

  // Submit, run to the end, take. Other requests run along.
  Result<GenerateResult> Generate(GenerateRequest request);

  const EngineOptions& options() const { return options_; }
  KvCache& kv() { return *kv_; }
  const KvCache& kv() const { return *kv_; }
  Metrics& metrics() { return *parts_.metrics; }
  const Decoder& target() const { return *parts_.target; }
  // All that are in the engine, running ones first.
  std::vector<const Sequence*> Sequences() const;
  // KV integrity over all sequences, and audit where it is on.
  Status CheckIntegrity() const;

 private:
  Engine(Parts parts, const EngineOptions& options);

  // The parts that need the cache: the step, the scheduler and what requests may ask for.
  void MakeParts();

  Status TryStep();
  Status Audit();
  void Start(ActiveRequest* run);
  void Deliver(ActiveRequest* run);
  void EndDonePrompts();
  // Ends requests with an error. What the failed step has added to the answers is dropped.
  void Fail(const std::vector<ActiveRequest*>& runs, const Status& why);
  void RetireFinished();
  void Retire(std::unique_ptr<ActiveRequest> run);
  void ReportState();

  Parts parts_;
  EngineOptions options_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<Scheduler> scheduler_;
  RequestLimits limits_;
  EngineHealth health_;
  RequestId next_id_ = 1;
  std::map<RequestId, GenerateResult> finished_;
};

}  // namespace talon

#endif  // TALON_ENGINE_ENGINE_H_
