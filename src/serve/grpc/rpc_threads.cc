#include "serve/grpc/rpc_threads.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstddef>
#include <new>

#include "serve/grpc/rpc_bytes.h"

namespace talon {
namespace {

// A channel without a peer that is never deleted: its first call holds a reference to the threads.
struct IdleChannel {
  IdleChannel() : stub(grpc::CreateChannel("127.0.0.1:9", grpc::InsecureChannelCredentials())) {
    context.TryCancel();
    stub.UnaryCall(&context, "/none", grpc::StubOptions(), &request, &response,
                   [](const grpc::Status&) {});
  }
  grpc::GenericStub stub;
  grpc::ClientContext context;
  grpc::ByteBuffer request = ToByteBuffer("");
  grpc::ByteBuffer response;
};

}  // namespace

void KeepRpcThreads() {
  // Static storage, so that the leak sanitizer does not report it, although it is never read.
  alignas(IdleChannel) static std::byte storage[sizeof(IdleChannel)];
  static const auto* const channel = new (storage) IdleChannel;
  (void)channel;
}

}  // namespace talon
