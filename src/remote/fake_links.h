// Scripted workers for tests, in this process: a target and a drafter over a made-up vocabulary,
// links that fail on demand, and a clock that advances in Sleep only.
#ifndef TALON_REMOTE_FAKE_LINKS_H_
#define TALON_REMOTE_FAKE_LINKS_H_

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/prefix_hash.h"
#include "remote/links.h"
#include "remote/overlap.h"
#include "remote/remote_timer.h"

namespace talon {

constexpr int kFakeVocabulary = 50;
constexpr int32_t kFakeEos = 0;

inline constexpr uint64_t kSeed = 7;  // for the requests and their fake text

// The token that follows `context` in the fake target's language; the seed changes it.
inline int32_t FakeNext(std::span<const int32_t> context, uint64_t seed) {
  const uint64_t hash = PrefixHash(context.last(std::min<size_t>(context.size(), 6))) ^
                        (seed * 0x9e3779b97f4a7c15u) ^ context.size();
  return 1 + static_cast<int32_t>((hash >> 20) % (kFakeVocabulary - 1));
}

inline std::vector<int32_t> FakeText(std::vector<int32_t> context, uint64_t seed, int tokens) {
  const size_t prompt = context.size();
  for (int i = 0; i < tokens; ++i) context.push_back(FakeNext(context, seed));
  return {context.begin() + static_cast<int64_t>(prompt), context.end()};
}

class FakeTimer : public RemoteTimer {
 public:
  RemoteClock::time_point Now() override { return now_; }
  void Sleep(RemoteClock::duration time) override { now_ += time; }

 private:
  RemoteClock::time_point now_ = RemoteClock::time_point() + std::chrono::hours(1);
};

// How a call fails.
struct FakeFault {
  enum class Kind {
    kNone,
    kRefused,    // fails before the worker sees it
    kLost,       // the worker computes it, but its answer is lost
    kForgotten,  // the worker has evicted the session before
    kMistaken,   // the answer of another call is returned
  };
  Kind kind = Kind::kNone;
  Status status = Unavailable("connection lost");
};

class FakeTarget : public TargetLink {
 public:
  explicit FakeTarget(FakeTimer* timer) : timer_(timer) {}

  Result<VerifyReply> Verify(const VerifyCall& call, RemoteClock::time_point deadline) override {
    ++calls;
    asked.push_back(call);
    FakeFault fault;
    if (!faults.empty()) {
      fault = faults.front();
      faults.pop_front();
    }
    if (fault.kind == FakeFault::Kind::kRefused) return fault.status;
    if (fault.kind == FakeFault::Kind::kForgotten) sessions_.clear();
    if (fault.kind == FakeFault::Kind::kMistaken) {
      return Reply({.request_id = "another", .accepted = {}, .correction = 7});
    }
    TALON_ASSIGN_OR_RETURN(const VerifyAnswer answer, Answer(call));
    timer_->Sleep(std::chrono::milliseconds(10));
    if (fault.kind == FakeFault::Kind::kLost) return fault.status;
    return Reply(answer);
  }

  Status EndSession(const std::string& session_id, RemoteClock::time_point) override {
    ended.push_back(session_id);
    sessions_.erase(session_id);
    return OkStatus();
  }
  Result<PingAnswer> Ping(RemoteClock::time_point) override { return PingAnswer{}; }

  std::deque<FakeFault> faults;  // faults of the calls to come
  int calls = 0;
  std::vector<VerifyCall> asked;
  int verified = 0;  // calls that were computed
  int whole = 0;     // calls with the whole context
  std::vector<std::string> ended;
  size_t sessions() const { return sessions_.size(); }

 private:
  struct Session {
    std::vector<int32_t> tokens;  // the wire's
    VerifyAnswer last;
  };

  VerifyReply Reply(VerifyAnswer answer) const {
    return {.answer = std::move(answer),
            .report = {.sent = timer_->Now() - std::chrono::milliseconds(10),
                       .received = timer_->Now(),
                       .worker_seconds = 0.008}};
  }

