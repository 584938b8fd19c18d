#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/schedule/prompt_shares.h"
#include "observe/trace.h"

namespace talon {
namespace {

void TracePhase(const ActiveRequest& run, RequestPhase phase) {
  if (Tracer* tracer = ActiveTracer()) tracer->EnterPhase(run.result.id, phase);
}

}  // namespace

ActiveRequest* Scheduler::Find(RequestId id) const {
  const std::vector<ActiveRequest*> runs = All();
  const auto at =
      std::ranges::find(runs, id, [](const ActiveRequest* run) { return run->result.id; });
  return at == runs.end() ? nullptr : *at;
}

std::vector<std::unique_ptr<ActiveRequest>> Scheduler::TakeFinished() {
  std::vector<std::unique_ptr<ActiveRequest>> finished;
  const auto take_from = [&finished](auto* runs) {
    for (auto& run : *runs) {
      if (run->finished()) finished.push_back(std::move(run));
    }
    std::erase(*runs, nullptr);
  };
  take_from(&running_);
  take_from(&waiting_);
  return finished;
}

std::vector<ActiveRequest*> Scheduler::Running() const {
  std::vector<ActiveRequest*> runs;
  for (const auto& run : running_) runs.push_back(run.get());
  return runs;
}

std::vector<ActiveRequest*> Scheduler::FirstWaiting() const {
  if (waiting_.empty()) return {};
  return {waiting_.front().get()};
}

std::vector<ActiveRequest*> Scheduler::All() const {
  std::vector<ActiveRequest*> runs = Running();
  for (const auto& run : waiting_) runs.push_back(run.get());
  return runs;
}

void Scheduler::Admit() {
  int promised = 0;
  for (const auto& run : running_) {
    promised += parts_.kv->BlocksNeeded(run->sequence, run->prompt_left() + 1) + 1;
  }
  while (!waiting_.empty() && num_running() < options_.max_sequences) {
    ActiveRequest* next = waiting_.front().get();
    AttachKnown(next);
    const int needed = parts_.kv->BlocksNeeded(next->sequence, next->prompt_left() + 1) + 1;
    if (!running_.empty() && promised + needed > parts_.kv->pool().free_blocks()) {
      parts_.kv->Free(&next->sequence);
      return;
    }
    promised += needed;
    if (next->scheduled_at < 0) {
      next->scheduled_at = next->request.age.Seconds();
      parts_.metrics->Observe(Histogram::kRequestQueueSeconds, next->scheduled_at);
    }
    TracePhase(*next, RequestPhase::kPrompt);
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

Schedule Scheduler::Choose() {
  MakeRoomForRoots();
  Schedule next;
  for (const auto& run : running_) {
    if (!run->started) AttachKnown(run.get());
    if (run->prompt_left() > 0 || run->ends_with_prompt()) continue;
    next.decoding.push_back(run.get());
    TracePhase(*run, RequestPhase::kDecode);
  }
  const int tree_rows = static_cast<int>(next.decoding.size()) * options_.TreeRowsPerSequence();
  next.prompts = SharePromptRows(
      PromptsToCompute(),
      {.rows = std::min(options_.prefill_chunk, parts_.target->max_rows() - tree_rows),
       .reads = parts_.target->max_output_rows() - tree_rows,
       .blocks = parts_.kv->pool().free_blocks() - BlocksForRoots(next.decoding)},
      *parts_.kv);
  return next;
}

// At least the root is left to compute, and what is to be read of the prompt.
void Scheduler::AttachKnown(ActiveRequest* run) {
  const auto root = static_cast<int>(run->sequence.tokens.size()) - 1;
  parts_.kv->prefix().Attach(&run->sequence, std::min(root, run->next_read()));
}

// Every decoding sequence must be able to commit at least its provisional tokens and its root.
int Scheduler::BlocksForRoots(std::span<ActiveRequest* const> runs) const {
  int needed = 0;
  for (const ActiveRequest* run : runs) {
    needed += parts_.kv->BlocksNeeded(run->sequence, run->sequence.tail_len + 1);
  }
  return needed;
}

void Scheduler::MakeRoomForRoots() {
  while (running_.size() > 1 && BlocksForRoots(Running()) > parts_.kv->pool().free_blocks()) {
    PreemptYoungest();
  }
}

// Its tokens stay; only K/V is given up and computed again later, to the same bits.
void Scheduler::PreemptYoungest() {
  std::unique_ptr<ActiveRequest> run = std::move(running_.back());
  running_.pop_back();
  parts_.step->Suspend(run.get());
  parts_.kv->Free(&run->sequence);
  run->started = false;
  TracePhase(*run, RequestPhase::kQueued);
  parts_.metrics->Add(Counter::kRequestPreemptions, 1);
  waiting_.push_front(std::move(run));
}

// Requests with prompt tokens to compute, in order of admission. A request waits if another one is
// about to compute the block that it needs next.
std::vector<ActiveRequest*> Scheduler::PromptsToCompute() const {
  std::vector<ActiveRequest*> prompts;
  const auto same_block_next = [&](const ActiveRequest& a, const ActiveRequest& b) {
    const int end = a.sequence.committed_len + options_.block_size;
    return a.sequence.committed_len == b.sequence.committed_len && end <= a.prompt_end() &&
           end <= b.prompt_end() && end <= a.next_read() &&
           std::equal(a.sequence.tokens.begin(), a.sequence.tokens.begin() + end,
                      b.sequence.tokens.begin());
  };
  for (const auto& run : running_) {
    if (run->prompt_left() <= 0) continue;
    const bool waits = options_.prefix_cache && !run->started &&
                       std::any_of(prompts.begin(), prompts.end(), [&](const ActiveRequest* other) {
                         return same_block_next(*run, *other);
                       });
    if (!waits) prompts.push_back(run.get());
  }
  return prompts;
}

}  // namespace talon
