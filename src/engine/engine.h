// The engine: takes requests, schedules them into steps, returns their tokens.
//
// Requests join and leave between steps. All members are called on one thread, the engine's; a
// server puts a queue in front. After Create the engine allocates no device memory.
#ifndef TALON_ENGINE_ENGINE_H_
#define TALON_ENGINE_ENGINE_H_

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "engine/active_request.h"
#include "engine/health.h"
#include "engine/request.h"
#include "engine/step/step.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "spec/draft_cache.h"
#include "spec/drafter.h"
#include "spec/policy/policy.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

struct EngineOptions {
  DType kv_dtype = DType::kBF16;
  int block_size = 16;
  int kv_tokens = 0;        // size of the block pool in tokens; 0 = max_sequences * max_length
  int max_length = 0;       // tokens of a sequence; 0 = the model's
  int max_sequences = 8;    // sequences that run at once
  int prefill_chunk = 512;  // prompt tokens of one step
  bool kv_offload = false;  // K and V in host memory, partial views also on the device (CUDA)
  bool kv_audit = false;
  bool prefix_cache = false;  // keep full blocks for prompts to come, as long as there is room
  StepOptions step;           // max_length is filled in

  // A drafter's cache for the same sequences; `model_context` limits their length.
  DraftCacheShape DraftCache(int model_context) const {
    return {.max_length = max_length > 0 ? std::min(max_length, model_context) : model_context,
            .max_sequences = max_sequences,
            .kv_tokens = kv_tokens,
            .block_size = block_size,
            .kv_dtype = kv_dtype,
            .prefix_index = prefix_cache};
  }
  // What the target must be loaded with (LoadOptions).
  // A full pass after partial ones also has the provisional tokens.
  int TreeRowsPerSequence() const {
    const SpecPvConfig& specpv = step.specpv;
    const int settling = specpv.enabled ? specpv.buffer_tokens + step.budget.max_depth + 1 : 0;
    return std::max(step.budget.max_nodes, settling);
  }
  int MaxTreeRows() const { return max_sequences * TreeRowsPerSequence(); }
  int MaxRows() const { return prefill_chunk + MaxTreeRows(); }
};

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
  Status Check(const GenerateRequest& request) const;
  // Queues a request that passes Check.
  Result<RequestId> Submit(GenerateRequest request);
  // Ends a request at once with what it has; unknown ids are ignored.
  void Cancel(RequestId id, FinishReason reason = FinishReason::kCancelled);

  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  bool HasWork() const { return !waiting_.empty() || !running_.empty(); }
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

  Status CheckPartialVerification();
  void Admit();
  void AttachKnown(ActiveRequest* run);
  void MakeRoomForRoots();
  void PreemptYoungest();
  std::vector<ActiveRequest*> PromptsToCompute() const;
  void Start(ActiveRequest* run);
  Status TryStep();
  Status Audit();
  void FailRunning(const Status& why);
  void FailAll();
  void Deliver(ActiveRequest* run);
  void Retire(std::unique_ptr<ActiveRequest> run);
  void ReportState();
  void RetireFinished();
  int BlocksOf(int tokens) const;

  Parts parts_;
  EngineOptions options_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Step> step_;
  EngineHealth health_;
  RequestId next_id_ = 1;
  std::deque<std::unique_ptr<ActiveRequest>> waiting_;
  std::vector<std::unique_ptr<ActiveRequest>> running_;  // in order of admission
  std::map<RequestId, GenerateResult> finished_;
};

}  // namespace talon

#endif  // TALON_ENGINE_ENGINE_H_
