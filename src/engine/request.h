// What a caller asks of the engine and what it gets back. Plain data.
#ifndef TALON_ENGINE_REQUEST_H_
#define TALON_ENGINE_REQUEST_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/valid_values.h"
#include "engine/output_text.h"
#include "model/sampling/sampler.h"
#include "model/sampling/sampling_params.h"
#include "spec/specpv/config.h"

namespace talon {

using RequestId = int64_t;

enum class FinishReason {
  kNone,
  kCancelled,
  kDeadEnd,  // every token was masked
  kError,
  kLength,   // max_tokens or the end of the context
  kStop,     // EOS, a stop id or a stop string
  kTimeout,  // it took too long, or a remote target did
};
const char* FinishReasonName(FinishReason reason);

struct EmittedToken {
  int32_t token = 0;
  bool drafted = false;  // proposed by the drafter and accepted; else the target's own (bonus)
  float log_prob = 0;    // filled if asked for
  std::vector<TopLogProb> top;
};

// A tree as it was verified, for requests that are watched.
struct VerifiedTree {
  std::vector<int32_t> tokens;   // node 0 is the root, the token before the drafts
  std::vector<int32_t> parents;  // -1 for the root
  std::vector<int32_t> path;     // accepted nodes, the root first
};

// Statistics of a request, over the target passes after its prompt.
struct RequestStats {
  static constexpr int kMaxDepth = 16;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens taken from the prefix index
  int64_t passes = 0;
  int64_t partial_passes = 0;  // passes over a partial view of the prefix
  int64_t emitted = 0;
  int64_t drafted = 0;   // nodes proposed, root excluded
  int64_t accepted = 0;  // drafts accepted, bonus excluded
  // [depth - 1]: passes whose tree reached this depth, and those accepted there.
  std::array<int64_t, kMaxDepth> tried_at_depth{};
  std::array<int64_t, kMaxDepth> accepted_at_depth{};
  double first_token_seconds = -1;  // since the arrival; -1: there is none
  double prompt_seconds = 0;        // until the last of its rows was computed
  double decode_seconds = 0;        // steps after the prompt
  double draft_seconds = 0;
  double verify_seconds = 0;
  int64_t plain_passes = 0;        // steps without drafting, one row a sequence
  double plain_seconds = 0;        // part of decode_seconds in these
  double partial_seconds = 0;      // part of decode_seconds in steps over a partial view
  int64_t prefix_tokens_read = 0;  // committed and provisional tokens whose K/V passes have read
  int64_t rows = 0;                // all rows of its passes
  bool lossy = false;
  // Tokens emitted per target pass, bonus included.
  double tau() const { return passes == 0 ? 0 : static_cast<double>(emitted) / passes; }
};

// What one step added to a request. `text` is complete UTF-8 and lags behind the tokens where a
// character or a possible stop string is unfinished.
struct RequestUpdate {
  RequestId id = 0;
  std::vector<EmittedToken> prompt;  // in the first update, if asked for (PromptOutputs::logprobs)
  std::vector<EmittedToken> tokens;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  // If the request is watched:
  std::optional<VerifiedTree> tree;
  std::optional<RequestStats> stats;  // so far
};

struct GenerateRequest {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  PromptOutputs prompt_outputs;
  std::vector<std::string> stop;  // stop strings: they cut the text, not the tokens
  TextOptions text;
  bool speculate = true;  // false: this request decodes plainly
  std::string drafter;    // one of the engine's, by name ("SUFFIX", "NONE"); "": all that it has
  static constexpr Range kDraftNodesRange{0, 256};
  int max_draft_nodes = 0;  // largest tree, root included; 0: as the engine has it
  SpecPvOverrides specpv;
  bool watched = false;  // updates carry the verified trees and the stats so far
  std::string label;     // its id in log lines; "" = the engine's own
  Stopwatch age;         // since its arrival
  // Called on the engine's thread after each step that added something. May be empty.
  std::function<void(const RequestUpdate&)> on_update;

  // `text` with all that a grammar matches, a space at the beginning too.
  TextOptions ShownText() const {
    TextOptions shown = text;
    if (sampling.grammar != nullptr) shown.keep_first_space = true;
    return shown;
  }
};

struct GenerateResult {
  RequestId id = 0;
  std::vector<EmittedToken> tokens;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  Status error;  // set if finish is kError
  // The prompt's tokens with their log-probs, if asked for; the first has none (NaN).
  std::vector<EmittedToken> prompt;
  std::vector<float> embedding;  // [hidden], if asked for (PromptOutputs::pooling)
  uint64_t seed = 0;
  RequestStats stats;

  std::vector<int32_t> TokenIds() const;
};

}  // namespace talon

#endif  // TALON_ENGINE_REQUEST_H_
