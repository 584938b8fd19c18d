#include "engine/sessions/session_thread.h"

#include <algorithm>
#include <utility>

#include "observe/trace.h"

namespace talon {

// ---- For callers ----

SessionThread::SessionThread(std::unique_ptr<SessionEngine> engine,
                             std::chrono::seconds collect_every, std::function<void()> on_stopped)
    : engine_(std::move(engine)),
      on_stopped_(std::move(on_stopped)),
      collect_every_(collect_every),
      collect_at_(Clock::now() + collect_every) {
  PublishSnapshot();
  mailbox_.Start([this] { Loop(); });
}

SessionThread::~SessionThread() { Shutdown(std::chrono::milliseconds(0)); }

Result<VerifyAnswer> SessionThread::Verify(VerifyCall call, Clock::time_point deadline) {
  TALON_RETURN_IF_ERROR(engine_->Check(call));
  auto ticket = std::make_shared<Ticket>();
  TALON_ASSIGN_OR_RETURN(ticket->grammar, engine_->CompileGrammar(call));
  ticket->call = std::move(call);
  TALON_RETURN_IF_ERROR(Wait(ticket, deadline));
  return std::move(*ticket->answer);
}

Result<bool> SessionThread::EndSession(const std::string& id) {
  auto ticket = std::make_shared<Ticket>();
  ticket->ending = id;
  TALON_RETURN_IF_ERROR(Wait(ticket, Clock::time_point::max()));
  return *ticket->was_active;
}

Status SessionThread::Wait(const std::shared_ptr<Ticket>& ticket, Clock::time_point deadline) {
  TALON_RETURN_IF_ERROR(mailbox_.Post(ticket, [](const auto& state) -> Status {
    return state.closed ? Unavailable("STOPPING: the worker is shutting down") : OkStatus();
  }));
  if (mailbox_.WaitUntil(deadline, [&] { return ticket->done(); })) return ticket->refused;
  const bool done = mailbox_.Locked([&] {
    ticket->abandoned = !ticket->done();
    return ticket->done();
  });
  if (done) return ticket->refused;
  mailbox_.Alert();
  return DeadlineExceeded("the call's time is over");
}

void SessionThread::Shutdown(std::chrono::milliseconds grace_period) {
  mailbox_.Shutdown(grace_period);
}

SessionThread::Snapshot SessionThread::snapshot() const {
  return mailbox_.Locked([this] { return snapshot_; });
}

// ---- The engine's thread ----

void SessionThread::Loop() {
  if (Tracer* tracer = ActiveTracer()) tracer->NameThread("engine");
  while (TakeTickets()) {
    if (const auto now = Clock::now(); now >= collect_at_) {
      engine_->Collect(now);
      collect_at_ = now + collect_every_;
    }
    if (engine_->HasWork()) engine_->RunStep(Clock::now());
    DeliverAnswers();
    PublishSnapshot();
    if (!engine_->health().ok() && on_stopped_) std::exchange(on_stopped_, nullptr)();
  }
  RefuseAll();
}

bool SessionThread::TakeTickets() {
  auto batch = mailbox_.Take(engine_->HasWork(), collect_at_);
  if (!batch) return false;
  for (std::shared_ptr<Ticket>& ticket : batch->messages) {
    if (batch->stop || ticket->call) {
      if (!batch->stop) {
        ticket->id = engine_->Submit(std::move(*ticket->call), std::move(ticket->grammar));
      }
      in_engine_.push_back(std::move(ticket));
    } else {
      const bool was_active = engine_->EndSession(ticket->ending);
      mailbox_.Answer([&] {
        ticket->was_active = was_active;
        ticket->refused = engine_->health();
      });
    }
  }
  if (batch->stop) return false;
  if (batch->alerted) DropAbandoned();
  return true;
}

// Calls that have begun go on: their sessions keep the answers.
void SessionThread::DropAbandoned() {
  mailbox_.Locked([this] {
    std::erase_if(in_engine_, [this](const std::shared_ptr<Ticket>& ticket) {
      return ticket->abandoned && engine_->Drop(ticket->id);
    });
  });
}

void SessionThread::DeliverAnswers() {
  std::vector<SessionEngine::Finished> finished = engine_->TakeFinished();
  if (finished.empty()) return;
  mailbox_.Answer([&] {
    for (SessionEngine::Finished& one : finished) {
      const auto at =
          std::ranges::find(in_engine_, one.id, [](const auto& ticket) { return ticket->id; });
      if (at == in_engine_.end()) continue;
      (*at)->answer = std::move(one.answer);
      in_engine_.erase(at);
    }
  });
}

void SessionThread::RefuseAll() {
  mailbox_.Answer([this] {
    for (const auto& ticket : in_engine_) {
      ticket->refused = Unavailable("STOPPING: the worker is shutting down");
    }
    in_engine_.clear();
  });
}

void SessionThread::PublishSnapshot() {
  const KvCache& kv = engine_->kv();
  mailbox_.Locked([&] {
    snapshot_ = {.health = engine_->health(),
                 .sessions = engine_->sessions().size(),
                 .calls = static_cast<int>(in_engine_.size()),
                 .blocks = kv.shape().num_blocks,
                 .free_blocks = kv.pool().free_blocks(),
                 .cached_blocks = kv.pool().cached_blocks()};
  });
}

}  // namespace talon
