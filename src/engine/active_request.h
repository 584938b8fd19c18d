// A request while it runs: its sequence, its sampler, its text so far.
#ifndef TALON_ENGINE_ACTIVE_REQUEST_H_
#define TALON_ENGINE_ACTIVE_REQUEST_H_

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/output_text.h"
#include "engine/request.h"
#include "engine/step/partial_state.h"
#include "kv/kv_cache.h"
#include "model/sampling/sampler.h"
#include "spec/drafter.h"
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
    if (request.prompt_outputs.logprobs < 0) return;
    constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
    result.prompt.push_back({.token = sequence.tokens[0], .log_prob = kNone});
  }

  // Tokens whose K/V is still to be computed before the root can be verified.
  int prompt_left() const { return prompt_end() - sequence.committed_len - sequence.tail_len; }
  // Tokens before the root. A prompt that becomes a vector has no root: all its rows are computed.
  int prompt_end() const {
    const bool pooled = request.prompt_outputs.pooling != Pooling::kNone;
    return static_cast<int>(sequence.tokens.size()) - (pooled ? 0 : 1);
  }
  // Nothing follows the prompt.
  bool ends_with_prompt() const { return request.sampling.max_tokens == 0; }
  bool prompt_done() const { return ends_with_prompt() && prompt_left() <= 0; }
  // The first row of the prompt whose outputs are still to be read; those after it are too. The
  // last row scores a token that is not the prompt's.
  int next_read() const {
    const PromptOutputs& wanted = request.prompt_outputs;
    if (rows_read < prompt_tokens - 1 && wanted.logprobs >= 0) return rows_read;
    if (rows_read < prompt_tokens && wanted.pooling == Pooling::kMean) return rows_read;
    if (rows_read < prompt_tokens && wanted.pooling == Pooling::kLast) return prompt_tokens - 1;
    return std::numeric_limits<int>::max();
  }
  // Rows to read in a chunk of the next `tokens` prompt tokens.
  int reads_of(int tokens) const {
    return static_cast<int>(
        std::clamp<int64_t>(int64_t{sequence.committed_len} + tokens - next_read(), 0, tokens));
  }
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
  int rows_read = 0;           // rows of the prompt, for what the request wants of it
  std::vector<double> pooled;  // their sum, or the last one
  // Seconds since the arrival, -1: not yet.
  double scheduled_at = -1;
  double last_token_at = -1;
  uint32_t sources = DraftRequest::kAllSources;  // what may draft for it
  size_t delivered = 0;                          // tokens of the result that have left the engine
  bool counted = false;                          // its prompt is in the metrics
  bool started = false;        // rows of its own are computed; before, it has known blocks only
  bool drafter_knows = false;  // Drafter::Begin was called and succeeded
  bool drafted_last = false;   // the drafter was asked for the last step
  // Staging or a commit failed: the next step verifies [root] and writes it directly to its slot.
  bool plain_next = false;
  // Rows that its passes have staged, and those of them that were accepted.
  int64_t staged_rows = 0;
  int64_t accepted_rows = 0;
  PartialState partial;
  std::optional<VerifiedTree> verified;  // the last step's, if the request is watched
  // The next step's tree, its root being the sequence's root: what a remote client drafted, or what
  // chunked verification has left of a proposal. None: the drafter is asked.
  std::optional<TokenTree> next_drafts;
  std::optional<AcceptMode> accept;  // none: the step's
};

}  // namespace talon

#endif  // TALON_ENGINE_ACTIVE_REQUEST_H_