  Result<VerifyAnswer> Answer(const VerifyCall& call) {
    Session& session = sessions_[call.session_id];
    if (!session.tokens.empty() && session.last.request_id == call.request_id) return session.last;
    std::vector<int32_t> context = call.prompt;
    if (call.prompt.empty()) {
      const bool known = call.expected_prefix == static_cast<int>(session.tokens.size()) &&
                         call.prefix_hash == PrefixHash(session.tokens);
      if (session.tokens.empty() || !known) {
        return FailedPrecondition("CACHE_EVICTED_DELTA_ONLY: no such session");
      }
      context = session.tokens;
      context.insert(context.end(), call.delta.begin(), call.delta.end());
    }
    ++verified;
    whole += call.prompt.empty() ? 0 : 1;
    VerifyAnswer answer = Walk(call, context);
    session.tokens = context;
    session.tokens.insert(session.tokens.end(), answer.accepted.begin(), answer.accepted.end());
    answer.prefix_length = static_cast<int>(session.tokens.size());
    session.last = answer;
    return answer;
  }

  VerifyAnswer Walk(const VerifyCall& call, std::vector<int32_t> context) const {
    VerifyAnswer answer{.request_id = call.request_id, .session_id = call.session_id};
    for (;;) {
      const int32_t next = FakeNext(context, call.seed.value_or(0));
      std::vector<int32_t> longer = answer.accepted;
      longer.push_back(next);
      if (MatchedLength(call.drafts, longer) < static_cast<int>(longer.size())) {
        answer.correction = next;
        return answer;
      }
      answer.accepted = std::move(longer);
      context.push_back(next);
      if (std::ranges::find(call.stop_token_ids, next) != call.stop_token_ids.end()) return answer;
    }
  }

  FakeTimer* timer_;
  std::map<std::string, Session> sessions_;
};

// Drafts the target's tokens, some of them wrong.
class FakeDrafter : public DraftLink {
 public:
  // Every `wrong_every`-th context is drafted wrongly; 0: none.
  FakeDrafter(FakeTimer* timer, uint64_t seed, int wrong_every)
      : timer_(timer), seed_(seed), wrong_every_(wrong_every) {}

  std::unique_ptr<RunningDraft> Begin(const DraftCall& call, RemoteClock::time_point) override {
    calls.push_back(call);
    auto running = std::make_unique<Running>(timer_, milliseconds);
    running->ready = ready;
    if (!faults.empty()) {
      const FakeFault fault = faults.front();
      faults.pop_front();
      if (fault.kind == FakeFault::Kind::kRefused) running->status = fault.status;
    }
    running->answer = {.request_id = call.request_id, .drafts = Draft(call)};
    return running;
  }
  Result<PingAnswer> Ping(RemoteClock::time_point) override { return PingAnswer{}; }

  std::deque<FakeFault> faults;  // faults of the calls to come
  std::vector<DraftCall> calls;
  bool ready = true;     // false: calls are never ready before they are waited for
  int milliseconds = 5;  // time that a call takes

 private:
  struct Running : RunningDraft {
    Running(FakeTimer* clock, int milliseconds)
        : timer(clock), sent(clock->Now()), done(sent + std::chrono::milliseconds(milliseconds)) {}
    bool Ready() override { return ready && timer->Now() >= done; }
    Result<DraftReply> Take() override {
      if (timer->Now() < done) timer->Sleep(done - timer->Now());
      if (!status.ok()) return status;
      return DraftReply{.answer = answer, .report = {.sent = sent, .received = done}};
    }
    FakeTimer* timer;
    RemoteClock::time_point sent;
    RemoteClock::time_point done;
    bool ready = true;
    Status status;
    DraftAnswer answer;
  };

  // A chain of guesses, with another root beside the first.
  DraftForest Draft(const DraftCall& call) const {
    DraftForest forest;
    std::vector<int32_t> context = call.context;
    int parent = -1;
    for (int i = 0; i < std::max(call.max_length, 1); ++i) {
      int32_t token = FakeNext(context, seed_);
      const bool wrong = wrong_every_ > 0 && PrefixHash(context) % wrong_every_ == 0;
      if (wrong) token = 1 + token % (kFakeVocabulary - 1);
      forest.tokens.push_back(token);
      forest.parents.push_back(parent);
      forest.probs.push_back(0.8f);
      parent = forest.size() - 1;
      context.push_back(token);
      if (i > 0 || call.num_beams < 2) continue;
      forest.tokens.push_back(1 + token % (kFakeVocabulary - 1));
      forest.parents.push_back(-1);
      forest.probs.push_back(0.1f);
    }
    return forest;
  }

  FakeTimer* timer_;
  uint64_t seed_;
  int wrong_every_;
};

}  // namespace talon

#endif  // TALON_REMOTE_FAKE_LINKS_H_
