// Generation with remote workers: a target that verifies and, where there is one, a drafter that
// works ahead of it.
//
// A round drafts, verifies, and takes what the target confirmed; while the target works, the
// drafter continues the longest path (overlap.h). The text is the target's own plain decoding,
// whatever the drafter does and whatever fails; each token is emitted once. One thread.
#ifndef TALON_REMOTE_ORCHESTRATOR_H_
#define TALON_REMOTE_ORCHESTRATOR_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "observe/metrics.h"
#include "remote/draft_client.h"
#include "remote/draft_length.h"
#include "remote/links.h"
#include "remote/remote_timer.h"
#include "remote/telemetry.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

struct OrchestratorOptions {
  int max_rounds = 0;            // 0: any number
  double timeout_seconds = 30;   // timeout of a round, retries included
  int max_length = 0;            // tokens of prompt and output; 0: any number
  float draft_temperature = -1;  // -1: as the request's
  bool rejection = false;        // accept by the drafts' probabilities, with their draws
  std::vector<int32_t> eos_ids;
  int vocab_size = 0;        // the target's; 0: not known
  DraftClientOptions draft;  // end_tokens and draws are filled in
};

class Orchestrator {
 public:
  struct Parts {  // not owned; null: none
    TargetLink* target = nullptr;
    DraftLink* draft = nullptr;            // null: plain remote decoding
    const VocabBridge* bridge = nullptr;   // null: one vocabulary
    const Tokenizer* tokenizer = nullptr;  // null: tokens only
    RemoteTimer* timer = nullptr;          // null: the clock
    Telemetry* telemetry = nullptr;
    Metrics* metrics = nullptr;
    std::function<bool()> cancelled;  // polled between calls (links poll inside them); empty: never
  };
  Orchestrator(Parts parts, OrchestratorOptions options);

  // Validates a request, including parameters that a remote target does not support.
  Status Check(const GenerateRequest& request) const;
  // REQUIRES: the request passes Check. Failures are in the result; if the target stays unavailable
  // the result has the confirmed tokens and the reason kTimeout, or an error if there are none.
  GenerateResult Generate(GenerateRequest request);

 private:
  class Run;
  Parts parts_;
  OrchestratorOptions options_;
  RemoteTimer clock_;
  DraftLengthControl draft_length_;  // its state is kept for the next request
};

}  // namespace talon

#endif  // TALON_REMOTE_ORCHESTRATOR_H_
