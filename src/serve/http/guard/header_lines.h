// The lines of a request's header as they came, before a library reads them: a line that servers
// may understand in different ways lets a request pass through a proxy unseen, so it is refused.
#ifndef TALON_SERVE_HTTP_GUARD_HEADER_LINES_H_
#define TALON_SERVE_HTTP_GUARD_HEADER_LINES_H_

#include <optional>
#include <string_view>

#include "serve/http/api/api_error.h"

namespace talon {

// A request as its first line has it; views into the header, "" where there is no such part.
struct RequestLine {
  std::string_view method;
  std::string_view path;  // without a query
  std::string_view version;
};
RequestLine ParseRequestLine(std::string_view header);

// 400 for: control characters, a line without a colon, a name that is not a token (a space before
// the colon), a folded line, two Hosts, no Host in HTTP/1.1. `header` is the first line and all
// fields, each with its CRLF, and the empty line.
std::optional<ApiError> CheckHeaderLines(std::string_view header);

// Returns the value of the first field called `name` (in lower case), or "" if there is none.
std::string_view FieldOf(std::string_view header, std::string_view name);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_GUARD_HEADER_LINES_H_
