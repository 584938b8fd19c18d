#include "model/sampling/sampling_params.h"

#include <limits>

namespace talon {
namespace {

// Written so that NaN is out of every range.
template <typename T>
Status CheckRange(const char* name, T value, T low, T high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument("{} {}: want {} .. {}", name, value, low, high);
}

Status CheckToken(const char* name, int32_t token, int vocab_size) {
  if (token >= 0 && token < vocab_size) return OkStatus();
  return InvalidArgument("{} token {}: want 0 .. {}", name, token, vocab_size - 1);
}

Status CheckLogitBias(const SamplingParams& params, int vocab_size) {
  int32_t previous = -1;
  for (const auto& [token, bias] : params.logit_bias) {
    TALON_RETURN_IF_ERROR(CheckToken("logit_bias", token, vocab_size));
    TALON_RETURN_IF_ERROR(CheckRange("logit_bias", bias, -100.0f, 100.0f));
    if (token <= previous) {
      return InvalidArgument("logit_bias token {} after {}: want ascending tokens, none twice",
                             token, previous);
    }
    previous = token;
  }
  return OkStatus();
}

Status CheckTokenLists(const SamplingParams& params, int vocab_size) {
  for (const int32_t token : params.stop_token_ids) {
    TALON_RETURN_IF_ERROR(CheckToken("stop_token_ids", token, vocab_size));
  }
  for (size_t i = 0; i < params.bad_words.size(); ++i) {
    if (params.bad_words[i].empty()) {
      return InvalidArgument("bad_words entry {} has 0 tokens: want at least 1", i);
    }
    for (const int32_t token : params.bad_words[i]) {
      TALON_RETURN_IF_ERROR(CheckToken("bad_words", token, vocab_size));
    }
  }
  return OkStatus();
}

Status CheckCounts(const SamplingParams& params) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  constexpr uint32_t kMaxChoice = (1u << 24) - 1;  // the generator's counter has 24 bits for it
  TALON_RETURN_IF_ERROR(CheckRange("top_k", params.top_k, 0, kMaxInt));
  TALON_RETURN_IF_ERROR(CheckRange("max_tokens", params.max_tokens, 1, kMaxInt));
  TALON_RETURN_IF_ERROR(CheckRange("min_tokens", params.min_tokens, 0, params.max_tokens));
  TALON_RETURN_IF_ERROR(CheckRange("logprobs", params.logprobs, -1, SamplingParams::kMaxLogProbs));
  return CheckRange("choice", params.choice, 0u, kMaxChoice);
}

}  // namespace

Status SamplingParams::Validate(int vocab_size) const {
  TALON_RETURN_IF_ERROR(CheckRange("temperature", temperature, 0.0f, 100.0f));
  TALON_RETURN_IF_ERROR(CheckRange("top_p", top_p, 0.0f, 1.0f));
  TALON_RETURN_IF_ERROR(CheckRange("min_p", min_p, 0.0f, 1.0f));
  TALON_RETURN_IF_ERROR(CheckRange("repetition_penalty", repetition_penalty, 0.01f, 100.0f));
  TALON_RETURN_IF_ERROR(CheckRange("frequency_penalty", frequency_penalty, -2.0f, 2.0f));
  TALON_RETURN_IF_ERROR(CheckRange("presence_penalty", presence_penalty, -2.0f, 2.0f));
  TALON_RETURN_IF_ERROR(CheckCounts(*this));
  TALON_RETURN_IF_ERROR(CheckLogitBias(*this, vocab_size));
  return CheckTokenLists(*this, vocab_size);
}

}  // namespace talon
