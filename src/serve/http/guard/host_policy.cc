#include "serve/http/guard/host_policy.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>

#include <algorithm>

namespace talon {
namespace {

constexpr size_t kShownBytes = 100;

bool IsPort(std::string_view text) {
  return text.size() <= 5 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool IsHostCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
         c == ':';
}

char ToLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

std::optional<std::string> HostOf(std::string_view authority) {
  const bool v6 = authority.starts_with('[');
  const size_t end = std::min(authority.find(v6 ? ']' : ':'), authority.size());
  std::string host(authority.substr(v6 ? 1 : 0, end - (v6 ? 1 : 0)));
  std::string_view rest = authority.substr(end);
  if (v6 && !rest.starts_with(']')) return std::nullopt;
  if (v6) rest.remove_prefix(1);
  if (!rest.empty() && (rest.front() != ':' || !IsPort(rest.substr(1)))) return std::nullopt;
  std::ranges::transform(host, host.begin(), ToLower);
  if (host.ends_with('.')) host.pop_back();
  if (host.empty() || !std::ranges::all_of(host, IsHostCharacter)) return std::nullopt;
  return host;
}

bool IsLoopback(std::string_view host) {
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  const std::string text(host);
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

HostPolicy::HostPolicy(const Options& options)
    : checks_(!options.allowed_hosts.empty() ||
              (!options.needs_key && IsLoopback(options.listen_host))),
      allowed_(options.allowed_hosts),
      cors_origin_(options.cors_origin) {
  allowed_.push_back(options.listen_host);
  for (std::string& host : allowed_) std::ranges::transform(host, host.begin(), ToLower);
}

bool HostPolicy::Allows(std::string_view authority) const {
  const auto host = HostOf(authority);
  return host && (IsLoopback(*host) || std::ranges::find(allowed_, *host) != allowed_.end());
}

std::optional<ApiError> HostPolicy::Check(std::string_view host, std::string_view origin) const {
  if (!checks_) return std::nullopt;
  if (!host.empty() && !Allows(host)) {
    return ApiError{
        .status = 403,
        .message = fmt::format("Host '{}' is not a name of this server (--allowed-host)",
                               host.substr(0, kShownBytes)),
        .code = "host_not_allowed"};
  }
  constexpr std::string_view kSchemeEnd = "://";
  const size_t scheme = origin.find(kSchemeEnd);
  const bool own =
      scheme != std::string_view::npos && Allows(origin.substr(scheme + kSchemeEnd.size()));
  if (origin.empty() || own || cors_origin_ == "*" || origin == cors_origin_) return std::nullopt;
  return ApiError{.status = 403,
                  .message = fmt::format("pages of '{}' may not use this server (--cors-origin)",
                                         origin.substr(0, kShownBytes)),
                  .code = "origin_not_allowed"};
}

}  // namespace talon
