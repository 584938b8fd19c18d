// Checks of a request before its body is read: its route, its method, the framing and encoding of
// its body.
#ifndef TALON_SERVE_HTTP_REQUEST_CHECKS_H_
#define TALON_SERVE_HTTP_REQUEST_CHECKS_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "serve/http/api/api_error.h"
#include "serve/http/guard/byte_budget.h"

namespace httplib {
class ContentReader;
struct Request;
}  // namespace httplib

namespace talon {

// The methods that a path knows: "GET, HEAD"; "" if there is no such path.
std::string MethodsOf(const std::string& path);

// 404 or 405.
std::optional<ApiError> CheckRoute(const httplib::Request& request);

// Checks the headers of a POST: JSON, not compressed, with one Content-Length that is not too
// large. A compressed body could grow without bound, and any web page may send other types.
std::optional<ApiError> CheckBodyHeaders(const httplib::Request& request, size_t max_bytes);

// Whether bytes of a body follow the header.
bool HasBody(const httplib::Request& request);

// A body as it is read. A small one is not counted: connections bound their number.
struct BodyLimits {
  static constexpr size_t kSmallBytes = size_t{1} << 16;
  static constexpr std::chrono::milliseconds kWait{5000};  // for the budget

  size_t max_bytes = 0;
  ByteBudget* budget = nullptr;  // limits the bodies of all requests
};
// Reads a body, also without a Content-Length. *share is what it takes of the budget, which grows
// with the bytes that arrive; 503 if the budget is used up.
std::optional<ApiError> ReadBody(const httplib::Request& request,
                                 const httplib::ContentReader& reader, const BodyLimits& limits,
                                 ByteBudget::Share* share, std::string* body);

// 503: large requests wait for each other.
ApiError Overloaded();

}  // namespace talon

#endif  // TALON_SERVE_HTTP_REQUEST_CHECKS_H_
