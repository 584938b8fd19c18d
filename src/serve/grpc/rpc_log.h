// gRPC's own messages.
#ifndef TALON_SERVE_GRPC_RPC_LOG_H_
#define TALON_SERVE_GRPC_RPC_LOG_H_

namespace talon {

// From now on they go to Talon's log at level debug: what concerns a call is in its status.
void RouteRpcLog();

}  // namespace talon

#endif  // TALON_SERVE_GRPC_RPC_LOG_H_
