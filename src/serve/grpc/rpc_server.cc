#include "serve/grpc/rpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <serve/grpc/spec_decoding.grpc.pb.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "serve/grpc/handler_pool.h"
#include "serve/grpc/rpc_bytes.h"
#include "serve/grpc/rpc_log.h"
#include "serve/grpc/rpc_status.h"
#include "serve/grpc/rpc_threads.h"

namespace talon {
namespace {

using specsplit::DraftService;
using specsplit::TargetService;
using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

// Keepalive: a client that does not answer pings is disconnected, and so is one that pings more
// often than this.
constexpr int kServerKeepaliveMs = 30000;
constexpr int kServerKeepaliveTimeoutMs = 10000;
constexpr int kMinPingIntervalMs = 5000;
// Limits of what gRPC buffers for a hostile client before a call reaches the service.
constexpr int kMaxCallsPerConnection = 256;
constexpr size_t kMaxConnectionBytes = size_t{1} << 30;

std::chrono::steady_clock::time_point SteadyDeadline(const Context& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) {
    return std::chrono::steady_clock::time_point::max();
  }
  return std::chrono::steady_clock::now() + (deadline - std::chrono::system_clock::now());
}

const char* ServiceName(WorkerKind kind) {
  return kind == WorkerKind::kTarget ? TargetService::service_full_name()
                                     : DraftService::service_full_name();
}

// Counts calls until their answers are sent, which is after their handlers have returned.
class OpenCalls {
 public:
  // A call's reactor; gRPC ends it.
  Reactor* Add() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++count_;
    return new Counted(this);
  }
  // Waits until there is none, or until `end`.
  void WaitUntilNone(std::chrono::steady_clock::time_point end) {
    std::unique_lock<std::mutex> lock(mutex_);
    none_.wait_until(lock, end, [this] { return count_ == 0; });
  }

 private:
  class Counted : public Reactor {
   public:
    explicit Counted(OpenCalls* calls) : calls_(calls) {}
    void OnDone() override {
      calls_->Remove();
      delete this;
    }

   private:
    OpenCalls* calls_;
  };

  void Remove() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

// Passes calls from gRPC's threads, which must not block, to the handlers.
class CallRouter {
 public:
  CallRouter(const RpcServerOptions& options, RpcService* service)
      : service_(service),
        metrics_(options.metrics),
        max_held_bytes_(options.max_held_bytes),
        handlers_(options.handler_threads, options.max_waiting) {}

  void Drain() { draining_ = true; }
  // Until all calls are answered and the answers sent, or `grace` is over.
  void WaitUntilIdle(std::chrono::milliseconds grace) {
    const auto end = std::chrono::steady_clock::now() + grace;
    handlers_.WaitUntilIdle(grace);
    open_.WaitUntilNone(end);
  }
  void End() { handlers_.End(); }

  Reactor* Ping(Context* context, grpc::ByteBuffer* response) {
    Reactor* reactor = context->DefaultReactor();
    reactor->Finish(Answer(service_->Ping(), response));
    return reactor;
  }

  Reactor* Begin(const char* method, Context* context, const grpc::ByteBuffer* request,
                 grpc::ByteBuffer* response) {
    Reactor* reactor = open_.Add();
    if (draining_) {
      reactor->Finish(ToRpcStatus(Unavailable("STOPPING: the worker is shutting down")));
      return reactor;
    }
    const auto bytes = static_cast<int64_t>(request->Length());
    const bool queued = Hold(bytes) && handlers_.Post([=, this] {
      const grpc::Status status = Run(method, context, *request, response);
      held_bytes_ -= bytes;
      reactor->Finish(status);
    });
    if (!queued) {
      held_bytes_ -= bytes;
      reactor->Finish(ToRpcStatus(
          ResourceExhausted("TOO_MANY_SESSIONS: too many calls, or too large ones, wait already")));
    }
    return reactor;
  }

 private:
  // Counts a call's message, also one that is not taken; false: there are too many bytes then.
  bool Hold(int64_t bytes) { return (held_bytes_ += bytes) <= max_held_bytes_; }

  grpc::Status Answer(const Result<std::string>& result, grpc::ByteBuffer* response) {
    if (!result.ok()) return ToRpcStatus(result.status());
    *response = ToByteBuffer(*result);
    return {};
  }

  grpc::Status Run(const char* method, Context* context, const grpc::ByteBuffer& request,
                   grpc::ByteBuffer* response) {
    const Stopwatch stopwatch;
    const Result<std::string> result = Handle(method, context, request);
    if (metrics_ != nullptr) {
      const auto received = static_cast<int64_t>(request.Length());
      metrics_->Add(Counter::kRemotePayloadBytes, received, "received");
      if (result.ok()) {
        metrics_->Add(Counter::kRemotePayloadBytes, static_cast<int64_t>(result->size()), "sent");
      }
      metrics_->Observe(Histogram::kRemoteRpcSeconds, stopwatch.Seconds(), method,
                        StatusCodeName(result.status().code()));
    }
    return Answer(result, response);
  }

