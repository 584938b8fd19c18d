// The sampling parameters of a request. Plain data; the defaults are greedy decoding with
// everything else off.
#ifndef TALON_MODEL_SAMPLING_SAMPLING_PARAMS_H_
#define TALON_MODEL_SAMPLING_SAMPLING_PARAMS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/valid_values.h"

namespace talon {

class Matcher;

struct SamplingParams {
  static constexpr int kMaxLogProbs = 128;

  // What is valid, for requests and for settings.
  static constexpr Range kTemperatureRange{0, 100};
  static constexpr Range kTopKRange{.low = 0};
  static constexpr Range kProbabilityRange{0, 1};  // top_p and min_p
  static constexpr Range kRepetitionPenaltyRange{0.01, 100};
  static constexpr Range kPenaltyRange{-2, 2};  // frequency_penalty and presence_penalty
  static constexpr Range kLogitBiasRange{-100, 100};
  static constexpr Range kMaxTokensRange{.low = 1};  // range of settings; a request may have 0
  static constexpr Range kMinTokensRange{.low = 0};  // and at most max_tokens
  static constexpr Range kLogProbsRange{-1, kMaxLogProbs};

  float temperature = 0;         // 0 = greedy
  int top_k = 0;                 // 0 = off
  float top_p = 1;               // 1 = off
  float min_p = 0;               // 0 = off
  float repetition_penalty = 1;  // 1 = off; prompt and output tokens
  float frequency_penalty = 0;   // per occurrence in the output
  float presence_penalty = 0;    // once per token in the output

  std::vector<std::pair<int32_t, float>> logit_bias;  // ascending tokens, none twice
  std::vector<std::vector<int32_t>> bad_words;        // token sequences that must not appear
  std::vector<int32_t> stop_token_ids;                // end the request, besides EOS

  int min_tokens = 0;                // EOS and stop ids are masked before this many output tokens
  int max_tokens = 128;              // 0: the prompt is computed and nothing follows it
  bool ignore_eos = false;           // EOS does not end the request
  std::optional<uint64_t> seed;      // none = random, see Sampler::seed()
  int logprobs = -1;                 // -1 = none; 0 = the drawn token; n = and the n most likely
  uint32_t choice = 0;               // completion index for n > 1
  std::shared_ptr<Matcher> grammar;  // what the text must match; null: anything
  // Where in the sequence that text begins; none: after the prompt. A session's context has more.
  std::optional<size_t> answer_start;

  // InvalidArgument names the parameter, its value and the valid range.
  Status Validate(int vocab_size) const;
};

// How the hidden states of a prompt, after the final norm, become one vector of length 1.
enum class Pooling { kNone, kLast, kMean };

// What a caller wants of the prompt itself. Rows that are read are computed, not taken from the
// prefix index.
struct PromptOutputs {
  int logprobs = -1;                 // as SamplingParams::logprobs, by the raw logits
  Pooling pooling = Pooling::kNone;  // needs max_tokens 0
};

}  // namespace talon

#endif  // TALON_MODEL_SAMPLING_SAMPLING_PARAMS_H_
