#include "engine/engine_thread.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/memory_reserve.h"
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

EngineThread::EngineThread(std::unique_ptr<Engine> engine, int max_waiting,
                           std::function<void()> on_stopped)
    : engine_(std::move(engine)), max_waiting_(max_waiting), on_stopped_(std::move(on_stopped)) {
  PublishSnapshot();
  mailbox_.Start([this] { Loop(); });
}

EngineThread::~EngineThread() { Shutdown(std::chrono::milliseconds(0)); }

Result<std::shared_ptr<RequestStream>> EngineThread::Submit(GenerateRequest request) {
  TALON_CHECK(!request.on_update, "a stream has the updates");
  TALON_RETURN_IF_ERROR(engine_->Check(request));
  auto stream = std::make_shared<RequestStream>();
  TALON_RETURN_IF_ERROR(
      mailbox_.Post(Submission{std::move(request), stream}, [this](const auto& state) -> Status {
        if (state.closed) return Unavailable("the engine is shutting down");
        TALON_RETURN_IF_ERROR(snapshot_.health);
        if (waiting_ >= max_waiting_) {
          return ResourceExhausted("{} requests wait already", waiting_);
        }
        ++waiting_;
        return OkStatus();
      }));
  return stream;
}

void EngineThread::Cancel(const std::shared_ptr<RequestStream>& stream, FinishReason reason) {
  stream->cancelled_ = reason;
  mailbox_.Alert();
}

void EngineThread::Shutdown(std::chrono::milliseconds grace_period) {
  mailbox_.Shutdown(grace_period);
}

EngineThread::Snapshot EngineThread::snapshot() const {
  return mailbox_.Locked([this] {
    Snapshot now = snapshot_;
    now.waiting = waiting_;
    return now;
  });
}

Status EngineThread::Inspect(const std::function<void(const Engine&)>& inspect) {
  Inspection mine{.call = &inspect};
  const Status posted = mailbox_.Post(&mine, [](const auto& state) -> Status {
    return state.ended ? Unavailable("the engine has shut down") : OkStatus();
  });
  TALON_RETURN_IF_ERROR(posted);
  mailbox_.WaitUntil(Mailbox<Message>::Clock::time_point::max(), [&] { return mine.done; });
  return mine.done ? OkStatus() : Unavailable("the engine has shut down");
}

// ---- EngineThread, its own thread ----

void EngineThread::Loop() {
  if (Tracer* tracer = ActiveTracer()) tracer->NameThread("engine");
  while (TakeMessages()) {
    engine_->RunStep();
    const WaitForMemory wait;  // no request is lost
    DeliverResults();
    PublishSnapshot();
    RunInspections();
    if (!engine_->health().ok() && on_stopped_) std::exchange(on_stopped_, nullptr)();
  }
}

bool EngineThread::TakeMessages() {
  const WaitForMemory wait;
  auto batch = mailbox_.Take(!running_.empty());
  if (!batch) return false;
  for (Message& message : batch->messages) {
    if (auto* submission = std::get_if<Submission>(&message)) {
      Start(std::move(*submission));
    } else {
      inspections_.push_back(std::get<Inspection*>(message));
    }
  }
  if (batch->alerted || batch->stop) CancelRequests(/*all=*/batch->stop);
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

void EngineThread::CancelRequests(bool all) {
  for (const Running& one : running_) {
    const FinishReason reason = one.stream->cancelled_;
    if (reason != FinishReason::kNone) {
      engine_->Cancel(one.id, reason);
    } else if (all) {
      engine_->Cancel(one.id);
    }
  }
}

void EngineThread::DeliverResults() {
  std::erase_if(running_, [this](const Running& one) {
    auto result = engine_->Take(one.id);
    if (!result.ok()) return false;
    one.stream->Finish(std::move(result).value());
    return true;
  });
}

void EngineThread::RunInspections() {
  if (inspections_.empty()) return;
  for (const Inspection* one : inspections_) (*one->call)(*engine_);
  mailbox_.Answer([this] {
    for (Inspection* one : inspections_) one->done = true;
  });
  inspections_.clear();
}

void EngineThread::PublishSnapshot() {
  const KvCache& kv = engine_->kv();
  const Snapshot now{.health = engine_->health(),
                     .running = engine_->num_running(),
                     .blocks = kv.shape().num_blocks,
                     .free_blocks = kv.pool().free_blocks(),
                     .cached_blocks = kv.pool().cached_blocks()};
  mailbox_.Locked([&] {
    snapshot_ = now;
    waiting_ = engine_->num_waiting() + static_cast<int>(std::ranges::count_if(
                                            mailbox_.messages(), [](const Message& message) {
                                              return std::holds_alternative<Submission>(message);
                                            }));
  });
}

}  // namespace talon
