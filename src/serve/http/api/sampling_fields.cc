#include "serve/http/api/sampling_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/json.h"
#include "text/stop_strings.h"

namespace talon {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxLogitBiases = 1024;

void ReadLogitBias(JsonReader* body, SamplingParams* sampling) {
  const Json* biases = body->Find("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object()) return body->Fail("logit_bias", Shown(*biases) + ", must be an object");
  if (biases->size() > kMaxLogitBiases) {
    return body->Fail("logit_bias",
                      fmt::format("{} entries, limit {}", biases->size(), kMaxLogitBiases));
  }
  JsonReader entries(*biases, "logit_bias");
  for (const auto& [key, value] : biases->items()) {
    int32_t token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0) {
      return body->Fail("logit_bias", Shown(Json(key)) + ", must be a token id");
    }
    float bias = 0;
    entries.Read(key, -100.0, 100.0, &bias);
    if (entries.failed()) return body->Fail(*entries.error());
    sampling->logit_bias.emplace_back(token, bias);
  }
  std::sort(sampling->logit_bias.begin(), sampling->logit_bias.end());
}

void ReadMinTokens(JsonReader* body, ApiRequest* request) {
  SamplingParams& sampling = request->sampling;
  body->Read("min_tokens", 0, kMaxInt, &sampling.min_tokens);
  if (sampling.min_tokens > sampling.max_tokens) {
    body->Fail("min_tokens", fmt::format("{}, must be at most max_tokens {}", sampling.min_tokens,
                                         sampling.max_tokens));
  }
}

// llama.cpp's name of max_tokens; -1 is unlimited.
void ReadNPredict(int least, JsonReader* body, int* max_tokens) {
  const Json* value = body->Find("n_predict");
  if (value == nullptr) return;
  if (*value == -1) {
    *max_tokens = kMaxInt;
  } else {
    body->Read("n_predict", least, kMaxInt, max_tokens);
  }
}

}  // namespace

bool IsTokenList(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_number();
}

bool ReadTokens(const Json& value, const std::string& key, JsonReader* body,
                std::vector<int32_t>* tokens) {
  tokens->reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    const Json& id = value[i];
    const bool whole = id.is_number_unsigned() && id.get<uint64_t>() <= uint64_t{kMaxInt};
    if (!whole) {
      body->Fail(key, fmt::format("{} at {}, must be a token id", Shown(id), i));
      return false;
    }
    tokens->push_back(id.get<int32_t>());
  }
  return true;
}

void ReadTexts(const std::string& key, JsonReader* body, std::vector<std::string>* texts) {
  const Json* value = body->Find(key);
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > ApiRequest::kMaxStops) {
    return body->Fail(key, fmt::format("{} strings, limit {}", list.size(), ApiRequest::kMaxStops));
  }
  for (const Json& each : list) {
    if (!each.is_string()) return body->Fail(key, Shown(each) + ", must be a string");
    const auto& text = each.get_ref<const std::string&>();
    if (text.empty()) return body->Fail(key, "an empty string");
    if (text.size() > StopMatcher::kMaxStopBytes) {
      return body->Fail(key, fmt::format("a string of {} bytes, limit {}", text.size(),
                                         StopMatcher::kMaxStopBytes));
    }
    texts->push_back(text);
  }
}

void ReadMaxTokens(JsonReader* body, ApiRequest* request) {
  const bool may_run_on = request->endpoint == Endpoint::kChat;
  const bool of_prompt = request->echo || request->prompt_outputs.logprobs >= 0;
  SamplingParams& sampling = request->sampling;
  sampling.max_tokens = may_run_on ? kMaxInt : 16;  // OpenAI's defaults
  request->max_tokens_given =
      body->Has("max_tokens") || body->Has("max_completion_tokens") || body->Has("n_predict");
  const int least = of_prompt ? 0 : 1;
  ReadNPredict(least, body, &sampling.max_tokens);
  body->Read("max_tokens", least, kMaxInt, &sampling.max_tokens);
  body->Read("max_completion_tokens", 1, kMaxInt, &sampling.max_tokens);
  ReadMinTokens(body, request);
}

// OpenAI's `echo`, vLLM's `prompt_logprobs`.
void ReadPromptOutputs(JsonReader* body, ApiRequest* request) {
  int* logprobs = &request->prompt_outputs.logprobs;
  if (request->endpoint == Endpoint::kCompletions) body->Read("echo", &request->echo);
  body->Read("prompt_logprobs", -1, ApiRequest::kMaxTopLogprobs, logprobs);
  request->prompt_logprobs = *logprobs >= 0;
  if (request->prompt_logprobs && request->echo) {
    body->Fail("prompt_logprobs", "not beside echo, whose logprobs has them");
  }
}

void ReadLogprobs(JsonReader* body, ApiRequest* request) {
  int* logprobs = &request->sampling.logprobs;
  if (request->endpoint == Endpoint::kCompletions) {
    body->Read("logprobs", 0, ApiRequest::kMaxTopLogprobs, logprobs);
    if (request->echo) request->prompt_outputs.logprobs = *logprobs;
    return;
  }
  bool wanted = false;
  int top = 0;
  body->Read("logprobs", &wanted);
  body->Read("top_logprobs", 0, ApiRequest::kMaxTopLogprobs, &top);
  if (wanted) *logprobs = top;
  if (!wanted && top > 0) body->Fail("top_logprobs", "needs logprobs: true");
}

void ReadSampling(JsonReader* body, ApiRequest* request) {
  SamplingParams& sampling = request->sampling;
  body->Read("temperature", 0.0, 100.0, &sampling.temperature);
  body->Read("top_p", 0.0, 1.0, &sampling.top_p);
  body->Read("min_p", 0.0, 1.0, &sampling.min_p);
  body->Read("top_k", -1, kMaxInt, &sampling.top_k);
  sampling.top_k = std::max(sampling.top_k, 0);  // some clients say -1 for off
  body->Read("frequency_penalty", -2.0, 2.0, &sampling.frequency_penalty);
  body->Read("presence_penalty", -2.0, 2.0, &sampling.presence_penalty);
  body->Read("repeat_penalty", 0.01, 100.0, &sampling.repetition_penalty);  // llama.cpp's name
  body->Read("repetition_penalty", 0.01, 100.0, &sampling.repetition_penalty);
  body->Read("ignore_eos", &sampling.ignore_eos);
  int64_t seed = -1;  // random, as `talon run` has it
  body->Read("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
             &seed);
  if (seed != -1) sampling.seed = static_cast<uint64_t>(seed);
  if (const Json* ids = body->Find("stop_token_ids")) {
    if (!ids->is_array() || ids->size() > ApiRequest::kMaxStops) {
      return body->Fail("stop_token_ids", fmt::format("{}, must be a list of at most {} token ids",
                                                      Shown(*ids), ApiRequest::kMaxStops));
    }
    ReadTokens(*ids, "stop_token_ids", body, &sampling.stop_token_ids);
  }
  ReadLogitBias(body, &sampling);
}

}  // namespace talon
