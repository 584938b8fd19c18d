// The API's answers as JSON: whole ones, chunks of streams, usage, log-probs, and what speculation
// did.
#ifndef TALON_SERVE_HTTP_API_API_RESPONSE_H_
#define TALON_SERVE_HTTP_API_API_RESPONSE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/json.h"
#include "engine/request.h"
#include "serve/http/api/api_error.h"
#include "serve/http/api/api_request.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

// What all parts of one answer share.
struct AnswerHead {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

// Tokens and passes of all choices of a request.
struct Usage {
  int64_t prompt_tokens = 0;  // each prompt once, however many choices it has
  int64_t cached_tokens = 0;  // part of the prompt tokens: taken from the prefix cache
  int64_t completion_tokens = 0;
  int64_t passes = 0;
  int64_t emitted = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;

  void AddPrompt(const RequestStats& stats);
  void AddChoice(const GenerateResult& result);
  Json ToJson() const;
};

// One choice, or what a chunk adds to it.
struct ChoiceJson {
  int index = 0;
  std::string text;
  Json logprobs = nullptr;
  Json prompt_logprobs = nullptr;  // null: not asked for
  FinishReason finish = FinishReason::kNone;
  Json chat = nullptr;  // the "message" or "delta" of a chat, in the place of the text
  bool has_calls = false;
};

Json WholeAnswer(const AnswerHead& head, std::span<const ChoiceJson> choices, const Usage& usage);
// The first chunk of a chat's choice, with the role.
Json RoleChunk(const AnswerHead& head, int index);
Json TextChunk(const AnswerHead& head, const ChoiceJson& choice);
Json UsageChunk(const AnswerHead& head, const Usage& usage);

// The error that ended a choice, if one did.
std::optional<ApiError> ErrorOf(const GenerateResult& result);

// The text of a single token; bytes that are not valid UTF-8 are escaped: "bytes:\xe2\x80".
std::string TokenText(const Tokenizer* tokenizer, int32_t token);

// Writes the tokens of one choice as JSON: log-probs and the trace of a watched request. Without a
// tokenizer the texts are the ids.
class TokenJsonWriter {
 public:
  // The tokens go on after `prompt`, in a text that may keep its first space.
  TokenJsonWriter(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                  bool keep_first_space = false);

  // The endpoint's "logprobs" of these tokens, which follow those seen before.
  Json Logprobs(Endpoint endpoint, std::span<const EmittedToken> tokens);
  // The "talon" object of a watched update.
  Json Trace(const RequestUpdate& update);

 private:
  Json CompletionLogprobs(std::span<const EmittedToken> tokens);
  Json ChatLogprobs(std::span<const EmittedToken> tokens) const;
  std::string Piece(std::optional<StreamDecoder>* decoder, int32_t token) const;

  const Tokenizer* tokenizer_;
  std::optional<StreamDecoder> offset_decoder_;  // none: there is no tokenizer
  std::optional<StreamDecoder> trace_decoder_;
  int64_t offset_ = 0;  // characters of the text so far
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_API_RESPONSE_H_
