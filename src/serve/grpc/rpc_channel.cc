#include "serve/grpc/rpc_channel.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "serve/grpc/rpc_bytes.h"
#include "serve/grpc/rpc_log.h"
#include "serve/grpc/rpc_status.h"
#include "serve/grpc/rpc_threads.h"

namespace talon {
namespace {

constexpr int kFirstReconnectMs = 100;
constexpr int kLastReconnectMs = 1000;
constexpr int kConnectTimeoutMs = 5000;
constexpr int kKeepaliveMs = 20000;
constexpr int kKeepaliveTimeoutMs = 10000;

grpc::ChannelArguments MakeArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxRpcBytes);
  arguments.SetMaxSendMessageSize(kMaxRpcBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLastReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // Workers are addressed directly, and a channel's failures are its own.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

// gRPC's deadlines are of the system clock.
std::chrono::system_clock::time_point SystemDeadline(
    std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  constexpr auto kLongest = std::chrono::hours(24 * 365);
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(
             std::min<std::chrono::steady_clock::duration>(left, kLongest));
}

}  // namespace

struct RunningRpc::State {
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer response;

  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  grpc::Status status;
  std::chrono::steady_clock::time_point ended;
};

RunningRpc::RunningRpc(std::shared_ptr<State> state) : state_(std::move(state)) {}

RunningRpc::~RunningRpc() { Cancel(); }

void RunningRpc::Cancel() {
  if (!Ready()) state_->context.TryCancel();
}

bool RunningRpc::Ready() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->done;
}

bool RunningRpc::WaitFor(std::chrono::milliseconds time) const {
  std::unique_lock<std::mutex> lock(state_->mutex);
  return state_->done_changed.wait_for(lock, time, [&] { return state_->done; });
}

std::chrono::steady_clock::time_point RunningRpc::ended() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->ended;
}

Result<std::string> RunningRpc::Take() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->done_changed.wait(lock, [&] { return state_->done; });
  if (!state_->status.ok()) return FromRpcStatus(state_->status);
  std::string answer;
  if (!CopyBytes(state_->response, &answer)) return Internal("answer: not readable");
  return answer;
}

class RpcChannel::Impl {
 public:
  explicit Impl(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {}

  void Start(const char* method, const std::shared_ptr<RunningRpc::State>& state) {
    stub_.UnaryCall(&state->context, method, grpc::StubOptions(), &state->request, &state->response,
                    [state](grpc::Status status) {
                      const std::lock_guard<std::mutex> lock(state->mutex);
                      state->status = std::move(status);
                      state->ended = std::chrono::steady_clock::now();
                      state->done = true;
                      state->done_changed.notify_all();
                    });
  }

 private:
  grpc::GenericStub stub_;
};

RpcChannel::RpcChannel(std::string address, std::unique_ptr<Impl> impl)
    : address_(std::move(address)), impl_(std::move(impl)) {}

RpcChannel::~RpcChannel() = default;

Result<std::unique_ptr<RpcChannel>> RpcChannel::Open(const std::string& address,
                                                     const RpcSecurity& security) {
  RouteRpcLog();
  KeepRpcThreads();
  TALON_RETURN_IF_ERROR(CheckAddress("address", address));
  TALON_ASSIGN_OR_RETURN(const auto credentials, MakeChannelCredentials(security, address));
  auto impl =
      std::make_unique<Impl>(grpc::CreateCustomChannel(address, credentials, MakeArguments()));
  return std::unique_ptr<RpcChannel>(new RpcChannel(address, std::move(impl)));
}

std::unique_ptr<RunningRpc> RpcChannel::Begin(const RpcRequest& request) {
  auto state = std::make_shared<RunningRpc::State>();
  state->context.set_deadline(SystemDeadline(request.deadline));
  if (!request.session_id.empty()) {
    state->context.AddMetadata(kSessionIdHeader, request.session_id);
  }
  state->request = ToByteBuffer(request.message);
  impl_->Start(request.method, state);
  return std::unique_ptr<RunningRpc>(new RunningRpc(std::move(state)));
}

}  // namespace talon
