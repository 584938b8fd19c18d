// What is wrong with a request before its body is read: its route, its method, how its body is
// framed and encoded.
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

// Of a POST: JSON, not compressed, of a length that is said once and not too large. A compressed
// body could grow without bound, and one of any other type may be sent by any web page.
std::optional<ApiError> CheckBodyHeaders(const httplib::Request& request, size_t max_bytes);

// Reads a body of at most `max_bytes`, also where its length was not said before.
std::optional<ApiError> ReadBody(const httplib::ContentReader& reader, size_t max_bytes,
                                 std::string* body);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_REQUEST_CHECKS_H_
