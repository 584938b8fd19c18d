// Failures on the wire: Talon's status as gRPC's and back, code by code.
#ifndef TALON_SERVE_GRPC_RPC_STATUS_H_
#define TALON_SERVE_GRPC_RPC_STATUS_H_

#include <string_view>

#include "base/status.h"

namespace grpc {
class Status;
}  // namespace grpc

namespace talon {

grpc::Status ToRpcStatus(const Status& status);
// Codes without a counterpart become Internal with the code in the message. A failure without a
// message gets its code's name.
Status FromRpcStatus(const grpc::Status& status);

// The detail that a message begins with, "KV_FULL" of "KV_FULL: need 3 blocks, 0 free": capitals
// and underscores up to a colon or the end. Empty: none.
std::string_view StatusDetail(const Status& status);

}  // namespace talon

#endif  // TALON_SERVE_GRPC_RPC_STATUS_H_
