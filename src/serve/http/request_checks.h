// Checks of a request before its body is read: its route, its method, the framing and encoding of
// its body.
#ifndef TALON_SERVE_HTTP_REQUEST_CHECKS_H_
#define TALON_SERVE_HTTP_REQUEST_CHECKS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "serve/http/api/api_error.h"

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

// Reads a body of at most `max_bytes`, also without a Content-Length.
std::optional<ApiError> ReadBody(const httplib::ContentReader& reader, size_t max_bytes,
                                 std::string* body);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_REQUEST_CHECKS_H_
