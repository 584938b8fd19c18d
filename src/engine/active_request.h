// A request while it runs: its sequence, its sampler, its text so far.
#ifndef TALON_ENGINE_ACTIVE_REQUEST_H_
#define TALON_ENGINE_ACTIVE_REQUEST_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/output_text.h"
#include "engine/request.h"
#include "engine/step/partial_state.h"
#include "kv/kv_cache.h"
#include "model/sampling/sampler.h"
#include "spec/token_tree.h"
#include "spec/verify/accept.h"

namespace talon {

struct ActiveRequest {
  ActiveRequest(RequestId id, GenerateRequest asked, std::vector<int32_t> eos_ids,
                OutputText output)
      : request(std::move(asked)),
        sampler(request.sampling, std::move(eos_ids), request.prompt),
        text(std::move(output)),
        prompt_tokens(static_cast<int>(request.prompt.size())) {
    sequence.id = id;
    sequence.tokens = std::move(request.prompt);
    result.id = id;
    result.seed = sampler.seed();
    result.stats.prompt_tokens = prompt_tokens;
  }

  // Tokens whose K/V is still to be computed before the root can be verified.
  int prompt_left() const { return prompt_end() - sequence.committed_len - sequence.tail_len; }
  // Tokens before the root.
  int prompt_end() const { return static_cast<int>(sequence.tokens.size()) - 1; }
  // New tokens so far, provisional ones included.
  int num_generated() const { return static_cast<int>(sequence.tokens.size()) - prompt_tokens; }
  int tokens_left() const { return request.sampling.max_tokens - num_generated(); }
  bool finished() const { return result.finish != FinishReason::kNone; }

  GenerateRequest request;  // its prompt has moved to the sequence
  Sequence sequence;        // owns the tokens: the prompt, then what was generated
  Sampler sampler;          // has observed the tokens that have left the engine
  OutputText text;
  int prompt_tokens;
  GenerateResult result;
  // Seconds since the arrival, -1: not yet.
  double scheduled_at = -1;
  double first_token_at = -1;
  double last_token_at = -1;
  size_t delivered = 0;        // tokens of the result that have left the engine
  bool counted = false;        // its prompt is in the metrics
  bool started = false;        // rows of its own are computed; before, it has known blocks only
  bool drafter_knows = false;  // Drafter::Begin was called and succeeded
  bool drafted_last = false;   // the drafter was asked for the last step
  bool plain_next = false;     // a commit failed: the next tree is [root]
  PartialState partial;
  std::optional<VerifiedTree> verified;  // the last step's, if the request is watched
  // The next step's tree, its root being the sequence's root: what a remote client drafted, or what
  // chunked verification has left of a proposal. None: the drafter is asked.
  std::optional<TokenTree> next_drafts;
  std::optional<AcceptMode> accept;  // none: the step's
};

}  // namespace talon

#endif  // TALON_ENGINE_ACTIVE_REQUEST_H_
