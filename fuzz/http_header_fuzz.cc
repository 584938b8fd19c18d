// Headers of requests from hostile text: what passes has exactly the lines that every server reads
// in the same way, and only names of this machine pass a server without a key.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "serve/http/guard/header_lines.h"
#include "serve/http/guard/host_policy.h"

namespace {

void CheckHosts(std::string_view text) {
  static const talon::HostPolicy policy({.listen_host = "127.0.0.1"});
  const auto host = talon::HostOf(text);
  const auto error = policy.Check(text, "");
  if (!text.empty()) TALON_CHECK(error.has_value() == (!host || !talon::IsLoopback(*host)));
  if (host) TALON_CHECK(!host->empty() && host->find_first_of("/@[] ") == std::string::npos);
  if (error) TALON_CHECK(error->status == 403 && error->message.size() < 300);
  (void)policy.Check("", text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckHosts(text);
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string_view::npos) return 0;
  const std::string_view header = text.substr(0, end + 4);
  const talon::RequestLine line = talon::ParseRequestLine(header);
  TALON_CHECK(line.path.find('?') == std::string_view::npos);
  const auto error = talon::CheckHeaderLines(header);
  if (error) {
    TALON_CHECK(error->status == 400 && !error->message.empty());
    return 0;
  }
  TALON_CHECK(header.find('\0') == std::string_view::npos);
  TALON_CHECK(header.find("\r\n ") == std::string_view::npos);
  size_t hosts = 0;
  for (size_t at = header.find("\r\n") + 2; header.substr(at) != "\r\n";) {
    const std::string_view rest = header.substr(at);
    const std::string_view field = rest.substr(0, rest.find("\r\n"));
    TALON_CHECK(field.find(':') != std::string_view::npos && field.find(':') > 0);
    TALON_CHECK(field.find_first_of("\r\n") == std::string_view::npos);
    if (field.size() >= 5 && (field[0] | 32) == 'h' && (field[1] | 32) == 'o' &&
        (field[2] | 32) == 's' && (field[3] | 32) == 't' && field[4] == ':') {
      ++hosts;
    }
    at += field.size() + 2;
  }
  TALON_CHECK(hosts <= 1 && (hosts == 1 || line.version != "HTTP/1.1"));
  return 0;
}
