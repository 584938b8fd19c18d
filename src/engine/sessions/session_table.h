// A target worker's sessions, in the order of their use.
#ifndef TALON_ENGINE_SESSIONS_SESSION_TABLE_H_
#define TALON_ENGINE_SESSIONS_SESSION_TABLE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "engine/remote_calls.h"
#include "engine/step/partial_state.h"
#include "kv/kv_cache.h"

namespace talon {

struct Session {
  std::string id;  // empty: of a single call
  // What the client knows to be here. Its length is the session's on the wire.
  std::vector<int32_t> tokens;
  // K/V of the first of them; with the call while one runs.
  Sequence sequence;
  PartialState partial;
  std::string last_request;  // the one that `last_answer` is for; empty: none
  VerifyAnswer last_answer;
  std::chrono::steady_clock::time_point last_accessed;
  const uint64_t seed = RandomSeed();  // seed of sampled calls that bring none
  int64_t ends_after = 0;              // it goes when calls up to this one have ended; 0: it stays
};

// Used by the engine's thread.
class SessionTable {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  int size() const { return static_cast<int>(sessions_.size()); }
  Session* Find(std::string_view id) const;
  Session* Add(std::unique_ptr<Session> session);
  void Remove(const Session* session);
  // The session becomes the one used last. REQUIRES: it is here.
  void Touch(Session* session, TimePoint now);
  // The one used longest ago that satisfies `which`, or null.
  Session* Oldest(const std::function<bool(const Session&)>& which) const;
  const std::vector<std::unique_ptr<Session>>& all() const { return sessions_; }

 private:
  std::vector<std::unique_ptr<Session>> sessions_;  // least recently used first
};

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_SESSION_TABLE_H_
