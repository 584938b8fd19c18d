#include "serve/http/request_checks.h"

#include <fmt/core.h>
#include <httplib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "serve/http/page_files.h"

namespace talon {
namespace {

constexpr std::array<std::string_view, 6> kPostPaths = {"/v1/completions", "/v1/chat/completions",
                                                        "/v1/embeddings",  "/v1/responses",
                                                        "/tokenize",       "/detokenize"};
constexpr std::array<std::string_view, 5> kGetPaths = {"/v1/models", "/health", "/metrics",
                                                       "/version", "/talon/status"};

bool IsGetPath(const std::string& path) {
  if (std::find(kGetPaths.begin(), kGetPaths.end(), path) != kGetPaths.end()) return true;
  if (path.starts_with("/v1/models/")) return true;
  const auto pages = PageFiles();
  return std::any_of(pages.begin(), pages.end(),
                     [&path](const PageFile& page) { return page.path == path; });
}

ApiError TooLarge(size_t max_bytes) {
  return {.status = 413,
          .message = fmt::format("the body is larger than {} bytes", max_bytes),
          .code = "request_too_large"};
}

std::optional<ApiError> CheckLength(const httplib::Request& request, size_t max_bytes) {
  const size_t lengths = request.get_header_value_count("Content-Length");
  if (request.has_header("Transfer-Encoding")) {
    const std::string coding = request.get_header_value("Transfer-Encoding");
    if (coding != "chunked" || lengths > 0) {
      return ApiError{.message = "a body has either Content-Length or Transfer-Encoding: chunked"};
    }
    return std::nullopt;
  }
  if (lengths == 0) return ApiError{.status = 411, .message = "Content-Length is missing"};
  const std::string text = request.get_header_value("Content-Length");
  uint64_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (error == std::errc::result_out_of_range) return TooLarge(max_bytes);
  if (lengths > 1 || text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return ApiError{.message = "Content-Length must be one whole number"};
  }
  if (length > max_bytes) return TooLarge(max_bytes);
  return std::nullopt;
}

}  // namespace

std::string MethodsOf(const std::string& path) {
  if (std::find(kPostPaths.begin(), kPostPaths.end(), path) != kPostPaths.end()) return "POST";
  return IsGetPath(path) ? "GET, HEAD" : "";
}

std::optional<ApiError> CheckRoute(const httplib::Request& request) {
  const std::string methods = MethodsOf(request.path);
  if (methods.empty()) {
    return ApiError{.status = 404,
                    .message = fmt::format("no route {}", request.path.substr(0, 100)),
                    .code = "not_found"};
  }
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (methods == "POST" ? request.method == "POST" : reads) return std::nullopt;
  return ApiError{.status = 405,
                  .message = fmt::format("{} takes {}, not {}", request.path.substr(0, 100),
                                         methods, request.method),
                  .code = "method_not_allowed"};
}

std::optional<ApiError> CheckBodyHeaders(const httplib::Request& request, size_t max_bytes) {
  const std::string encoding = request.get_header_value("Content-Encoding");
  if (!encoding.empty() && encoding != "identity") {
    return ApiError{.status = 415, .message = "a compressed body is not supported"};
  }
  const std::string type = request.get_header_value("Content-Type");
  if (type.substr(0, type.find(';')) != "application/json") {
    return ApiError{.status = 415,
                    .message = fmt::format("Content-Type is '{}', must be application/json",
                                           type.substr(0, 100))};
  }
  return CheckLength(request, max_bytes);
}

std::optional<ApiError> ReadBody(const httplib::ContentReader& reader, size_t max_bytes,
                                 std::string* body) {
  bool too_large = false;
  const bool whole = reader([&](const char* bytes, size_t size) {
    too_large = size > max_bytes - body->size();
    if (!too_large) body->append(bytes, size);
    return !too_large;
  });
  if (too_large) return TooLarge(max_bytes);
  if (!whole) return ApiError{.message = "the body ended early, came too slowly or is malformed"};
  return std::nullopt;
}

}  // namespace talon
