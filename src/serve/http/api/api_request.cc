#include "serve/http/api/api_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/json.h"
#include "serve/http/api/chat_messages.h"
#include "serve/http/api/json_reader.h"
#include "text/stop_strings.h"

namespace talon {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxLogitBiases = 1024;

bool IsTokenList(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_number();
}

// Ids are checked against the vocabulary by the engine.
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

void AddPrompt(const Json& value, JsonReader* body, ApiRequest* request) {
  if (value.is_string()) {
    request->prompts.emplace_back(value.get<std::string>());
  } else if (IsTokenList(value)) {
    std::vector<int32_t> tokens;
    if (ReadTokens(value, "prompt", body, &tokens))
      request->prompts.emplace_back(std::move(tokens));
  } else {
    body->Fail("prompt", Shown(value) + ", must be a string or a list of token ids");
  }
}

void ReadPrompts(JsonReader* body, ApiRequest* request) {
  const Json* prompt = body->Find("prompt");
  if (prompt == nullptr) return body->Fail("prompt", "missing");
  if (!prompt->is_array() || IsTokenList(*prompt)) return AddPrompt(*prompt, body, request);
  if (prompt->empty()) return body->Fail("prompt", "an empty list");
  if (prompt->size() > ApiRequest::kMaxPrompts) {
    return body->Fail("prompt",
                      fmt::format("{} prompts, limit {}", prompt->size(), ApiRequest::kMaxPrompts));
  }
  for (const Json& each : *prompt) AddPrompt(each, body, request);
}

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

void AddStop(const Json& value, JsonReader* body, ApiRequest* request) {
  if (!value.is_string()) return body->Fail("stop", Shown(value) + ", must be a string");
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty()) return body->Fail("stop", "an empty string");
  if (text.size() > StopMatcher::kMaxStopBytes) {
    return body->Fail("stop", fmt::format("a string of {} bytes, limit {}", text.size(),
                                          StopMatcher::kMaxStopBytes));
  }
  request->stop.push_back(text);
}

void ReadStop(JsonReader* body, ApiRequest* request) {
  const Json* stop = body->Find("stop");
  if (stop == nullptr) return;
  if (!stop->is_array()) return AddStop(*stop, body, request);
  if (stop->size() > ApiRequest::kMaxStops) {
    return body->Fail("stop",
                      fmt::format("{} strings, limit {}", stop->size(), ApiRequest::kMaxStops));
  }
  for (const Json& each : *stop) AddStop(each, body, request);
}

void ReadMaxTokens(JsonReader* body, ApiRequest* request) {
  const bool chat = request->endpoint == Endpoint::kChat;
  SamplingParams& sampling = request->sampling;
  sampling.max_tokens = chat ? kMaxInt : 16;  // OpenAI's defaults: a chat may use all the context
  request->max_tokens_given = body->Has("max_tokens") || body->Has("max_completion_tokens");
  body->Read("max_tokens", 1, kMaxInt, &sampling.max_tokens);
  body->Read("max_completion_tokens", 1, kMaxInt, &sampling.max_tokens);
  body->Read("min_tokens", 0, kMaxInt, &sampling.min_tokens);
  if (sampling.min_tokens > sampling.max_tokens) {
    body->Fail("min_tokens", fmt::format("{}, must be at most max_tokens {}", sampling.min_tokens,
                                         sampling.max_tokens));
  }
}

