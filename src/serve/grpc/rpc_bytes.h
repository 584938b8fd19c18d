// Strings and gRPC's buffers.
#ifndef TALON_SERVE_GRPC_RPC_BYTES_H_
#define TALON_SERVE_GRPC_RPC_BYTES_H_

#include <grpcpp/support/byte_buffer.h>

#include <string>

namespace talon {

constexpr int kMaxRpcBytes = 64 << 20;  // largest message; larger ones are RESOURCE_EXHAUSTED

inline grpc::ByteBuffer ToByteBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// False: the buffer cannot be read.
inline bool CopyBytes(const grpc::ByteBuffer& buffer, std::string* bytes) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return false;
  bytes->clear();
  bytes->reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes->append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return true;
}

}  // namespace talon

#endif  // TALON_SERVE_GRPC_RPC_BYTES_H_
