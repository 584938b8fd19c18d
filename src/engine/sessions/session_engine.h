// The target worker's engine: sessions of remote clients, verified in batches.
//
// A session is its tokens: those that its client knows to be here. K/V covers a prefix of them, in
// the same cache and by the same step as local requests; what it lacks is computed when it is next
// needed. So whatever goes wrong in a call, the session's tokens stay and nothing else matters:
// a failed call leaves its session as it was.
//
// Calls of one session are served in the order they came; calls of different sessions share passes.
// A call is one step over its client's tree, after as many passes over prompt chunks as its context
// needs. All members but Check are called on one thread; SessionThread is the front for others.
#ifndef TALON_ENGINE_SESSIONS_SESSION_ENGINE_H_
#define TALON_ENGINE_SESSIONS_SESSION_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "engine/active_request.h"
#include "engine/engine.h"
#include "engine/remote_calls.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/verify_checks.h"
#include "engine/step/step.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "spec/policy/policy.h"

namespace talon {

struct SessionOptions {
  // As for local requests: `max_sequences` calls share a pass, `kv_tokens` 0 = a context of
  // max_length for each session. The budget, acceptance and SCV are the calls' own business.
  EngineOptions engine;
  int max_sessions = 16;
  std::chrono::seconds session_ttl{300};
  int max_tree_nodes = 2048;  // largest tree of a call, its root not counted
  int max_prompt_tokens = 8192;

  static constexpr int kMaxTreeDepth = 64;
  // Rows for the trees of a pass: at least one call's largest, and what it may have to settle.
  int TreeRows() const;
};

class SessionEngine {
 public:
  using CallId = int64_t;
  using TimePoint = SessionTable::TimePoint;

  struct Parts {
    Backend* backend = nullptr;  // not owned
    Decoder* target = nullptr;   // not owned
    Metrics* metrics = nullptr;  // not owned; null: the engine makes its own
  };
  // The target must have been loaded with TreeRows() output rows at least, and more rows than that.
  static Result<std::unique_ptr<SessionEngine>> Create(const Parts& parts,
                                                       const SessionOptions& options);
  ~SessionEngine();

  // What is wrong with a call, whatever the sessions. Any thread.
  Status Check(const VerifyCall& call) const { return CheckVerifyCall(call, limits_); }

  // Queues a call that passes Check.
  CallId Submit(VerifyCall call);
  // Takes a call back that has not begun. False: it has, or is unknown.
  bool Drop(CallId id);

  bool HasWork() const { return !waiting_.empty() || !running_.empty(); }
  // Begins waiting calls as far as there is room, then one pass for all that run.
  void RunStep(TimePoint now);

  struct Finished {
    CallId id = 0;
    Result<VerifyAnswer> answer;
  };
  // The calls that ended since the last time, in order. Failures have the codes and details of the
  // protocol: "KV_FULL: 12 blocks needed, 3 free".
  std::vector<Finished> TakeFinished();

  // Whether there was such a session. One that is busy goes after the calls it has now.
  bool EndSession(std::string_view id);
  // Ends idle sessions whose time is over. Returns how many.
  int Collect(TimePoint now);

  const SessionOptions& options() const { return options_; }
  const SessionTable& sessions() const { return sessions_; }
  const Decoder& target() const { return *parts_.target; }
  KvCache& kv() { return *kv_; }
  const KvCache& kv() const { return *kv_; }
  Metrics& metrics() { return *parts_.metrics; }
  // KV integrity over all sessions and calls, and audit where it is on.
  Status CheckIntegrity() const;

 private:
  struct Call {
    CallId id = 0;
    VerifyCall asked;
    Session* session = nullptr;    // from the table, or
    std::unique_ptr<Session> own;  // not in the table: new, or of this call only
    std::vector<int32_t> context;  // all tokens before the drafts
    // While it runs. It has the session's sequence and partial state then.
    std::unique_ptr<ActiveRequest> run;
    int tree_rows = 0;  // nodes of its one step, root included; 0: it only computes the context
    int path_rows = 0;  // nodes of their longest path, which it may commit
    int failed_steps = 0;
    VerifyAnswer answer;

    // Tokens whose K/V the step needs, or the call leaves behind.
    int context_end() const { return static_cast<int>(context.size()) - 1; }
  };

  SessionEngine(const Parts& parts, const SessionOptions& options);
  void ChooseSizes();
  Status ChoosePartialVerification();
  Status MakeCache();

  // From a waiting call to a running one (session_begin.cc).
  enum class Beginning { kRuns, kEnded, kMustWait };
  void BeginWaiting(TimePoint now);
  Beginning Begin(Call* call, TimePoint now);
  Status FindContext(Call* call);
  Status Desync(const Call& call, std::string_view problem);
  void StartRun(Call* call);
  void Prepare(Call* call);
  Status FindRoom(const Call& call);
  void EnterTable(Call* call, TimePoint now);
  void StepBack(Call* call);
  int BlocksToCome(const Call& call) const;
  bool IsBusy(const Session& session) const;
  bool EvictIdle();
  void RemoveEnded();
  void Remove(Session* session, const char* reason);

  // A pass.
  std::vector<ActiveRequest*> NextTrees(int* tree_rows) const;
  std::vector<PromptChunk> NextPromptChunks(int tree_rows) const;
  Status RunPass();
  void Settle(Call* call, TimePoint now);
  void Answer(Call* call, TimePoint now);
  void Abandon(Call* call, const Status& why);
  void End(Call* call, Result<VerifyAnswer> answer);
  void ReportState();

  Parts parts_;
  std::unique_ptr<Metrics> own_metrics_;
  SessionOptions options_;
  VerifyLimits limits_;
  FixedPolicy policy_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Step> step_;
  SessionTable sessions_;
  CallId next_call_ = 1;
  SequenceId next_sequence_ = 1;
  std::deque<std::unique_ptr<Call>> waiting_;
  std::vector<std::unique_ptr<Call>> running_;  // in the order they began
  std::vector<Finished> finished_;
};

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_SESSION_ENGINE_H_
