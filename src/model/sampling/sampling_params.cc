#include "model/sampling/sampling_params.h"

namespace talon {
namespace {

Status CheckLogitBias(const SamplingParams& params, int vocab_size) {
  const Range tokens{0, vocab_size - 1.0};
  int32_t previous = -1;
  for (const auto& [token, bias] : params.logit_bias) {
    TALON_RETURN_IF_ERROR(CheckRange("logit_bias token", token, tokens));
    TALON_RETURN_IF_ERROR(CheckRange("logit_bias", bias, SamplingParams::kLogitBiasRange));
    if (token <= previous) {
      return InvalidArgument("logit_bias token: {} after {}, must be ascending, none twice", token,
                             previous);
    }
    previous = token;
  }
  return OkStatus();
}

Status CheckTokenLists(const SamplingParams& params, int vocab_size) {
  const Range tokens{0, vocab_size - 1.0};
  for (const int32_t token : params.stop_token_ids) {
    TALON_RETURN_IF_ERROR(CheckRange("stop_token_ids token", token, tokens));
  }
  for (size_t i = 0; i < params.bad_words.size(); ++i) {
    if (params.bad_words[i].empty()) {
      return InvalidArgument("bad_words entry {}: 0 tokens, must be 1 or more", i);
    }
    for (const int32_t token : params.bad_words[i]) {
      TALON_RETURN_IF_ERROR(CheckRange("bad_words token", token, tokens));
    }
  }
  return OkStatus();
}

Status CheckCounts(const SamplingParams& params) {
  using P = SamplingParams;
  constexpr Range kChoiceRange{0, (1u << 24) - 1};  // the generator's counter has 24 bits for it
  const Range min_tokens{P::kMinTokensRange.low, static_cast<double>(params.max_tokens)};
  TALON_RETURN_IF_ERROR(CheckRange("top_k", params.top_k, P::kTopKRange));
  constexpr Range kMaxTokensRange{.low = 0};  // 0: the prompt only
  TALON_RETURN_IF_ERROR(CheckRange("max_tokens", params.max_tokens, kMaxTokensRange));
  TALON_RETURN_IF_ERROR(CheckRange("min_tokens", params.min_tokens, min_tokens));
  TALON_RETURN_IF_ERROR(CheckRange("logprobs", params.logprobs, P::kLogProbsRange));
  return CheckRange("choice", params.choice, kChoiceRange);
}

}  // namespace

Status SamplingParams::Validate(int vocab_size) const {
  TALON_RETURN_IF_ERROR(CheckRange("temperature", temperature, kTemperatureRange));
  TALON_RETURN_IF_ERROR(CheckRange("top_p", top_p, kProbabilityRange));
  TALON_RETURN_IF_ERROR(CheckRange("min_p", min_p, kProbabilityRange));
  TALON_RETURN_IF_ERROR(
      CheckRange("repetition_penalty", repetition_penalty, kRepetitionPenaltyRange));
  TALON_RETURN_IF_ERROR(CheckRange("frequency_penalty", frequency_penalty, kPenaltyRange));
  TALON_RETURN_IF_ERROR(CheckRange("presence_penalty", presence_penalty, kPenaltyRange));
  TALON_RETURN_IF_ERROR(CheckCounts(*this));
  TALON_RETURN_IF_ERROR(CheckLogitBias(*this, vocab_size));
  return CheckTokenLists(*this, vocab_size);
}

}  // namespace talon
