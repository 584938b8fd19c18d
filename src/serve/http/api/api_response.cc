#include "serve/http/api/api_response.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "text/unicode.h"

namespace talon {
namespace {

Json FinishJson(const ChoiceJson& choice) {
  if (choice.finish == FinishReason::kNone) return nullptr;
  if (choice.finish == FinishReason::kStop && choice.has_calls) return "tool_calls";
  return FinishReasonName(choice.finish);
}

Json HeadJson(const AnswerHead& head, bool chunk) {
  const char* object = head.endpoint == Endpoint::kCompletions ? "text_completion"
                       : chunk                                 ? "chat.completion.chunk"
                                                               : "chat.completion";
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

Json Chunk(const AnswerHead& head, Json choices) {
  Json chunk = HeadJson(head, /*chunk=*/true);
  chunk["choices"] = std::move(choices);
  return chunk;
}

// What differs between whole answers and chunks is where a chat's text stands.
Json OneChoice(const AnswerHead& head, const ChoiceJson& choice, bool chunk) {
  Json out = {{"index", choice.index},
              {"logprobs", choice.logprobs},
              {"finish_reason", FinishJson(choice)}};
  if (head.endpoint == Endpoint::kCompletions) {
    out["text"] = choice.text;
    if (!choice.prompt_logprobs.is_null()) out["prompt_logprobs"] = choice.prompt_logprobs;
  } else if (!choice.chat.is_null()) {
    out[chunk ? "delta" : "message"] = choice.chat;
  } else if (!chunk) {
    out["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  } else {
    out["delta"] = Json::object();
    if (!choice.text.empty()) out["delta"]["content"] = choice.text;
  }
  return out;
}

Json BytesJson(const std::string& bytes) {
  Json out = Json::array();
  for (const char byte : bytes) out.push_back(static_cast<unsigned char>(byte));
  return out;
}

int64_t CountCharacters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

Json StatsJson(const RequestStats& stats) {
  Json tried = Json::array();
  Json accepted = Json::array();
  for (int d = 0; d < RequestStats::kMaxDepth && stats.tried_at_depth[d] > 0; ++d) {
    tried.push_back(stats.tried_at_depth[d]);
    accepted.push_back(stats.accepted_at_depth[d]);
  }
  return {{"tau", stats.tau()},
          {"passes", stats.passes},
          {"drafted", stats.drafted},
          {"accepted", stats.accepted},
          {"emitted", stats.emitted},
          {"decode_seconds", stats.decode_seconds},
          {"tried_at_depth", std::move(tried)},
          {"accepted_at_depth", std::move(accepted)}};
}

Json TreeJson(const VerifiedTree& tree, const Tokenizer* tokenizer) {
  Json texts = Json::array();
  for (const int32_t token : tree.tokens) texts.push_back(TokenText(tokenizer, token));
  return {{"tokens", tree.tokens},
          {"texts", std::move(texts)},
          {"parents", tree.parents},
          {"accepted", tree.path}};
}

}  // namespace

void Usage::AddPrompt(const RequestStats& stats) {
  prompt_tokens += stats.prompt_tokens;
  cached_tokens += stats.cached_tokens;
}

void Usage::AddChoice(const GenerateResult& result) {
  completion_tokens += static_cast<int64_t>(result.tokens.size());
  passes += result.stats.passes;
  emitted += result.stats.emitted;
  drafted += result.stats.drafted;
  accepted += result.stats.accepted;
}

Json Usage::ToJson() const {
  const double tau = passes == 0 ? 0 : static_cast<double>(emitted) / static_cast<double>(passes);
  return {
      {"prompt_tokens", prompt_tokens},
      {"completion_tokens", completion_tokens},
      {"total_tokens", prompt_tokens + completion_tokens},
      {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}},
      {"spec", {{"tau", tau}, {"drafted", drafted}, {"accepted", accepted}, {"passes", passes}}}};
}

Json WholeAnswer(const AnswerHead& head, std::span<const ChoiceJson> choices, const Usage& usage) {
  Json answer = HeadJson(head, /*chunk=*/false);
  answer["choices"] = Json::array();
  for (const ChoiceJson& choice : choices) {
    answer["choices"].push_back(OneChoice(head, choice, /*chunk=*/false));
  }
  answer["usage"] = usage.ToJson();
  const bool chat = head.endpoint == Endpoint::kChat;  // its choices have one prompt
  if (chat && !choices.empty() && !choices[0].prompt_logprobs.is_null()) {
    answer["prompt_logprobs"] = choices[0].prompt_logprobs;
  }
  return answer;
}

Json RoleChunk(const AnswerHead& head, int index) {
  Json choice = OneChoice(head, {.index = index}, /*chunk=*/true);
  choice["delta"] = {{"role", "assistant"}, {"content", ""}};
  return Chunk(head, Json::array({std::move(choice)}));
}

Json TextChunk(const AnswerHead& head, const ChoiceJson& choice) {
  return Chunk(head, Json::array({OneChoice(head, choice, /*chunk=*/true)}));
}

Json UsageChunk(const AnswerHead& head, const Usage& usage) {
  Json chunk = Chunk(head, Json::array());
  chunk["usage"] = usage.ToJson();
  return chunk;
}

std::optional<ApiError> ErrorOf(const GenerateResult& result) {
  switch (result.finish) {
    case FinishReason::kError: {
      ApiError error = ErrorFromStatus(result.error);
      // A step without memory is the server's failure, not one of a client that asks too often.
      if (result.error.code() == StatusCode::kResourceExhausted) error.status = 503;
      return error;
    }
    case FinishReason::kDeadEnd:
      return ApiError{.status = 400,
                      .message = "every token is forbidden, the answer cannot go on",
                      .code = FinishReasonName(result.finish)};
    case FinishReason::kCancelled:
      return ApiError{.status = 503, .message = "the request was cancelled", .code = "cancelled"};
    default:
      return std::nullopt;
  }
}

std::string TokenText(const Tokenizer* tokenizer, int32_t token) {
  if (tokenizer == nullptr) return fmt::format("token_id:{}", token);
  const std::string bytes = tokenizer->TokenBytes(token);
  if (!FindInvalidUtf8(bytes)) return bytes;
  std::string spelled = "bytes:";
  for (const char byte : bytes) {
    spelled += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return spelled;
}

TokenJsonWriter::TokenJsonWriter(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                                 bool keep_first_space)
    : tokenizer_(tokenizer) {
  if (tokenizer == nullptr) return;
  offset_decoder_.emplace(tokenizer, /*skip_special_tokens=*/true);
  offset_decoder_->ContinueAfter(prompt);
  if (keep_first_space) offset_decoder_->KeepFirstSpace();
  trace_decoder_ = offset_decoder_;
}

std::string TokenJsonWriter::Piece(std::optional<StreamDecoder>* decoder, int32_t token) const {
  return *decoder ? (*decoder)->Push(token) : TokenText(tokenizer_, token);
}

Json TokenJsonWriter::Logprobs(Endpoint endpoint, std::span<const EmittedToken> tokens) {
  return endpoint == Endpoint::kChat ? ChatLogprobs(tokens) : CompletionLogprobs(tokens);
}

Json TokenJsonWriter::CompletionLogprobs(std::span<const EmittedToken> tokens) {
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const EmittedToken& token : tokens) {
    const bool scored = !std::isnan(token.log_prob);  // all but the first of a prompt
    Json top = Json::object();
    for (const TopLogProb& each : token.top) {
      top[TokenText(tokenizer_, each.token)] = each.log_prob;
    }
    out["tokens"].push_back(TokenText(tokenizer_, token.token));
    out["token_logprobs"].push_back(scored ? Json(token.log_prob) : Json(nullptr));
    out["top_logprobs"].push_back(scored ? std::move(top) : Json(nullptr));
    out["text_offset"].push_back(offset_);
    offset_ += CountCharacters(Piece(&offset_decoder_, token.token));
  }
  return out;
}

Json TokenJsonWriter::ChatLogprobs(std::span<const EmittedToken> tokens) const {
  const auto entry = [this](int32_t token, float log_prob) {
    const std::string bytes = tokenizer_ == nullptr ? "" : tokenizer_->TokenBytes(token);
    return Json{{"token", TokenText(tokenizer_, token)},
                {"logprob", log_prob},
                {"bytes", BytesJson(bytes)}};
  };
  Json content = Json::array();
  for (const EmittedToken& token : tokens) {
    Json item = entry(token.token, token.log_prob);
    item["top_logprobs"] = Json::array();
    for (const TopLogProb& each : token.top) {
      item["top_logprobs"].push_back(entry(each.token, each.log_prob));
    }
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json TokenJsonWriter::Trace(const RequestUpdate& update) {
  Json tokens = Json::array();
  for (const EmittedToken& token : update.tokens) {
    tokens.push_back({{"id", token.token},
                      {"text", Piece(&trace_decoder_, token.token)},
                      {"drafted", token.drafted}});
  }
  Json out = {{"tokens", std::move(tokens)}};
  if (update.tree) out["tree"] = TreeJson(*update.tree, tokenizer_);
  if (update.stats) out["stats"] = StatsJson(*update.stats);
  return out;
}

}  // namespace talon
