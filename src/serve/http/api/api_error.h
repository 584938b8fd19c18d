// Failures as clients of the API see them: a status and OpenAI's error object.
#ifndef TALON_SERVE_HTTP_API_API_ERROR_H_
#define TALON_SERVE_HTTP_API_API_ERROR_H_

#include <string>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the parameter at fault, "" = none
  std::string code;   // machine-readable, "" = none
};

// {"error": {"message", "type", "param", "code"}}; the type follows from the status. A long message
// is cut, for it may quote what a client sent.
Json ErrorJson(const ApiError& error);

// The API's error for a status of the engine, whose messages begin with the parameter at fault.
ApiError ErrorFromStatus(const Status& status);

// One line of JSON; bytes that are not valid UTF-8 become U+FFFD.
std::string JsonText(const Json& value);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_API_ERROR_H_
