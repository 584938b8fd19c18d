// The client's side of a draft worker: drafts for sequences, one round ahead where it can.
//
// DraftClient keeps the state of the worker: whether it answers, how long it takes, whether its
// drafts pay. DraftStream has one sequence's drafts. A round is: Prepare(context), Take(),
// Ahead(path), then the target's verification, then Observe(). A failing worker means no drafts and
// is never an error: it is retried after a pause, beside rounds that go on without it. One thread.
#ifndef TALON_REMOTE_DRAFT_CLIENT_H_
#define TALON_REMOTE_DRAFT_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/remote_calls.h"
#include "observe/metrics.h"
#include "remote/draft_length.h"
#include "remote/links.h"
#include "remote/remote_timer.h"
#include "remote/telemetry.h"
#include "remote/vocab_bridge.h"

namespace talon {

struct DraftClientOptions {
  int max_length = 5;  // longest path
  int num_beams = 4;   // guesses of the next token; 1: a chain
  int max_nodes = 0;   // 0: as length and beams give
  bool draws = false;  // drafts drawn at random with their distributions, for rejection acceptance
  bool overlap = true;
  bool adaptive = true;
  double timeout_seconds = 10;      // timeout of a call
  std::vector<int32_t> end_tokens;  // nothing is drafted after them
  int Nodes(int length) const;      // nodes of a tree with paths of this length
  DraftLengthOptions LengthOptions() const {
    return {.max_length = max_length, .adaptive = adaptive};
  }
};

enum class SpeculationResult { kHit, kMiss, kSkipped };
const char* SpeculationResultName(SpeculationResult result);

class DraftClient {
 public:
  struct Parts {  // not owned; null: none
    DraftLink* link = nullptr;
    const VocabBridge* bridge = nullptr;
    RemoteTimer* timer = nullptr;
    Telemetry* telemetry = nullptr;
    Metrics* metrics = nullptr;
    DraftLengthControl* control = nullptr;  // null: one of its own
  };
  DraftClient(const Parts& parts, const DraftClientOptions& options);
  DraftClient(const DraftClient&) = delete;
  DraftClient& operator=(const DraftClient&) = delete;

  const DraftClientOptions& options() const { return options_; }
  DraftLengthControl& control() { return *parts_.control; }
  // Tokens to draft and wait for now; 0: none.
  int length() const { return down_ ? 0 : parts_.control->length(); }
  // REQUIRES: length() is 0. Whether to send a probe, a call that no round waits for.
  bool wants_probe() const;
  bool down() const { return down_; }

 private:
  friend class DraftStream;
  std::unique_ptr<RunningDraft> Begin(DraftCall call);
  // The answer as a forest of the target's tokens; nullopt: the worker failed.
  std::optional<DraftForest> Receive(Result<DraftReply> reply, const std::string& request_id);
  void Fail(const Status& status);
  void Recover();
  void Report(SpeculationResult result);
  double Timeout() const;

  Parts parts_;
  DraftClientOptions options_;
  DraftLengthControl own_control_;
  bool down_ = false;
  RemoteClock::time_point ask_again_;
  Backoff backoff_;
  double mean_seconds_ = 0;  // mean time of an answered call
};

class DraftStream {
 public:
  // Sampling parameters that a call carries.
  struct Sampling {
    float temperature = 0;
    uint64_t seed = 0;
  };
  DraftStream(DraftClient* client, std::string session_id, const Sampling& sampling);

  // The target confirmed `context`: uses what was drafted ahead, or asks anew, for paths of at most
  // `max_depth`.
  void Prepare(std::span<const int32_t> context, int max_depth);
  // The drafts, after a wait if they are not ready; empty: none.
  DraftForest Take();
  // Requests drafts after `context` and `path` while the target verifies. `max_depth` covers the
  // path and the next tree together.
  void Ahead(std::span<const int32_t> context, std::span<const int32_t> path, int max_depth);
  // The outcome of the drafts taken last; a path of length 0: there were none.
  void Observe(const DraftedRound& round);

  double waited_seconds() const { return waited_; }           // in the round
  double drafting_seconds() const { return draft_seconds_; }  // time of the calls used in it
  SpeculationResult speculation() const { return speculation_; }

 private:
  struct Call {
    std::unique_ptr<RunningDraft> running;
    std::string request_id;
    std::vector<int32_t> context;  // the target's tokens
    bool probe = false;            // not to be waited for
  };

  std::optional<Call> Begin(std::vector<int32_t> context, int length, int nodes);
  std::optional<DraftForest> Wait(Call* call);
  void SettleAhead(std::span<const int32_t> context);
  void SettleProbe(std::span<const int32_t> context);
  void TakeProbe();

  DraftClient* client_;
  const std::string session_id_;
  const Sampling sampling_;
  int64_t next_call_ = 1;
  std::optional<Call> fresh_;
  std::optional<Call> ahead_;
  DraftForest ready_;
  DraftForest guesses_;            // guesses of an answered probe: those not compared yet
  std::vector<int32_t> compared_;  // the context that they follow
  int max_depth_ = 0;
  double waited_ = 0;
  double draft_seconds_ = 0;
  SpeculationResult speculation_ = SpeculationResult::kSkipped;
};

}  // namespace talon

#endif  // TALON_REMOTE_DRAFT_CLIENT_H_
