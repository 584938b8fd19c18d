// What draft and target workers are asked and what they answer. Plain data, whatever carries it.
#ifndef TALON_ENGINE_REMOTE_CALLS_H_
#define TALON_ENGINE_REMOTE_CALLS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grammar/grammar_spec.h"
#include "spec/token_tree.h"

namespace talon {

// A tree without its root. Parents come before children; -1 is a root of the forest, that is a
// child of the token before the drafts.
struct DraftForest {
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;
  std::vector<float> probs;       // P(node | parent accepted), as the drafter sees it
  std::vector<DraftProbs> draws;  // as many, or none: what each node was drawn from
  int size() const { return static_cast<int>(tokens.size()); }
  bool empty() const { return tokens.empty(); }
};

struct PingAnswer {
  std::string status;       // "SERVING", "LOADING"
  std::string worker_type;  // "target", "draft"
  std::string model_name;
  int vocab_size = 0;
};

struct VerifyCall {
  std::string request_id;
  std::string session_id;       // empty: nothing is kept
  std::vector<int32_t> prompt;  // the whole context, or
  std::vector<int32_t> delta;   // what follows the session's tokens
  int expected_prefix = 0;      // the session's length as the client knows it; 0: not checked
  uint64_t prefix_hash = 0;     // hash of these tokens; 0: not checked
  DraftForest drafts;
  float temperature = 0;
  int top_k = 0;
  float top_p = 1;
  float min_p = 0;
  std::optional<uint64_t> seed;  // none: the session's own, which is random
  std::vector<int32_t> stop_token_ids;
  bool rejection = false;        // accept by the drafts' own probabilities
  bool decode_on_empty = false;  // no drafts: one token of plain decoding
  GrammarSpec grammar;           // what the answer must match
  int answer_start = 0;          // with a grammar: where in the context the answer begins
};

struct VerifyAnswer {
  std::string request_id;
  std::string session_id;
  std::vector<int32_t> accepted;      // drafts, in order
  std::optional<int32_t> correction;  // the target's own token after them
  bool cache_hit = false;
  int prefix_length = 0;  // length of the session after the call, without the correction
  bool finished = false;  // the last token is a stop token
  double model_seconds = 0;
  int rows = 0;  // rows of the target's passes
};

struct DraftCall {
  std::string request_id;
  std::string session_id;
  std::vector<int32_t> context;      // the drafts follow its last token
  int max_length = 0;                // tokens of a path; 0: the worker's default
  int num_beams = 0;                 // children of the root; 0: the worker's default
  int max_nodes = 0;                 // 0: as many as length and beams give
  std::optional<float> temperature;  // none: the worker's default
  std::optional<uint64_t> seed;      // none: the worker draws one
  bool reset_cache = false;
};

struct DraftAnswer {
  std::string request_id;
  DraftForest drafts;
  double model_seconds = 0;
  int rows = 0;
};

}  // namespace talon

#endif  // TALON_ENGINE_REMOTE_CALLS_H_
