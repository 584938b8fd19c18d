#include "serve/http/api/api_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/json.h"
#include "serve/http/api/chat_messages.h"
#include "serve/http/api/foreign_parameters.h"
#include "serve/http/api/grammar_fields.h"
#include "serve/http/api/json_reader.h"
#include "serve/http/api/responses_input.h"
#include "serve/http/api/sampling_fields.h"
#include "serve/http/api/tool_fields.h"
#include "spec/drafter_list.h"

namespace talon {
namespace {

void AddPrompt(const Json& value, const std::string& key, JsonReader* body, ApiRequest* request) {
  if (value.is_string()) {
    request->prompts.emplace_back(value.get<std::string>());
  } else if (IsTokenList(value)) {
    std::vector<int32_t> tokens;
    if (ReadTokens(value, key, body, &tokens)) request->prompts.emplace_back(std::move(tokens));
  } else {
    body->Fail(key, Shown(value) + ", must be a string or a list of token ids");
  }
}

// `key` is "prompt", or "input" of embeddings.
void ReadPrompts(const std::string& key, JsonReader* body, ApiRequest* request) {
  const Json* prompt = body->Find(key);
  if (prompt == nullptr) return body->Fail(key, "missing");
  if (!prompt->is_array() || IsTokenList(*prompt)) return AddPrompt(*prompt, key, body, request);
  if (prompt->empty()) return body->Fail(key, "an empty list");
  const bool vectors = request->endpoint == Endpoint::kEmbeddings;
  const size_t most = vectors ? ApiRequest::kMaxInputs : ApiRequest::kMaxPrompts;
  if (prompt->size() > most) {
    return body->Fail(key, fmt::format("{} prompts, limit {}", prompt->size(), most));
  }
  for (const Json& each : *prompt) AddPrompt(each, key, body, request);
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

// What a request chooses of partial verification.
void ReadSpecPv(const Json& value, SpecPvOverrides* specpv, std::optional<ApiError>* error) {
  JsonReader reader(value, "speculative.specpv");
  std::string mode;
  reader.Read("mode", &mode);
  constexpr int64_t kMostTokens = 1 << 24;
  int budget_tokens = -1;
  float error_target = -1;
  reader.Read("budget_tokens", 0, kMostTokens, &budget_tokens);
  reader.Read("error_target", 0.0, 1.0, &error_target);
  if (budget_tokens >= 0) specpv->budget_tokens = budget_tokens;
  if (error_target >= 0) specpv->error_target = error_target;
  specpv->off = mode == "off";
  if (!mode.empty() && !specpv->off) {
    const auto parsed = ParseSpecPvMode(mode);
    if (parsed.ok()) specpv->mode = *parsed;
    if (!parsed.ok()) reader.Fail("mode", Shown(Json(mode)) + ", must be exact, fast or off");
  }
  reader.RefuseUnknown();
  *error = reader.error();
}

// The drafters that a request asks for must be among the server's.
void CheckAlgorithm(const std::string& algorithm, const std::string& served, JsonReader* reader) {
  if (algorithm.empty()) return;
  const auto wanted = DrafterList::Parse(algorithm);
  const auto known = DrafterList::Parse(served);
  const bool has_all =
      wanted.ok() && known.ok() &&
      std::ranges::all_of(wanted->kinds(), [&known](DrafterKind kind) { return known->Has(kind); });
  if (has_all) return;
  reader->Fail("algorithm",
               fmt::format("{}, this server has {} and NONE", Shown(Json(algorithm)), served));
}

void ReadSpeculative(const ApiDefaults& defaults, JsonReader* body, ApiRequest* request) {
  const Json* options = body->Find("speculative");
  if (options == nullptr) return;
  JsonReader reader(*options, "speculative");
  bool off = false;
  reader.Read("algorithm", &request->drafter);
  reader.Read("nodes", 1, 256, &request->max_draft_nodes);
  reader.Read("off", &off);
  reader.Read("trace", &request->trace);
  CheckAlgorithm(request->drafter, defaults.drafter, &reader);
  std::optional<ApiError> error;
  if (const Json* specpv = reader.Find("specpv")) ReadSpecPv(*specpv, &request->specpv, &error);
  if (error) reader.Fail(*error);
  reader.RefuseUnknown();
  if (reader.failed()) return body->Fail(*reader.error());
  request->speculate = !off;
}

void ReadText(JsonReader* body, ApiRequest* request) {
  body->Read("skip_special_tokens", &request->skip_special_tokens);
  body->Read("include_stop_str_in_output", &request->include_stop);
  body->Read("no_stop_trim", &request->include_stop);  // SGLang's name
}

void ReadEffort(JsonReader* body, ChatInput* chat) {
  std::string effort;
  body->Read("reasoning_effort", &effort);
  if (!effort.empty()) chat->variables["reasoning_effort"] = effort;
}

// Beside calls of tools an answer can have JSON but no other grammar.
void CheckGrammar(JsonReader* body, ApiRequest* request) {
  using Kind = GrammarSpec::Kind;
  const Kind kind = request->grammar.kind;
  if (kind == Kind::kNone || kind == Kind::kJsonObject || kind == Kind::kJsonSchema) return;
  if (!request->tools.active()) return;
  body->Fail("tools", "a regex, grammar or choice is not supported here, only a JSON schema",
             "unsupported_parameter");
}

void ReadCompletion(const ApiDefaults& defaults, JsonReader* body, ApiRequest* request) {
  const bool chat = request->endpoint == Endpoint::kChat;
  if (!chat) {
    ReadPrompts("prompt", body, request);
    body->Read("add_special_tokens", &request->add_special_tokens);
  } else if (body->Has("messages")) {
    ReadChatInput(body, &request->chat);
  } else {
    body->Fail("messages", "missing");
  }
  body->Read("n", 1, ApiRequest::kMaxChoices, &request->n);
  ReadPromptOutputs(body, request);
  ReadMaxTokens(body, request);
  ReadSampling(body, request);
  ReadLogprobs(body, request);
  ReadTexts("stop", body, &request->stop);
  ReadTexts("bad_words", body, &request->bad_words);
  ReadText(body, request);
  ReadGrammar(body, &request->grammar, &request->grammar_param);
  if (chat) {
    if (defaults.takes_reasoning_effort) ReadEffort(body, &request->chat);
    ReadTools(defaults, body, request);
    CheckGrammar(body, request);
  }
  ReadStreaming(body, request);
  if (request->stream && request->prompt_logprobs) {
    body->Fail("prompt_logprobs", "not with stream: true");
  }
  ReadSpeculative(defaults, body, request);
  body->Refuse("best_of", request->n);
  const size_t streams = static_cast<size_t>(request->n) * request->prompts.size();
  if (streams > ApiRequest::kMaxStreams) {
    body->Fail("n", fmt::format("{} for {} prompts, limit {} in all", request->n,
                                request->prompts.size(), ApiRequest::kMaxStreams));
  }
}

void ReadEmbeddings(JsonReader* body, ApiRequest* request) {
  ReadPrompts("input", body, request);
  body->Read("add_special_tokens", &request->add_special_tokens);
  std::string format = "float", pooling = "last";
  body->Read("encoding_format", &format);
  body->Read("pooling", &pooling);
  if (format != "float" && format != "base64") {
    body->Fail("encoding_format", Shown(Json(format)) + ", must be float or base64");
  }
  if (pooling != "last" && pooling != "mean") {
    body->Fail("pooling", Shown(Json(pooling)) + ", must be last or mean");
  }
  request->base64 = format == "base64";
  request->sampling.max_tokens = 0;
  request->prompt_outputs.pooling = pooling == "mean" ? Pooling::kMean : Pooling::kLast;
}

void ReadTextForm(JsonReader* body, ApiRequest* request) {
  const Json* form = body->Find("text");
  if (form == nullptr) return;
  JsonReader reader(*form, "text");
  reader.Ignore({"format"});  // read below, in its own order
  std::string verbosity = "medium";
  reader.Read("verbosity", &verbosity);
  if (verbosity != "medium") request->ignored.emplace_back("text.verbosity");
  reader.RefuseUnknown();
  if (reader.failed()) body->Fail(*reader.error());
  ReadTextFormat(body, &request->grammar, &request->grammar_param);
}

// {"effort": "low"}; there are no summaries.
void ReadReasoning(JsonReader* body, ChatInput* chat) {
  const Json* reasoning = body->Find("reasoning");
  if (reasoning == nullptr) return;
  JsonReader reader(*reasoning, "reasoning");
  std::string effort;
  reader.Read("effort", &effort);
  reader.Ignore({"summary", "generate_summary"});
  reader.RefuseUnknown();
  if (reader.failed()) return body->Fail(*reader.error());
  if (!effort.empty()) chat->variables["reasoning_effort"] = effort;
}

// Instructions and input as messages; what an answer repeats of the request is kept.
void ReadResponses(const ApiDefaults& defaults, JsonReader* body, ApiRequest* request) {
  ReadResponsesInput(body, &request->chat);
  SamplingParams& sampling = request->sampling;
  sampling.max_tokens = std::numeric_limits<int>::max();
  request->max_tokens_given = body->Has("max_output_tokens");
  body->Read("max_output_tokens", 1, sampling.max_tokens, &sampling.max_tokens);
  ReadSampling(body, request);
  ReadTexts("stop", body, &request->stop);
  ReadTexts("bad_words", body, &request->bad_words);
  ReadText(body, request);
  ReadTextForm(body, request);
  if (defaults.takes_reasoning_effort) ReadReasoning(body, &request->chat);
  ReadTools(defaults, body, request);
  body->Read("stream", &request->stream);
  body->Ignore({"stream_options"});  // obfuscation, which is never added
  ReadSpeculative(defaults, body, request);
  for (const char* key : {"instructions", "max_output_tokens", "metadata"}) {
    const Json* value = body->Find(key);
    request->repeated[key] = value == nullptr ? Json(nullptr) : *value;
  }
  for (const char* key : {"parallel_tool_calls", "tool_choice", "tools"}) {
    if (const Json* value = body->Find(key)) request->repeated[key] = *value;
  }
  const Json* text = body->Find("text");
  if (text != nullptr && text->is_object() && text->contains("format")) {
    request->repeated["text"] = {{"format", (*text)["format"]}};
  }
}

}  // namespace

std::optional<ApiError> ParseApiRequest(std::string_view text, Endpoint endpoint,
                                        const ApiDefaults& defaults, ApiRequest* request) {
  auto json = JsonBody::Parse(text);
  if (!json.ok()) return ErrorFromStatus(json.status());
  JsonReader body(&*json);
  *request = {.endpoint = endpoint, .sampling = defaults.sampling};
  body.Read("model", &request->model);
  if (endpoint == Endpoint::kEmbeddings) {
    ReadEmbeddings(&body, request);
  } else if (endpoint == Endpoint::kResponses) {
    ReadResponses(defaults, &body, request);
  } else {
    ReadCompletion(defaults, &body, request);
  }
  ReadForeign(&body, &request->ignored);
  body.RefuseUnknown();
  return body.error();
}

std::optional<ApiError> ParseTokenizeRequest(std::string_view text, const ApiDefaults& defaults,
                                             TokenizeRequest* request) {
  auto json = JsonBody::Parse(text);
  if (!json.ok()) return ErrorFromStatus(json.status());
  JsonReader body(&*json);
  *request = {};
  body.Ignore({"model"});
  body.Read("prompt", &request->prompt);
  if (body.Has("messages")) {
    ApiRequest chat{.endpoint = Endpoint::kChat};
    ReadChatInput(&body, &chat.chat);
    ReadTools(defaults, &body, &chat);
    request->chat = std::move(chat.chat);
  }
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
