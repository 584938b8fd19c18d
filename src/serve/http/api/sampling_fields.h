// The members of a request that say how tokens are drawn and where they end.
#ifndef TALON_SERVE_HTTP_API_SAMPLING_FIELDS_H_
#define TALON_SERVE_HTTP_API_SAMPLING_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "serve/http/api/api_request.h"
#include "serve/http/api/json_reader.h"

namespace talon {

bool IsTokenList(const Json& value);
// A list of token ids; the engine checks them against the vocabulary. False: the error is the
// body's, at `key`.
bool ReadTokens(const Json& value, const std::string& key, JsonReader* body,
                std::vector<int32_t>* tokens);

// A text, or a list of them.
void ReadTexts(const std::string& key, JsonReader* body, std::vector<std::string>* texts);
void ReadPromptOutputs(JsonReader* body, ApiRequest* request);
// After ReadPromptOutputs: a prompt that is echoed may have nothing after it.
void ReadMaxTokens(JsonReader* body, ApiRequest* request);
void ReadLogprobs(JsonReader* body, ApiRequest* request);
// What is missing stays as it is.
void ReadSampling(JsonReader* body, ApiRequest* request);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_SAMPLING_FIELDS_H_
