// Requests to the HTTP API from hostile text: what is accepted must be within the limits that the
// engine is promised, and every error must have a message and a status.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "serve/http/api/api_keys.h"
#include "serve/http/api/api_request.h"

namespace {

using talon::ApiRequest;

// True if there is no error.
bool CheckError(const std::optional<talon::ApiError>& error) {
  if (!error) return true;
  TALON_CHECK(error->status >= 400 && error->status < 500 && !error->message.empty());
  (void)talon::JsonText(talon::ErrorJson(*error));
  return false;
}

void CheckRequest(std::string_view text, talon::Endpoint endpoint) {
  ApiRequest request;
  if (!CheckError(talon::ParseApiRequest(text, endpoint, {.drafter = "SUFFIX"}, &request))) return;
  TALON_CHECK(request.n >= 1 && request.n <= ApiRequest::kMaxChoices);
  TALON_CHECK(request.stop.size() <= ApiRequest::kMaxStops);
  const bool chat = endpoint == talon::Endpoint::kChat || endpoint == talon::Endpoint::kResponses;
  const bool vectors = endpoint == talon::Endpoint::kEmbeddings;
  TALON_CHECK(request.n * request.prompts.size() <=
              static_cast<size_t>(vectors ? ApiRequest::kMaxInputs : ApiRequest::kMaxStreams));
  TALON_CHECK(chat == request.prompts.empty());
  if (chat) TALON_CHECK(!request.chat.messages.empty());
  // Only what depends on the vocabulary may still be wrong.
  request.sampling.logit_bias.clear();
  request.sampling.stop_token_ids.clear();
  const talon::Status status = request.sampling.Validate(1);
  TALON_CHECK(status.ok(), "{}", status.message());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckRequest(text, talon::Endpoint::kCompletions);
  CheckRequest(text, talon::Endpoint::kChat);
  CheckRequest(text, talon::Endpoint::kEmbeddings);
  CheckRequest(text, talon::Endpoint::kResponses);
  talon::TokenizeRequest tokenize;
  CheckError(talon::ParseTokenizeRequest(text, {}, &tokenize));
  talon::DetokenizeRequest detokenize;
  CheckError(talon::ParseDetokenizeRequest(text, &detokenize));
  const auto keys = talon::ApiKeys::Parse(text, "fuzz");
  if (keys.ok()) (void)keys->Admits(text);
  return 0;
}
