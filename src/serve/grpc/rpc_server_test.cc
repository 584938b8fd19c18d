// Servers and channels, over real connections to this machine.
#include "serve/grpc/rpc_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "serve/grpc/rpc_channel.h"
#include "serve/grpc/rpc_links.h"
#include "serve/grpc/rpc_status.h"

namespace talon {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

// An echo service; calls that begin with "wait" block until they are released.
class EchoService : public RpcService {
 public:
  Result<std::string> Handle(const RpcCall& call) override {
    if (call.message == "fail") return FailedPrecondition("CACHE_EVICTED_DELTA_ONLY: no session");
    if (call.message == "throw") throw std::bad_alloc();
    if (call.message.starts_with("wait")) {
      std::unique_lock<std::mutex> lock(mutex_);
      ++waiting_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    if (call.message == "until cancelled") WaitForCancel(call);
    has_deadline_ = call.deadline != steady_clock::time_point::max();
    return fmt::format("{}:{}", call.method, call.message);
  }
  Result<std::string> Ping() override { return std::string("pong"); }

  void AwaitWaiting(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  void LetGo() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void AwaitCancel() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return saw_cancel_; });
  }
  bool has_deadline() const { return has_deadline_; }

 private:
  void WaitForCancel(const RpcCall& call) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++waiting_;
      changed_.notify_all();
    }
    while (!call.cancelled()) std::this_thread::yield();
    const std::lock_guard<std::mutex> lock(mutex_);
    saw_cancel_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
  bool saw_cancel_ = false;
  std::atomic<bool> has_deadline_ = false;
};

steady_clock::time_point Soon() { return steady_clock::now() + seconds(60); }