void ReadLogprobs(JsonReader* body, ApiRequest* request) {
  int* logprobs = &request->sampling.logprobs;
  if (request->endpoint == Endpoint::kCompletions) {
    return body->Read("logprobs", 0, ApiRequest::kMaxTopLogprobs, logprobs);
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
  sampling.temperature = 1;  // OpenAI's default; `talon run` has 0
  body->Read("temperature", 0.0, 100.0, &sampling.temperature);
  body->Read("top_p", 0.0, 1.0, &sampling.top_p);
  body->Read("min_p", 0.0, 1.0, &sampling.min_p);
  body->Read("top_k", -1, kMaxInt, &sampling.top_k);
  sampling.top_k = std::max(sampling.top_k, 0);  // some clients say -1 for off
  body->Read("frequency_penalty", -2.0, 2.0, &sampling.frequency_penalty);
  body->Read("presence_penalty", -2.0, 2.0, &sampling.presence_penalty);
  body->Read("repetition_penalty", 0.01, 100.0, &sampling.repetition_penalty);
  body->Read("ignore_eos", &sampling.ignore_eos);
  if (body->Has("seed")) {
    int64_t seed = 0;
    body->Read("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
               &seed);
    sampling.seed = static_cast<uint64_t>(seed);
  }
  if (const Json* ids = body->Find("stop_token_ids")) {
    if (!ids->is_array() || ids->size() > ApiRequest::kMaxStops) {
      return body->Fail("stop_token_ids", fmt::format("{}, must be a list of at most {} token ids",
                                                      Shown(*ids), ApiRequest::kMaxStops));
    }
    ReadTokens(*ids, "stop_token_ids", body, &sampling.stop_token_ids);
  }
  ReadLogitBias(body, &sampling);
}

void ReadStreaming(JsonReader* body, ApiRequest* request) {
  body->Read("stream", &request->stream);
  const Json* options = body->Find("stream_options");
  if (options == nullptr) return;
  JsonReader reader(*options, "stream_options");
  reader.Read("include_usage", &request->include_usage);
  reader.Ignore({"include_obfuscation"});
  reader.RefuseUnknown();
  if (reader.failed()) return body->Fail(*reader.error());
  if (!request->stream) body->Fail("stream_options", "needs stream: true");
}

void ReadSpeculative(const ApiNames& names, JsonReader* body, ApiRequest* request) {
  const Json* options = body->Find("speculative");
  if (options == nullptr) return;
  JsonReader reader(*options, "speculative");
  std::string algorithm;
  bool off = false;
  reader.Read("algorithm", &algorithm);
  reader.Read("nodes", 1, 256, &request->max_draft_nodes);
  reader.Read("off", &off);
  reader.Read("trace", &request->trace);
  std::transform(algorithm.begin(), algorithm.end(), algorithm.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  if (!algorithm.empty() && algorithm != "NONE" && algorithm != names.drafter) {
    reader.Fail("algorithm", fmt::format("{}, this server has {} and NONE", Shown(Json(algorithm)),
                                         names.drafter));
  }
  reader.RefuseUnknown();
  if (reader.failed()) return body->Fail(*reader.error());
  request->speculate = !off && algorithm != "NONE";
}

// Parameters of OpenAI's API that this server does not support. Those that cannot change the text
// are ignored.
void ReadForeign(JsonReader* body, const ApiRequest& request) {
  body->Ignore({"metadata", "parallel_tool_calls", "prediction", "prompt_cache_key",
                "prompt_cache_retention", "safety_identifier", "service_tier", "store", "user"});
  body->Refuse("audio", nullptr);
  body->Refuse("best_of", request.n);
  body->Refuse("echo", false);
  body->Refuse("function_call", "none");
  body->Refuse("functions", Json::array());
  body->Refuse("modalities", Json::array({"text"}));
  body->Refuse("reasoning_effort", "none");
  body->Refuse("response_format", {{"type", "text"}});
  body->Refuse("suffix", "");
  body->Refuse("tool_choice", "none");
  body->Refuse("tools", Json::array());
  body->Refuse("verbosity", "medium");
  body->Refuse("web_search_options", nullptr);
}

void ReadInput(JsonReader* body, ApiRequest* request) {
  if (request->endpoint == Endpoint::kCompletions) return ReadPrompts(body, request);
  if (!body->Has("messages")) return body->Fail("messages", "missing");
  ReadChatInput(body, &request->chat);
}

}  // namespace

std::optional<ApiError> ParseApiRequest(std::string_view text, Endpoint endpoint,
                                        const ApiNames& names, ApiRequest* request) {
  auto json = JsonBody::Parse(text);
  if (!json.ok()) return ErrorFromStatus(json.status());
  JsonReader body(&*json);
  *request = {.endpoint = endpoint};
  body.Read("model", &request->model);
  ReadInput(&body, request);
  body.Read("n", 1, ApiRequest::kMaxChoices, &request->n);
  ReadMaxTokens(&body, request);
  ReadSampling(&body, request);
  ReadLogprobs(&body, request);
  ReadStop(&body, request);
  ReadStreaming(&body, request);
  ReadSpeculative(names, &body, request);
  ReadForeign(&body, *request);
  const size_t streams = static_cast<size_t>(request->n) * request->prompts.size();
  if (streams > ApiRequest::kMaxStreams) {
    body.Fail("n", fmt::format("{} for {} prompts, limit {} in all", request->n,
                               request->prompts.size(), ApiRequest::kMaxStreams));
  }
  body.RefuseUnknown();
  return body.error();
}

std::optional<ApiError> ParseTokenizeRequest(std::string_view text, TokenizeRequest* request) {
  auto json = JsonBody::Parse(text);
  if (!json.ok()) return ErrorFromStatus(json.status());
  JsonReader body(&*json);
  *request = {};
  body.Ignore({"model"});
  body.Read("prompt", &request->prompt);
  if (body.Has("messages")) ReadChatInput(&body, &request->chat.emplace());
  if (body.Has("prompt") == body.Has("messages")) {
    body.Fail("prompt", "give either prompt or messages");
  }
  body.Read("add_special_tokens", &request->add_special_tokens);
  request->parse_special = !request->chat;
  body.Read("parse_special", &request->parse_special);
  body.RefuseUnknown();
  return body.error();
}

std::optional<ApiError> ParseDetokenizeRequest(std::string_view text, DetokenizeRequest* request) {
  auto json = JsonBody::Parse(text);
  if (!json.ok()) return ErrorFromStatus(json.status());
  JsonReader body(&*json);
  *request = {};
  body.Ignore({"model"});
  const Json* tokens = body.Find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    body.Fail("tokens", "must be a list of token ids");
  } else {
    ReadTokens(*tokens, "tokens", &body, &request->tokens);
  }
  body.Read("skip_special_tokens", &request->skip_special_tokens);
  body.RefuseUnknown();
  return body.error();
}

}  // namespace talon
