// What each route answers, without HTTP around it.
#ifndef TALON_SERVE_HTTP_HANDLERS_H_
#define TALON_SERVE_HTTP_HANDLERS_H_

#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "serve/http/api/api_error.h"
#include "serve/http/serve_parts.h"

namespace talon {

// All fill *answer, or return the error. The first two answer with the text of JSON, because a tree
// of many tokens is large, and free the body as soon as it is parsed.
std::optional<ApiError> Tokenize(const ServeParts& parts, std::string body, std::string* answer);
std::optional<ApiError> Detokenize(const ServeParts& parts, std::string body, std::string* answer);
std::optional<ApiError> DescribeModel(const ServeParts& parts, const std::string& id, Json* answer);

Json ListModels(const ServeParts& parts);
// Requests and KV blocks at this moment.
Json DescribeStatus(const ServeParts& parts);

// The error of a request that names a model which is not served.
std::optional<ApiError> CheckModel(const ServeParts& parts, const std::string& model);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_HANDLERS_H_
