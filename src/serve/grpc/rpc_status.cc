#include "serve/grpc/rpc_status.h"

#include <grpcpp/support/status.h>

#include <iterator>

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

}  // namespace

grpc::Status ToRpcStatus(const Status& status) {
  if (status.ok()) return {};
  return {kCodes[static_cast<size_t>(status.code())].theirs, status.message()};
}

Status FromRpcStatus(const grpc::Status& status) {
  for (const CodePair& code : kCodes) {
    if (code.theirs == status.error_code()) return Status(code.ours, status.error_message());
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
