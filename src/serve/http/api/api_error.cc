#include "serve/http/api/api_error.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/json.h"

namespace talon {
namespace {

constexpr size_t kMaxMessageBytes = 1000;

const char* TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kOutOfRange:
    case StatusCode::kUnimplemented:
      return 400;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
      return 503;
    case StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string ParameterOf(const std::string& message) {
  static constexpr std::array<std::string_view, 15> kParameters = {"bad_words",
                                                                   "frequency_penalty",
                                                                   "logit_bias",
                                                                   "logprobs",
                                                                   "max_tokens",
                                                                   "messages",
                                                                   "min_p",
                                                                   "min_tokens",
                                                                   "presence_penalty",
                                                                   "prompt",
                                                                   "stop",
                                                                   "repetition_penalty",
                                                                   "temperature",
                                                                   "top_k",
                                                                   "top_p"};
  const std::string_view word = std::string_view(message).substr(0, message.find_first_of(": "));
  const bool known = std::find(kParameters.begin(), kParameters.end(), word) != kParameters.end();
  return known ? std::string(word) : "";
}

}  // namespace

Json ErrorJson(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  const bool cut = error.message.size() > kMaxMessageBytes;
  return {{"error",
           {{"message", cut ? error.message.substr(0, kMaxMessageBytes) + "..." : error.message},
            {"type", TypeOf(error.status)},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

ApiError ErrorFromStatus(const Status& status) {
  return {.status = HttpStatusOf(status.code()),
          .message = status.message(),
          .param = ParameterOf(status.message())};
}

std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace talon
