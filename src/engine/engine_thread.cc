#include "engine/engine_thread.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "observe/trace.h"

namespace talon {

// ---- RequestStream ----

std::optional<RequestUpdate> RequestStream::Next(std::chrono::milliseconds wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, wait, [this] { return !updates_.empty() || result_.has_value(); });
  if (updates_.empty()) return std::nullopt;
  RequestUpdate update = std::move(updates_.front());
  updates_.pop_front();
  return update;
}

bool RequestStream::done() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return updates_.empty() && result_.has_value();
}

void RequestStream::Push(const RequestUpdate& update) {
  const std::lock_guard<std::mutex> lock(mutex_);
  updates_.push_back(update);
  changed_.notify_all();
}

void RequestStream::Finish(GenerateResult result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  result_ = std::move(result);
  changed_.notify_all();
}

// ---- EngineThread, for callers ----

EngineThread::EngineThread(std::unique_ptr<Engine> engine, int max_waiting)
    : engine_(std::move(engine)), max_waiting_(max_waiting) {
  PublishSnapshot();
  thread_ = std::thread([this] { Loop(); });
}

EngineThread::~EngineThread() { Shutdown(std::chrono::milliseconds(0)); }

Result<std::shared_ptr<RequestStream>> EngineThread::Submit(GenerateRequest request) {
  TALON_CHECK(!request.on_update, "a stream has the updates");
  TALON_RETURN_IF_ERROR(engine_->Check(request));
  auto stream = std::make_shared<RequestStream>();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return Unavailable("the engine is shutting down");
  if (waiting_ >= max_waiting_) {
    return ResourceExhausted("{} requests wait already", waiting_);
  }
  ++waiting_;
  inbox_.push_back({std::move(request), stream});
  orders_changed_.notify_all();
  return stream;
}

void EngineThread::Cancel(const std::shared_ptr<RequestStream>& stream, FinishReason reason) {
  stream->cancelled_ = reason;
  const std::lock_guard<std::mutex> lock(mutex_);
  any_cancelled_ = true;
  orders_changed_.notify_all();
}

void EngineThread::Shutdown(std::chrono::milliseconds patience) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    orders_changed_.notify_all();
    ended_.wait_for(lock, patience, [this] { return loop_ended_; });
    stop_now_ = true;
    orders_changed_.notify_all();
  }
  const std::lock_guard<std::mutex> joining(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

EngineThread::Snapshot EngineThread::snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Snapshot now = snapshot_;
  now.waiting = waiting_;
  return now;
}

Status EngineThread::Inspect(const std::function<void(const Engine&)>& look) {
  Look mine{.call = &look};
  std::unique_lock<std::mutex> lock(mutex_);
  if (!loop_ended_) {
    looks_.push_back(&mine);
    orders_changed_.notify_all();
    ended_.wait(lock, [&] { return mine.done || loop_ended_; });
  }
  return mine.done ? OkStatus() : Unavailable("the engine has shut down");
}

// ---- EngineThread, its own thread ----

void EngineThread::Loop() {
  if (Tracer* tracer = ActiveTracer()) tracer->NameThread("engine");
  while (TakeOrders()) {
    CancelUnwanted();
    engine_->RunStep();
    HandOver();
    PublishSnapshot();
    AnswerLooks();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  loop_ended_ = true;
  ended_.notify_all();
}

// Waits until there is something to do. False: nothing more will come.
bool EngineThread::TakeOrders() {
  std::vector<Submission> submissions;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    orders_changed_.wait(lock, [this] {
      return !inbox_.empty() || !running_.empty() || !looks_.empty() || closed_ || any_cancelled_;
    });
    submissions.swap(inbox_);
    if (submissions.empty() && running_.empty() && closed_) return false;
  }
  for (Submission& submission : submissions) Start(std::move(submission));
  return true;
}

void EngineThread::Start(Submission submission) {
  RequestStream* stream = submission.stream.get();
  submission.request.on_update = [stream](const RequestUpdate& update) { stream->Push(update); };
  auto id = engine_->Submit(std::move(submission.request));
  if (id.ok()) {
    running_.push_back({*id, std::move(submission.stream)});
  } else {  // checked before, so this is a surprise
    GenerateResult result;
    result.finish = FinishReason::kError;
    result.error = id.status();
    stream->Finish(std::move(result));
  }
}

void EngineThread::CancelUnwanted() {
  bool all = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    all = stop_now_;
    if (!std::exchange(any_cancelled_, false) && !all) return;
  }
  for (const Running& one : running_) {
    const FinishReason reason = one.stream->cancelled_;
    if (reason != FinishReason::kNone) {
      engine_->Cancel(one.id, reason);
    } else if (all) {
      engine_->Cancel(one.id);
    }
  }
}

void EngineThread::HandOver() {
  std::erase_if(running_, [this](const Running& one) {
    auto result = engine_->Take(one.id);
    if (!result.ok()) return false;
    one.stream->Finish(std::move(result).value());
    return true;
  });
}

void EngineThread::AnswerLooks() {
  std::vector<Look*> looks;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    looks.swap(looks_);
  }
  if (looks.empty()) return;
  for (const Look* look : looks) (*look->call)(*engine_);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Look* look : looks) look->done = true;
  ended_.notify_all();
}

void EngineThread::PublishSnapshot() {
  const KvCache& kv = engine_->kv();
  const Snapshot now{.running = engine_->num_running(),
                     .blocks = kv.shape().num_blocks,
                     .free_blocks = kv.free_blocks(),
                     .cached_blocks = kv.cached_blocks()};
  const std::lock_guard<std::mutex> lock(mutex_);
  snapshot_ = now;
  waiting_ = engine_->num_waiting() + static_cast<int>(inbox_.size());
}

}  // namespace talon
