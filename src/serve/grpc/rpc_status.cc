#include "serve/grpc/rpc_status.h"

#include <grpcpp/support/status.h>

#include <iterator>
#include <string>

namespace talon {
namespace {

struct CodePair {
  StatusCode ours;
  grpc::StatusCode theirs;
};
constexpr CodePair kCodes[] = {
    {StatusCode::kOk, grpc::StatusCode::OK},
    {StatusCode::kCancelled, grpc::StatusCode::CANCELLED},
    {StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
    {StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
    {StatusCode::kInternal, grpc::StatusCode::INTERNAL},
    {StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
    {StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND},
    {StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE},
    {StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
    {StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
    {StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
};
static_assert(std::size(kCodes) == static_cast<size_t>(StatusCode::kUnimplemented) + 1);

// gRPC tells of a failed connection as "failed to connect to all addresses; last error: UNKNOWN:
// ipv4:...: Connection refused"; what matters begins after its code.
std::string WithoutGrpcPreamble(const std::string& message) {
  constexpr std::string_view kPreamble = "last error: ";
  const size_t at = message.find(kPreamble);
  if (at == std::string::npos) return message;
  const std::string last = message.substr(at + kPreamble.size());
  const size_t code = last.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  return code != std::string::npos && last.compare(code, 2, ": ") == 0 ? last.substr(code + 2)
                                                                       : last;
}

}  // namespace

grpc::Status ToRpcStatus(const Status& status) {
  if (status.ok()) return {};
  return {kCodes[static_cast<size_t>(status.code())].theirs, status.message()};
}

Status FromRpcStatus(const grpc::Status& status) {
  for (const CodePair& code : kCodes) {
    if (code.theirs != status.error_code()) continue;
    const std::string message = WithoutGrpcPreamble(status.error_message());
    return Status(code.ours, message.empty() ? StatusCodeName(code.ours) : message);
  }
  return Internal("gRPC status {}: {}", static_cast<int>(status.error_code()),
                  status.error_message());
}

std::string_view StatusDetail(const Status& status) {
  const std::string_view message = status.message();
  const size_t end = message.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  if (end == std::string_view::npos) return message;
  return message[end] == ':' ? message.substr(0, end) : std::string_view();
}

}  // namespace talon
