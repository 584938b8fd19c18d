// Which Host and Origin headers a request may have.
//
// A server without a key serves all that can reach it. Any web page can, from a browser on this
// machine: its name is made to resolve to 127.0.0.1 (DNS rebinding), and then the browser takes the
// server for the page's own. The Host header still has the page's name.
#ifndef TALON_SERVE_HTTP_GUARD_HOST_POLICY_H_
#define TALON_SERVE_HTTP_GUARD_HOST_POLICY_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/api/api_error.h"

namespace talon {

// The name or address in "name:port" or "[v6]:port", in lower case, without brackets, port and a
// final dot. None: it is malformed.
std::optional<std::string> HostOf(std::string_view authority);

// localhost, 127.0.0.0/8 and ::1: what cannot be reached from another machine.
bool IsLoopback(std::string_view host);

// Immutable; thread-safe.
class HostPolicy {
 public:
  struct Options {
    std::string listen_host;
    bool needs_key = false;
    std::vector<std::string> allowed_hosts;
    std::string cors_origin;  // "*" or an origin, "" = none
  };
  explicit HostPolicy(const Options& options);

  // 403, or none. "" = there is no such header.
  std::optional<ApiError> Check(std::string_view host, std::string_view origin) const;

 private:
  bool Allows(std::string_view authority) const;

  bool checks_;  // false: everything passes
  std::vector<std::string> allowed_;
  std::string cors_origin_;
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_GUARD_HOST_POLICY_H_
