// Reads tools, tool_choice and parallel_tool_calls.
#ifndef TALON_SERVE_HTTP_API_TOOL_FIELDS_H_
#define TALON_SERVE_HTTP_API_TOOL_FIELDS_H_

#include "serve/http/api/api_request.h"
#include "serve/http/api/json_reader.h"

namespace talon {

// Tools that may not be called (tool_choice none) are not shown to the template either.
void ReadTools(const ApiDefaults& defaults, JsonReader* body, ApiRequest* request);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_TOOL_FIELDS_H_
