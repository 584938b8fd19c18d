// One pass for the calls that run: which of their trees and prompt chunks share it.
#ifndef TALON_ENGINE_SESSIONS_SESSION_PASS_H_
#define TALON_ENGINE_SESSIONS_SESSION_PASS_H_

#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "engine/active_request.h"
#include "engine/sessions/session_calls.h"
#include "engine/sessions/session_options.h"
#include "engine/step/step.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "spec/policy/policy.h"

namespace talon {

// Used by the engine's thread.
class SessionPass {
 public:
  struct Parts {  // not owned
    const SessionOptions* options = nullptr;
    const SessionCalls* calls = nullptr;
    Backend* backend = nullptr;
    Decoder* target = nullptr;
    KvCache* kv = nullptr;
    Metrics* metrics = nullptr;
  };
  explicit SessionPass(const Parts& parts);

  // Runs the step, if any call needs one, and adds its time and rows to the answers of the calls
  // that it was for. A failure concerns all that run and changes none.
  Status Run();

 private:
  std::vector<ActiveRequest*> NextTrees(int* tree_rows) const;
  std::vector<PromptChunk> NextPromptChunks(int tree_rows) const;

  Parts parts_;
  FixedPolicy policy_;
  Step step_;
};

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_SESSION_PASS_H_
