// The requests of an engine, and which of them the next step has: admission in order of arrival,
// preemption of the youngest where blocks run out, prompts in chunks. On the engine's thread.
#ifndef TALON_ENGINE_SCHEDULE_SCHEDULER_H_
#define TALON_ENGINE_SCHEDULE_SCHEDULER_H_

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/active_request.h"
#include "engine/engine_options.h"
#include "engine/step/entry.h"
#include "engine/step/step.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"

namespace talon {

// What a step computes.
struct Schedule {
  std::vector<ActiveRequest*> decoding;
  std::vector<PromptChunk> prompts;
};

class Scheduler {
 public:
  struct Parts {  // not owned
    const Decoder* target = nullptr;
    KvCache* kv = nullptr;
    Step* step = nullptr;
    Metrics* metrics = nullptr;
  };
  Scheduler(const Parts& parts, const EngineOptions& options) : parts_(parts), options_(options) {}

  // At the end of the queue.
  void Add(std::unique_ptr<ActiveRequest> run) { waiting_.push_back(std::move(run)); }
  ActiveRequest* Find(RequestId id) const;  // null if there is none
  // Hands out the finished requests, running ones first.
  std::vector<std::unique_ptr<ActiveRequest>> TakeFinished();

  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  std::vector<ActiveRequest*> Running() const;       // in order of admission
  std::vector<ActiveRequest*> FirstWaiting() const;  // one or none
  std::vector<ActiveRequest*> All() const;           // running ones first

  // Admits in order of arrival while the pool holds the whole prompts of all admitted requests and
  // a block more for each, so that none of them is preempted at once.
  void Admit();
  // Preempts until the roots of the running requests fit, then shares the step's rows.
  Schedule Choose();

 private:
  void AttachKnown(ActiveRequest* run);
  int BlocksForRoots(std::span<ActiveRequest* const> runs) const;
  void MakeRoomForRoots();
  void PreemptYoungest();
  std::vector<ActiveRequest*> PromptsToCompute() const;

  Parts parts_;
  EngineOptions options_;
  std::deque<std::unique_ptr<ActiveRequest>> waiting_;
  std::vector<std::unique_ptr<ActiveRequest>> running_;  // in order of admission
};

}  // namespace talon

#endif  // TALON_ENGINE_SCHEDULE_SCHEDULER_H_