class RpcServerTest : public testing::Test {
 protected:
  void Start(RpcServerOptions options = {}) {
    options.metrics = &metrics_;
    auto server = RpcServer::Start(options, &service_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    channel_ = std::move(*RpcChannel::Open(server_->address(), {}));
  }
  std::unique_ptr<RunningRpc> Begin(const std::string& message) {
    return channel_->Begin({.method = kVerifyDraftsMethod, .message = message, .deadline = Soon()});
  }
  Result<std::string> Call(const std::string& message) { return Begin(message)->Take(); }

  Metrics metrics_;
  EchoService service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<RpcChannel> channel_;
};

TEST_F(RpcServerTest, EchoesBytes) {
  Start();
  EXPECT_GT(server_->port(), 0);
  const auto answer = Call("hello");
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(*answer, "VerifyDrafts:hello");
  EXPECT_TRUE(service_.has_deadline());
  const auto ping = channel_->Call({.method = kTargetPingMethod, .deadline = Soon()});
  ASSERT_TRUE(ping.ok());
  EXPECT_EQ(*ping, "pong");
  const auto ended =
      channel_->Call({.method = kEndSessionMethod, .message = "s", .deadline = Soon()});
  EXPECT_EQ(*ended, "EndSession:s");
}

TEST_F(RpcServerTest, LargeMessages) {
  Start();
  const std::string large(20 << 20, 'x');
  EXPECT_EQ(Call(large)->size(), large.size() + std::string("VerifyDrafts:").size());
  const auto too_large = Call(std::string(65 << 20, 'x'));
  EXPECT_EQ(too_large.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Call("still there").ok());
}

TEST_F(RpcServerTest, FailuresKeepCodeAndDetail) {
  Start();
  const Status failed = Call("fail").status();
  EXPECT_EQ(failed.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(StatusDetail(failed), "CACHE_EVICTED_DELTA_ONLY");
  const Status thrown = Call("throw").status();
  EXPECT_EQ(thrown.code(), StatusCode::kInternal);
  EXPECT_EQ(StatusDetail(thrown), "INVARIANT");
  const auto other =
      channel_->Call({.method = kGenerateDraftsMethod, .message = "x", .deadline = Soon()});
  EXPECT_EQ(other.status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(other.status().message(), StatusCodeName(StatusCode::kUnimplemented));
}

TEST_F(RpcServerTest, SwappedWorkersAreNamedInTheError) {
  Start({.kind = WorkerKind::kDraft});
  const auto target = RpcTargetLink::Open({.address = server_->address()});
  EXPECT_EQ((*target)->Ping(Soon()).status().message(),
            "this is not a target worker (are the two addresses swapped?)");
  Start({.kind = WorkerKind::kTarget});
  const auto draft = RpcDraftLink::Open({.address = server_->address()});
  EXPECT_EQ((*draft)->Ping(Soon()).status().message(),
            "this is not a draft worker (are the two addresses swapped?)");
}

TEST_F(RpcServerTest, ConnectionErrorsOmitGrpcsPreamble) {
  Start();
  server_.reset();
  const Status status = Call("x").status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message().find("last error"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("onnection refused"), std::string::npos) << status.message();
}

TEST_F(RpcServerTest, DraftWorkersHaveTheirOwnMethods) {
  Start({.kind = WorkerKind::kDraft});
  const auto answer =
      channel_->Call({.method = kGenerateDraftsMethod, .message = "x", .deadline = Soon()});
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(*answer, "GenerateDrafts:x");
  EXPECT_EQ(Call("x").status().code(), StatusCode::kUnimplemented);
}

TEST_F(RpcServerTest, PingDoesNotQueueAndTooManyCallsAreRefused) {
  Start({.handler_threads = 1, .max_waiting = 1});
  const auto running = Begin("wait");
  service_.AwaitWaiting(1);
  // One more may wait; which of the two comes first is open.
  const auto a = Begin("a");
  const auto b = Begin("b");
  EXPECT_EQ(*channel_->Call({.method = kTargetPingMethod, .deadline = Soon()}), "pong");
  while (!a->Ready() && !b->Ready()) std::this_thread::yield();
  const auto refused = (a->Ready() ? a : b)->Take();
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(running->Ready());
  service_.LetGo();
  EXPECT_TRUE(running->Take().ok());
}

TEST_F(RpcServerTest, TooManyBytesAreRefusedUntilTheyAreServed) {
  Start({.max_held_bytes = 1000});
  const auto running = Begin("wait" + std::string(600, 'x'));
  service_.AwaitWaiting(1);
  EXPECT_EQ(Call(std::string(600, 'y')).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Call(std::string(300, 'y')).ok());
  service_.LetGo();
  EXPECT_TRUE(running->Take().ok());
  EXPECT_TRUE(Call(std::string(600, 'y')).ok());
}

TEST_F(RpcServerTest, ACancelledCallIsSeenByTheHandler) {
  Start();
  const auto running = Begin("until cancelled");
  service_.AwaitWaiting(1);
  running->Cancel();
  EXPECT_EQ(running->Take().status().code(), StatusCode::kCancelled);
  service_.AwaitCancel();
}

TEST_F(RpcServerTest, DeadlinesPass) {
  Start();
  const auto late =
      channel_->Call({.method = kVerifyDraftsMethod,
                      .message = "wait",
                      .deadline = steady_clock::now() + std::chrono::milliseconds(50)});
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
  service_.LetGo();
}

TEST_F(RpcServerTest, DrainRefusesNewCallsAndFinishesOldOnes) {
  Start();
  const auto running = Begin("wait");
  service_.AwaitWaiting(1);
  server_->Drain();
  const Status refused = Call("x").status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_EQ(StatusDetail(refused), "STOPPING");
  service_.LetGo();
  server_->Stop(seconds(60));
  EXPECT_TRUE(running->Take().ok());
}

// The server was ended when the last handler had returned, and answers on their way were lost.
TEST_F(RpcServerTest, LargeMessagesOfOldCallsAreSentBeforeItStops) {
  Start();
  const auto running = Begin("wait" + std::string(4 << 20, 'x'));
  service_.AwaitWaiting(1);
  service_.LetGo();
  server_->Stop(seconds(60));
  const Result<std::string> answer = running->Take();
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->size(), (4u << 20) + std::string("VerifyDrafts:wait").size());
}

TEST_F(RpcServerTest, AStoppedWorkerIsUnavailableUntilItRestarts) {
  Start();
  const int port = server_->port();
  server_->Stop(seconds(0));
  EXPECT_EQ(Call("x").status().code(), StatusCode::kUnavailable);
  EchoService again;
  auto server = RpcServer::Start({.port = port}, &again);
  ASSERT_TRUE(server.ok()) << server.status().message();
  Result<std::string> answer = Unavailable("not asked");
  for (const auto end = Soon(); !answer.ok() && steady_clock::now() < end;) answer = Call("x");
  EXPECT_TRUE(answer.ok());
}

TEST_F(RpcServerTest, APortInUseIsAnError) {
  Start();
  EchoService other;
  const auto second = RpcServer::Start({.port = server_->port()}, &other);
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
}

TEST_F(RpcServerTest, CallsAreMeasured) {
  Start();
  ASSERT_TRUE(Call("hello").ok());
  ASSERT_FALSE(Call("fail").ok());
  server_->Stop(seconds(60));
  EXPECT_EQ(metrics_.Get(Counter::kRemotePayloadBytes, "received"), 9);
  EXPECT_EQ(metrics_.Get(Counter::kRemotePayloadBytes, "sent"), 18);
  EXPECT_EQ(metrics_.Get(Histogram::kRemoteRpcSeconds, "VerifyDrafts", "ok").count, 1);
}

TEST(RpcServerOptionsTest, PlaintextStaysOnThisMachine) {
  EchoService service;
  const auto server = RpcServer::Start({.host = "0.0.0.0"}, &service);
  EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(server.status().message().find("--insecure"), std::string::npos);
  EXPECT_FALSE(RpcChannel::Open("192.0.2.1:50051", {}).ok());
  EXPECT_FALSE(RpcChannel::Open("localhost", {}).ok());
}

}  // namespace
}  // namespace talon