  Result<std::string> Handle(const char* method, Context* context,
                             const grpc::ByteBuffer& request) {
    // The client may have cancelled while the call waited.
    if (context->IsCancelled()) return Cancelled("the client gave up");
    std::string message;
    if (!CopyBytes(request, &message)) return InvalidArgument("{}: not readable", method);
    RpcCall call{.method = method,
                 .message = message,
                 .deadline = SteadyDeadline(*context),
                 .cancelled = [context] { return context->IsCancelled(); }};
    try {
      return service_->Handle(call);
    } catch (const std::exception& error) {  // the standard library's, such as bad_alloc
      return Internal("INVARIANT: {}", error.what());
    }
  }

  RpcService* service_;
  Metrics* metrics_;
  const int64_t max_held_bytes_;
  std::atomic<int64_t> held_bytes_ = 0;
  std::atomic<bool> draining_ = false;
  OpenCalls open_;
  HandlerPool handlers_;
};

class TargetMethods : public TargetService::WithRawCallbackMethod_VerifyDrafts<
                          TargetService::WithRawCallbackMethod_EndSession<
                              TargetService::WithRawCallbackMethod_Ping<TargetService::Service>>> {
 public:
  explicit TargetMethods(CallRouter* router) : router_(router) {}

  Reactor* VerifyDrafts(Context* context, const grpc::ByteBuffer* request,
                        grpc::ByteBuffer* response) override {
    return router_->Begin("VerifyDrafts", context, request, response);
  }
  Reactor* EndSession(Context* context, const grpc::ByteBuffer* request,
                      grpc::ByteBuffer* response) override {
    return router_->Begin("EndSession", context, request, response);
  }
  Reactor* Ping(Context* context, const grpc::ByteBuffer*, grpc::ByteBuffer* response) override {
    return router_->Ping(context, response);
  }

 private:
  CallRouter* router_;
};

class DraftMethods : public DraftService::WithRawCallbackMethod_GenerateDrafts<
                         DraftService::WithRawCallbackMethod_Ping<DraftService::Service>> {
 public:
  explicit DraftMethods(CallRouter* router) : router_(router) {}

  Reactor* GenerateDrafts(Context* context, const grpc::ByteBuffer* request,
                          grpc::ByteBuffer* response) override {
    return router_->Begin("GenerateDrafts", context, request, response);
  }
  Reactor* Ping(Context* context, const grpc::ByteBuffer*, grpc::ByteBuffer* response) override {
    return router_->Ping(context, response);
  }

 private:
  CallRouter* router_;
};

std::unique_ptr<grpc::Service> MakeMethods(WorkerKind kind, CallRouter* router) {
  if (kind == WorkerKind::kTarget) return std::make_unique<TargetMethods>(router);
  return std::make_unique<DraftMethods>(router);
}

// What gRPC offers beside the service; it takes effect for servers built later.
void EnableStandardServices() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

void Configure(grpc::ServerBuilder* builder) {
  builder->SetResourceQuota(grpc::ResourceQuota("talon").Resize(kMaxConnectionBytes));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder->SetMaxReceiveMessageSize(kMaxRpcBytes);
  builder->SetMaxSendMessageSize(kMaxRpcBytes);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kServerKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kServerKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kMinPingIntervalMs);
}

std::string JoinAddress(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace

class RpcServer::Impl {
 public:
  Impl(const RpcServerOptions& options, RpcService* service)
      : host_(options.host),
        name_(ServiceName(options.kind)),
        router_(options, service),
        methods_(MakeMethods(options.kind, &router_)) {}

  Status Listen(const RpcServerOptions& options) {
    TALON_ASSIGN_OR_RETURN(const auto credentials,
                           MakeServerCredentials(options.security, options.host));
    const std::string address = JoinAddress(options.host, options.port);
    grpc::ServerBuilder builder;
    Configure(&builder);
    builder.AddListeningPort(address, credentials, &port_);
    builder.RegisterService(methods_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return Unavailable("{}: cannot listen; is the port in use, {}?", address,
                         options.security.uses_tls() ? "do certificate and key fit"
                                                     : "is the address this machine's");
    }
    SetServing(false);
    return OkStatus();
  }

  void SetServing(bool serving) {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus("", serving);
    health->SetServingStatus(name_, serving);
  }

  void Drain() {
    router_.Drain();
    SetServing(false);
  }

  void Stop(std::chrono::milliseconds grace) {
    if (server_ == nullptr) return;
    Drain();
    router_.WaitUntilIdle(grace);
    server_->Shutdown(std::chrono::system_clock::now());
    // A handler may still be returning when its call has ended.
    router_.End();
    server_.reset();
  }

  int port() const { return port_; }
  std::string address() const { return JoinAddress(host_, port_); }

 private:
  const std::string host_;
  const std::string name_;
  int port_ = 0;
  CallRouter router_;
  std::unique_ptr<grpc::Service> methods_;
  std::unique_ptr<grpc::Server> server_;
};

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RpcServer::~RpcServer() { Stop(std::chrono::milliseconds(0)); }

Result<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                    RpcService* service) {
  RouteRpcLog();
  KeepRpcThreads();
  EnableStandardServices();
  auto impl = std::make_unique<Impl>(options, service);
  TALON_RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(impl)));
}

int RpcServer::port() const { return impl_->port(); }
std::string RpcServer::address() const { return impl_->address(); }
void RpcServer::SetServing(bool serving) { impl_->SetServing(serving); }
void RpcServer::Drain() { impl_->Drain(); }
void RpcServer::Stop(std::chrono::milliseconds grace) { impl_->Stop(grace); }

}  // namespace talon
