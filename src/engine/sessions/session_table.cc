#include "engine/sessions/session_table.h"

#include <algorithm>
#include <utility>

namespace talon {

Session* SessionTable::Find(std::string_view id) const {
  const auto at = std::ranges::find(sessions_, id, [](const auto& one) { return one->id; });
  return at == sessions_.end() ? nullptr : at->get();
}

Session* SessionTable::Add(std::unique_ptr<Session> session) {
  sessions_.push_back(std::move(session));
  return sessions_.back().get();
}

void SessionTable::Remove(const Session* session) {
  std::erase_if(sessions_, [session](const auto& one) { return one.get() == session; });
}

void SessionTable::Touch(Session* session, TimePoint now) {
  session->last_accessed = now;
  const auto at = std::ranges::find(sessions_, session, [](const auto& one) { return one.get(); });
  std::rotate(at, at + 1, sessions_.end());
}

Session* SessionTable::Oldest(const std::function<bool(const Session&)>& which) const {
  const auto at = std::ranges::find_if(sessions_, [&](const auto& one) { return which(*one); });
  return at == sessions_.end() ? nullptr : at->get();
}

}  // namespace talon
