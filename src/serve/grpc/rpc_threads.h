// gRPC's own threads.
#ifndef TALON_SERVE_GRPC_RPC_THREADS_H_
#define TALON_SERVE_GRPC_RPC_THREADS_H_

namespace talon {

// Keeps the threads that serve callbacks until the process ends. Without it they end with the last
// channel or server, which in gRPC 1.51 can abort the process.
void KeepRpcThreads();

}  // namespace talon

#endif  // TALON_SERVE_GRPC_RPC_THREADS_H_
