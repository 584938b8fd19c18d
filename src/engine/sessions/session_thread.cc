#include "engine/sessions/session_thread.h"

#include <algorithm>
#include <utility>

#include "observe/trace.h"

namespace talon {

// ---- For callers ----

SessionThread::SessionThread(std::unique_ptr<SessionEngine> engine,
                             std::chrono::seconds collect_every)
    : engine_(std::move(engine)),
      collect_every_(collect_every),
      collect_at_(Clock::now() + collect_every) {
  PublishSnapshot();
  thread_ = std::thread([this] { Loop(); });
}

SessionThread::~SessionThread() { Shutdown(std::chrono::milliseconds(0)); }

Result<VerifyAnswer> SessionThread::Verify(VerifyCall call, Clock::time_point deadline) {
  TALON_RETURN_IF_ERROR(engine_->Check(call));
  auto place = std::make_shared<Place>();
  place->call = std::move(call);
  TALON_RETURN_IF_ERROR(Wait(place, deadline));
  return std::move(*place->answer);
}

Result<bool> SessionThread::EndSession(const std::string& id) {
  auto place = std::make_shared<Place>();
  place->ending = id;
  TALON_RETURN_IF_ERROR(Wait(place, Clock::time_point::max()));
  return *place->was_active;
}

// Leaves the place with an answer, or given up.
Status SessionThread::Wait(const std::shared_ptr<Place>& place, Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (closed_) return Unavailable("STOPPING: the worker is shutting down");
  inbox_.push_back(place);
  orders_changed_.notify_all();
  const auto done = [&] { return place->done(); };
  if (deadline == Clock::time_point::max()) {
    answered_.wait(lock, done);
  } else if (!answered_.wait_until(lock, deadline, done)) {
    place->abandoned = true;
    any_abandoned_ = true;
    orders_changed_.notify_all();
    return DeadlineExceeded("the call's time is over");
  }
  return place->refused;
}

void SessionThread::Shutdown(std::chrono::milliseconds patience) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    orders_changed_.notify_all();
    answered_.wait_for(lock, patience, [this] { return loop_ended_; });
    stop_now_ = true;
    orders_changed_.notify_all();
  }
  const std::lock_guard<std::mutex> joining(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

SessionThread::Snapshot SessionThread::snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return snapshot_;
}

// ---- The engine's thread ----

void SessionThread::Loop() {
  if (Tracer* tracer = ActiveTracer()) tracer->NameThread("engine");
  while (TakeOrders()) {
    if (const auto now = Clock::now(); now >= collect_at_) {
      engine_->Collect(now);
      collect_at_ = now + collect_every_;
    }
    if (engine_->HasWork()) engine_->RunStep(Clock::now());
    HandOver();
    PublishSnapshot();
  }
  RefuseAll();
}

// Waits until there is something to do. False: nothing more is to be done.
bool SessionThread::TakeOrders() {
  std::unique_lock<std::mutex> lock(mutex_);
  orders_changed_.wait_until(lock, collect_at_, [this] {
    return !inbox_.empty() || engine_->HasWork() || any_abandoned_ || closed_;
  });
  if (stop_now_ || (closed_ && inbox_.empty() && !engine_->HasWork())) return false;
  for (std::shared_ptr<Place>& place : std::exchange(inbox_, {})) {
    if (place->call) {
      place->id = engine_->Submit(std::move(*place->call));
      in_engine_.push_back(std::move(place));
    } else {
      place->was_active = engine_->EndSession(place->ending);
      answered_.notify_all();
    }
  }
  if (std::exchange(any_abandoned_, false)) DropAbandoned();
  return true;
}

// Calls that have begun go on: their sessions keep the answers. REQUIRES: the lock.
void SessionThread::DropAbandoned() {
  std::erase_if(in_engine_, [this](const std::shared_ptr<Place>& place) {
    return place->abandoned && engine_->Drop(place->id);
  });
}

void SessionThread::HandOver() {
  std::vector<SessionEngine::Finished> finished = engine_->TakeFinished();
  if (finished.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SessionEngine::Finished& one : finished) {
    const auto at =
        std::ranges::find(in_engine_, one.id, [](const auto& place) { return place->id; });
    if (at == in_engine_.end()) continue;
    (*at)->answer = std::move(one.answer);
    in_engine_.erase(at);
  }
  answered_.notify_all();
}

void SessionThread::RefuseAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto* places : {&in_engine_, &inbox_}) {
    for (const auto& place : *places) {
      place->refused = Unavailable("STOPPING: the worker is shutting down");
    }
    places->clear();
  }
  loop_ended_ = true;
  answered_.notify_all();
}

void SessionThread::PublishSnapshot() {
  const KvCache& kv = engine_->kv();
  const std::lock_guard<std::mutex> lock(mutex_);
  snapshot_ = {.sessions = engine_->sessions().size(),
               .calls = static_cast<int>(in_engine_.size()),
               .blocks = kv.shape().num_blocks,
               .free_blocks = kv.free_blocks(),
               .cached_blocks = kv.cached_blocks()};
}

}  // namespace talon
