#include "engine/sessions/session_calls.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace talon {

int64_t SessionCalls::Add(VerifyCall asked, std::shared_ptr<Matcher> grammar) {
  auto call = std::make_unique<SessionCall>();
  call->id = next_id_++;
  call->answer.request_id = asked.request_id;
  call->answer.session_id = asked.session_id;
  call->asked = std::move(asked);
  call->grammar = std::move(grammar);
  waiting_.push_back(std::move(call));
  return waiting_.back()->id;
}

bool SessionCalls::Drop(int64_t id) {
  return std::erase_if(waiting_, [id](const auto& call) { return call->id == id; }) > 0;
}

void SessionCalls::MoveToRunning(size_t index) {
  running_.push_back(std::move(waiting_[index]));
  EraseWaiting(index);
}

void SessionCalls::EraseWaiting(size_t index) {
  waiting_.erase(waiting_.begin() + static_cast<int64_t>(index));
}

void SessionCalls::EraseEnded() {
  std::erase_if(running_, [](const auto& call) { return call->run == nullptr; });
}

bool SessionCalls::SessionRuns(const SessionCall& call) const {
  return !call.asked.session_id.empty() && std::ranges::any_of(running_, [&](const auto& other) {
    return other->asked.session_id == call.asked.session_id;
  });
}

bool SessionCalls::IsBusy(const Session& session) const {
  return IsBusyUpTo(session, std::numeric_limits<int64_t>::max());
}

bool SessionCalls::IsBusyUpTo(const Session& session, int64_t last) const {
  const auto is_for = [&](const auto& call) {
    return call->asked.session_id == session.id && call->id <= last;
  };
  return std::ranges::any_of(waiting_, is_for) || std::ranges::any_of(running_, is_for);
}

}  // namespace talon
