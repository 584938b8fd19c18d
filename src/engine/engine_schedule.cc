// The requests of a step: admission, preemption, and the prompts that it computes.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/contain.h"
#include "engine/engine.h"
#include "engine/prompt_shares.h"
#include "observe/trace.h"

namespace talon {
namespace {

void TracePhase(const ActiveRequest& run, RequestPhase phase) {
  if (Tracer* tracer = ActiveTracer()) tracer->EnterPhase(run.result.id, phase);
}

}  // namespace

void Engine::RunStep() {
  Status failed;
  const Status broken = Contain([&] { failed = TryStep(); });
  if (!failed.ok()) FailRunning(failed);
  if (!broken.ok()) {
    if (running_.empty() && !waiting_.empty()) {  // it broke while the first one was admitted
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    FailRunning(broken);
    health_.StepBroke(broken, [this] { return CheckIntegrity(); });
  }
  if (!health_.ok()) FailAll();
  ReportState();
}

Status Engine::TryStep() {
  Admit();
  EndDonePrompts();  // of one token, say
  MakeRoomForRoots();
  std::vector<ActiveRequest*> decoding;
  for (const auto& run : running_) {
    if (!run->started) AttachKnown(run.get());
    if (run->prompt_left() > 0 || run->ends_with_prompt()) continue;
    decoding.push_back(run.get());
  }
  const int tree_rows = static_cast<int>(decoding.size()) * options_.TreeRowsPerSequence();
  const std::vector<PromptChunk> prompts = SharePromptRows(
      PromptsToCompute(),
      {.rows = std::min(options_.prefill_chunk, parts_.target->max_rows() - tree_rows),
       .reads = parts_.target->max_output_rows() - tree_rows,
       .blocks = kv_->free_blocks() - BlocksForRoots(decoding)},
      *kv_);
  if (decoding.empty() && prompts.empty()) return OkStatus();
  for (ActiveRequest* run : decoding) {
    Start(run);
    TracePhase(*run, RequestPhase::kDecode);
  }
  for (const PromptChunk& prompt : prompts) Start(prompt.run);
  TALON_RETURN_IF_ERROR(step_->Run(decoding, prompts));
  if (options_.kv_audit) TALON_RETURN_IF_ERROR(Audit());
  for (ActiveRequest* run : decoding) Deliver(run);
  EndDonePrompts();
  return OkStatus();
}

// Before anything of the step leaves the engine.
Status Engine::Audit() {
  const Status status = CheckIntegrity();
  if (!status.ok()) health_.Stop(status);
  return status;
}

// What the failed step has added to the answers is dropped.
void Engine::FailRunning(const Status& why) {
  for (const auto& run : running_) {
    run->result.finish = FinishReason::kError;
    run->result.error = why;
    run->result.tokens.resize(run->delivered);
    if (run->request.on_update) {
      run->request.on_update({.id = run->result.id, .finish = run->result.finish});
    }
  }
  RetireFinished();
}

void Engine::FailAll() {
  std::ranges::move(waiting_, std::back_inserter(running_));
  waiting_.clear();
  FailRunning(health_.status());
}

// Requests that want nothing after their prompt.
void Engine::EndDonePrompts() {
  for (const auto& run : running_) {
    if (run->finished() || !run->prompt_done()) continue;
    Start(run.get());
    run->result.finish = FinishReason::kLength;
    Deliver(run.get());
  }
  RetireFinished();
}

// Admits in order of arrival while the pool holds the whole prompts of all admitted requests and a
// block more for each, so that none of them is preempted at once.
void Engine::Admit() {
  int promised = 0;
  for (const auto& run : running_) {
    promised += kv_->BlocksNeeded(run->sequence, run->prompt_left() + 1) + 1;
  }
  while (!waiting_.empty() && num_running() < options_.max_sequences) {
    ActiveRequest* next = waiting_.front().get();
    AttachKnown(next);
    const int needed = kv_->BlocksNeeded(next->sequence, next->prompt_left() + 1) + 1;
    if (!running_.empty() && promised + needed > kv_->free_blocks()) {
      kv_->Free(&next->sequence);
      return;
    }
    promised += needed;
    if (next->scheduled_at < 0) {
      next->scheduled_at = next->request.age.Seconds();
      metrics().Observe(Histogram::kRequestQueueSeconds, next->scheduled_at);
    }
    TracePhase(*next, RequestPhase::kPrompt);
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// At least the root is left to compute, and what is to be read of the prompt.
void Engine::AttachKnown(ActiveRequest* run) {
  const auto root = static_cast<int>(run->sequence.tokens.size()) - 1;
  kv_->prefix().Attach(&run->sequence, std::min(root, run->next_read()));
}

// Every decoding sequence must be able to commit at least its provisional tokens and its root.
int Engine::BlocksForRoots(std::span<ActiveRequest* const> runs) const {
  int needed = 0;
  for (const ActiveRequest* run : runs) {
    needed += kv_->BlocksNeeded(run->sequence, run->sequence.tail_len + 1);
  }
  return needed;
}

void Engine::MakeRoomForRoots() {
  for (;;) {
    std::vector<ActiveRequest*> runs;
    for (const auto& run : running_) runs.push_back(run.get());
    if (BlocksForRoots(runs) <= kv_->free_blocks() || running_.size() <= 1) return;
    PreemptYoungest();
  }
}

// Its tokens stay; only K/V is given up and computed again later, to the same bits.
void Engine::PreemptYoungest() {
  std::unique_ptr<ActiveRequest> run = std::move(running_.back());
  running_.pop_back();
  step_->Suspend(run.get());
  kv_->Free(&run->sequence);
  run->started = false;
  TracePhase(*run, RequestPhase::kQueued);
  metrics().Add(Counter::kRequestPreemptions, 1);
  waiting_.push_front(std::move(run));
}

// Requests with prompt tokens to compute, in order of admission. A request waits if another one is
// about to compute the block that it needs next.
std::vector<ActiveRequest*> Engine::PromptsToCompute() const {
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

// From now on the request has rows of its own.
void Engine::Start(ActiveRequest* run) {
  if (run->started) return;
  run->started = true;
  if (run->counted) return;  // it was preempted
  run->counted = true;
  run->result.stats.cached_tokens = run->sequence.committed_len;
  metrics().Add(Counter::kRequestPromptTokens, run->result.stats.prompt_tokens);
  if (!options_.prefix_cache) return;
  metrics().Add(Counter::kKvPrefixQueryTokens, run->result.stats.prompt_tokens);
  metrics().Add(Counter::kKvPrefixHitTokens, run->sequence.committed_len);
}

}  // namespace talon
