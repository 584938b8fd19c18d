// Expected failures as values.
//
// A function that can fail because of its input or of resources returns `Status`, or `Result<T>` if
// it also returns a value. Messages say what, which and how many: "kv: need 12 blocks, 3 free".
// Broken invariants are not expected failures; see base/check.h.
#ifndef TALON_BASE_STATUS_H_
#define TALON_BASE_STATUS_H_

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>

namespace talon {

enum class StatusCode {
  kOk,
  kCancelled,
  kDeadlineExceeded,
  kFailedPrecondition,
  kInternal,
  kInvalidArgument,
  kNotFound,
  kOutOfRange,
  kResourceExhausted,
  kUnavailable,
  kUnimplemented,
};

const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same failure seen from one level up: "context: message".
  Status WithContext(const std::string& context) const {
    return ok() ? *this : Status(code_, context + ": " + message_);
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }

// InvalidArgument("tree: {} nodes, limit {}", 70, 64)
#define TALON_STATUS_MAKER(name)                                                          \
  template <typename... Args>                                                             \
  Status name(fmt::format_string<Args...> format, Args&&... args) {                       \
    return Status(StatusCode::k##name, fmt::format(format, std::forward<Args>(args)...)); \
  }
TALON_STATUS_MAKER(Cancelled)
TALON_STATUS_MAKER(DeadlineExceeded)
TALON_STATUS_MAKER(FailedPrecondition)
TALON_STATUS_MAKER(Internal)
TALON_STATUS_MAKER(InvalidArgument)
TALON_STATUS_MAKER(NotFound)
TALON_STATUS_MAKER(OutOfRange)
TALON_STATUS_MAKER(ResourceExhausted)
TALON_STATUS_MAKER(Unavailable)
TALON_STATUS_MAKER(Unimplemented)
#undef TALON_STATUS_MAKER

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit by design
    if (status_.ok()) status_ = Status(StatusCode::kInternal, "Result made from an OK status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok()
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

#define TALON_CONCAT_INNER(a, b) a##b
#define TALON_CONCAT(a, b) TALON_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expr` (a Status) failed.
#define TALON_RETURN_IF_ERROR(expr)                \
  do {                                             \
    ::talon::Status talon_status_ = (expr);        \
    if (!talon_status_.ok()) return talon_status_; \
  } while (false)

// TALON_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
#define TALON_ASSIGN_OR_RETURN(lhs, expr) \
  TALON_ASSIGN_OR_RETURN_IMPL(TALON_CONCAT(talon_result_, __LINE__), lhs, expr)
#define TALON_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                \
  if (!result.ok()) return result.status();            \
  lhs = std::move(result).value()

}  // namespace talon

#endif  // TALON_BASE_STATUS_H_
