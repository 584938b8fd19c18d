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

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "engine/grammar_compiler.h"
#include "engine/health.h"
#include "engine/remote_calls.h"
#include "engine/sessions/call_ender.h"
#include "engine/sessions/call_starter.h"
#include "engine/sessions/session_calls.h"
#include "engine/sessions/session_evictor.h"
#include "engine/sessions/session_options.h"
#include "engine/sessions/session_pass.h"
#include "engine/sessions/session_table.h"
#include "engine/sessions/verify_checks.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"

namespace talon {

class SessionEngine {
 public:
  using CallId = int64_t;
  using TimePoint = SessionTable::TimePoint;

  struct Parts {
    Backend* backend = nullptr;                 // not owned
    Decoder* target = nullptr;                  // not owned
    Metrics* metrics = nullptr;                 // not owned; null: the engine makes its own
    const GrammarCompiler* grammars = nullptr;  // not owned; null: calls with a grammar are refused
  };
  // The target must have been loaded with TreeRows() output rows at least, and more rows than that.
  static Result<std::unique_ptr<SessionEngine>> Create(const Parts& parts,
                                                       const SessionOptions& options);
  ~SessionEngine();

  // What is wrong with a call, whatever the sessions. Any thread.
  Status Check(const VerifyCall& call) const { return CheckVerifyCall(call, limits_); }

  // The matcher of the call's grammar, null if it has none. Any thread: it may take a while.
  Result<std::shared_ptr<Matcher>> CompileGrammar(const VerifyCall& call) const;

  // Queues a call that passes Check, with what CompileGrammar gave for it.
  CallId Submit(VerifyCall call, std::shared_ptr<Matcher> grammar = nullptr);
  // Takes a call back that has not begun. False: it has, or is unknown.
  bool Drop(CallId id);

  bool HasWork() const { return !calls_.empty(); }
  // Begins waiting calls as far as there is room, then one pass for all that run.
  // What breaks an invariant ends the calls that run, with their sessions; the others go on if the
  // KV cache is in order.
  void RunStep(TimePoint now);
  // Not OK: the engine has stopped for good and answers every call with that.
  const Status& health() const { return health_.status(); }

  using Finished = FinishedCall;
  // The calls that ended since the last time, in order. Failures have the codes and details of the
  // protocol: "KV_FULL: 12 blocks needed, 3 free".
  std::vector<Finished> TakeFinished() { return ender_.TakeFinished(); }

  // Whether there was such a session. One that is busy goes after the calls it has now.
  bool EndSession(std::string_view id);
  // Ends idle sessions whose time is over. Returns how many. Like EndSession and Drop it stops the
  // engine where a session's blocks cannot be freed.
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
  SessionEngine(const Parts& parts, std::unique_ptr<Metrics> own_metrics,
                const SessionOptions& options, std::unique_ptr<KvCache> kv);

  // From a waiting call to a running one.
  enum class Beginning { kRuns, kEnded, kMustWait };
  void BeginWaiting(TimePoint now);
  Beginning Begin(SessionCall* call, TimePoint now);

  Status TryStep(TimePoint now);
  void AbandonRunning(const Status& why);
  void RefuseFirstWaiting(const Status& why);
  void RemoveEnded();
  void ReportState();

  Parts parts_;
  std::unique_ptr<Metrics> own_metrics_;
  SessionOptions options_;
  VerifyLimits limits_;
  std::unique_ptr<KvCache> kv_;
  SessionTable sessions_;
  SessionCalls calls_;
  SessionEvictor evictor_;
  CallStarter starter_;
  CallEnder ender_;
  SessionPass pass_;
  EngineHealth health_;
};

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_SESSION_ENGINE_H_
