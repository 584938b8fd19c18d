// What a draft worker does: answers draft calls of many clients with one local drafter.
//
// A session is a sequence of the drafter, kept between calls: only the part of a new context that
// differs is computed again. The least recently used session is evicted where there is no room.
// Thread-safe; calls that arrive while others are served form the next batch, calls of one session
// are served one after the other. A batch that breaks an invariant fails and its sessions end; the
// others go on, unless the device failed or a session cannot be ended: then every call fails.
#ifndef TALON_REMOTE_DRAFT_SESSIONS_H_
#define TALON_REMOTE_DRAFT_SESSIONS_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/health.h"
#include "engine/remote_calls.h"
#include "observe/metrics.h"
#include "spec/drafter.h"
#include "spec/drafter_list.h"

namespace talon {

struct DraftSessionsOptions {
  static constexpr int kMaxLength = 64;  // longest drafted path
  static constexpr int kMaxBeams = 16;
  static constexpr int kMaxNodes = 128;  // nodes of an answer
  static constexpr int kMaxBatch = 8;    // calls drafted together

  // Defaults of a call that does not say.
  int max_draft_tokens = 5;
  int num_beams = 1;
  float temperature = 1;

  int max_sessions = 16;
  int64_t max_tokens = 0;  // sum over all sessions' contexts; 0: any number
  std::vector<int32_t> eos_ids;

  Metrics* metrics = nullptr;  // not owned; null: nothing is counted
  // Called once, by the thread that serves a batch, when no call can be served any more.
  std::function<void()> on_stopped;
};

class DraftSessions {
 public:
  // REQUIRES: the drafter needs no features of the target (CheckRemoteDrafter), and has room for
  // max_sessions + kMaxBatch sequences.
  DraftSessions(std::unique_ptr<Drafter> drafter, DraftSessionsOptions options);
  ~DraftSessions();

  // Calls with `max_nodes` get the most likely tree of that size. Others get SpecSplit's: a path,
  // or with a temperature drafts drawn at random, of which a node of depth d has num_beams - d.
  // A call that was cancelled while it waited (`cancelled`) gets the error Cancelled.
  Result<DraftAnswer> Draft(const DraftCall& call, const std::function<bool()>& cancelled = {});

  int num_sessions() const { return num_sessions_; }
  // Not OK: every call is answered with that. REQUIRES: no call is being served.
  const Status& health() const { return health_.status(); }

 private:
  struct Session {
    std::string id;
    SequenceId sequence = 0;
    std::vector<int32_t> tokens;  // tokens that the drafter knows
    bool busy = false;            // in the batch that is served now
  };
  // What a call asks for, with defaults filled in.
  struct DraftParams {
    DraftBudget budget;
    float temperature = 0;
    int beams = 0;  // limit for a drafter that does not sample; 0: any
  };

  // A caller and its place for the answer.
  struct Caller {
    const DraftCall& call;
    const DraftParams params;
    const std::function<bool()>& cancelled;
    // Owned by the serving thread until `served`:
    std::optional<Result<DraftAnswer>> answer;
    Session* session = nullptr;
    int rows = 0;
    bool served = false;  // guarded by mutex_
  };

  Result<DraftParams> ParamsOf(const DraftCall& call) const;
  void TakeBatch(std::vector<Caller*>* batch);
  void Serve(const std::vector<Caller*>& batch);
  void TryServe(const std::vector<Caller*>& batch);
  void Fail(const std::vector<Caller*>& batch, const Status& why);
  void Propose(const std::vector<Caller*>& batch);
  // The call's session, brought up to its context and moved to the front. `computed`: tokens that
  // the session did not have.
  Result<Session*> CatchUp(const DraftCall& call, int* computed);
  Status BeginSession(Session* session, const std::vector<int32_t>& context);
  void MakeRoom(const std::string& kept_id, size_t new_tokens);
  void EndSession(std::list<Session>::iterator at);
  Status EndSessionsOf(const std::vector<Caller*>& batch);

  const std::unique_ptr<Drafter> drafter_;
  const DraftSessionsOptions options_;
  std::atomic<int> num_sessions_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Caller*> waiting_;
  bool serving_ = false;  // a caller serves a batch
  // Owned by the serving thread:
  std::list<Session> sessions_;  // most recently used first
  SequenceId next_sequence_ = 1;
  EngineHealth health_;
};

// Refuses drafters that cannot run apart from their target; the error says why.
Status CheckRemoteDrafter(const DrafterList& drafters);

}  // namespace talon

#endif  // TALON_REMOTE_DRAFT_SESSIONS_H_
