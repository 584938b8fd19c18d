// What a draft worker does: answers draft calls of many clients with one local drafter.
//
// A session is a sequence of the drafter, kept between calls: of a new context only what differs is
// computed again. The least recently used one leaves where there is no room. Thread-safe; calls
// that come while others are served are drafted together, those of one session in turn.
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
#include "engine/remote_calls.h"
#include "spec/drafter.h"
#include "spec/drafter_list.h"

namespace talon {

struct DraftSessionsOptions {
  static constexpr int kMaxLength = 64;  // of a drafted path
  static constexpr int kMaxBeams = 16;
  static constexpr int kMaxNodes = 128;  // of an answer
  static constexpr int kMaxBatch = 8;    // calls drafted together

  // What a call gets that does not say.
  int max_draft_tokens = 5;
  int num_beams = 1;
  float temperature = 1;

  int max_sessions = 16;
  int64_t max_tokens = 0;  // of all sessions' contexts; 0: any number
  std::vector<int32_t> eos_ids;
};

class DraftSessions {
 public:
  // REQUIRES: the drafter needs no features of the target (CheckRemoteDrafter), and has room for
  // max_sessions + kMaxBatch sequences.
  DraftSessions(std::unique_ptr<Drafter> drafter, DraftSessionsOptions options);
  ~DraftSessions();

  // Calls with `max_nodes` get the most likely tree of that size. Others get SpecSplit's: a path,
  // or with a temperature drafts drawn at random, of which a node of depth d has num_beams - d.
  // Whoever gave up while waiting for others, as `cancelled` says, gets none.
  Result<DraftAnswer> Draft(const DraftCall& call, const std::function<bool()>& cancelled = {});

  int num_sessions() const { return num_sessions_; }

 private:
  struct Session {
    std::string id;
    SequenceId sequence = 0;
    std::vector<int32_t> tokens;  // that the drafter knows
    bool busy = false;            // in the batch that is served now
  };
  struct Wish {
    DraftBudget budget;
    float temperature = 0;
    int beams = 0;  // that a drafter which draws nothing must keep to; 0: any
  };

  // A caller and its place for the answer.
  struct Caller {
    const DraftCall& call;
    const Wish wish;
    const std::function<bool()>& cancelled;
    // Of whoever serves it, until it is served:
    std::optional<Result<DraftAnswer>> answer;
    Session* session = nullptr;
    int rows = 0;
    bool served = false;  // guarded by mutex_
  };

  Result<Wish> WishOf(const DraftCall& call) const;
  std::vector<Caller*> TakeBatch();
  void Serve(const std::vector<Caller*>& batch);
  void Propose(const std::vector<Caller*>& batch);
  // The call's session with its context, most recently used.
  Result<Session*> Catch(const DraftCall& call, int* computed);
  Status BeginSession(Session* session, const std::vector<int32_t>& context);
  void MakeRoom(const std::string& kept_id, size_t new_tokens);
  void EndSession(std::list<Session>::iterator at);

  const std::unique_ptr<Drafter> drafter_;
  const DraftSessionsOptions options_;
  std::atomic<int> num_sessions_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Caller*> waiting_;
  bool serving_ = false;  // a caller serves a batch
  // Of whoever serves:
  std::list<Session> sessions_;  // most recently used first
  SequenceId next_sequence_ = 1;
};

// Refuses drafters that cannot run apart from their target; the error says why.
Status CheckRemoteDrafter(const DrafterList& drafters);

}  // namespace talon

#endif  // TALON_REMOTE_DRAFT_SESSIONS_H_
