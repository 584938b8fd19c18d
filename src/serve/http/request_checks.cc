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

// Room for `size` bytes of a body that has `most` at most. What was sent counts, not what was
// promised: the share is at most twice that, so that its text is copied few times.
bool MakeRoom(size_t size, size_t most, ByteBudget* budget, ByteBudget::Share* share,
              std::string* body) {
  if (size <= std::max(share->bytes(), BodyLimits::kSmallBytes)) return true;
  const size_t room = std::max(size, std::min(most, 2 * body->size()));
  if (*share) {
    if (!share->GrowTo(room, BodyLimits::kWait)) return false;
  } else {
    *share = budget->Take(room, BodyLimits::kWait);
    if (!*share) return false;
  }
  body->reserve(room);
  return true;
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

bool HasBody(const httplib::Request& request) {
  return request.has_header("Transfer-Encoding") ||
         (request.has_header("Content-Length") &&
          request.get_header_value("Content-Length") != "0");
}

ApiError Overloaded() {
  return {.status = 503,
          .message = "too many large requests at the same time, try again",
          .code = "overloaded"};
}

std::optional<ApiError> ReadBody(const httplib::Request& request,
                                 const httplib::ContentReader& reader, const BodyLimits& limits,
                                 ByteBudget::Share* share, std::string* body) {
  const size_t length = request.get_header_value<uint64_t>("Content-Length");  // 0: in chunks
  const size_t most = length > 0 ? length : limits.max_bytes;
  std::optional<ApiError> error;
  const bool whole = reader([&](const char* bytes, size_t size) {
    if (size > limits.max_bytes - body->size()) {
      error = TooLarge(limits.max_bytes);
    } else if (!MakeRoom(body->size() + size, most, limits.budget, share, body)) {
      error = Overloaded();
    }
    if (!error) body->append(bytes, size);
    return !error.has_value();
  });
  if (!whole && !error) {
    error = ApiError{.message = "the body ended early, came too slowly or is malformed"};
  }
  return error;
}

}  // namespace talon
