// What a target worker asks of a call before it looks at the session, and the tree of its drafts.
#ifndef TALON_ENGINE_SESSIONS_VERIFY_CHECKS_H_
#define TALON_ENGINE_SESSIONS_VERIFY_CHECKS_H_

#include <cstdint>

#include "base/status.h"
#include "engine/remote_calls.h"
#include "model/sampling/sampling_params.h"
#include "spec/token_tree.h"

namespace talon {

struct VerifyLimits {
  int max_tree_nodes = 2048;
  int max_tree_depth = 64;
  int max_prompt_tokens = 8192;  // applies to the prompt and to the delta
  int vocab_size = 0;
};

// InvalidArgument; the message begins with the detail that clients of the protocol look for:
// PROMPT_TOO_LONG, TREE_TOO_LARGE, TREE_INVALID, TOKEN_OUT_OF_RANGE, BAD_TEMPERATURE, BAD_SAMPLING.
Status CheckVerifyCall(const VerifyCall& call, const VerifyLimits& limits);

// The drafts under `root`, in depth order, as far as `max_depth`. REQUIRES: a checked call.
TokenTree TreeOfCall(const DraftForest& drafts, int32_t root, int max_depth);

// EOS does not stop a call unless the call lists it.
SamplingParams SamplingOfCall(const VerifyCall& call);

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_VERIFY_CHECKS_H_
