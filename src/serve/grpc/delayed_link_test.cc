// Times are only compared from below: a slow machine makes them longer, never shorter.
#include "serve/grpc/delayed_link.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "serve/grpc/rpc_channel.h"
#include "serve/grpc/rpc_server.h"

namespace talon {
namespace {

class PlainEcho : public RpcService {
 public:
  Result<std::string> Handle(const RpcCall& call) override { return std::string(call.message); }
  Result<std::string> Ping() override { return std::string("pong"); }
};

class DelayedLinkTest : public testing::Test {
 protected:
  void Open(const LinkDelays& delays) {
    server_ = std::move(*RpcServer::Start({}, &service_));
    link_ = std::move(*DelayedLink::Open(server_->address(), delays));
    channel_ = std::move(*RpcChannel::Open(link_->address(), {}));
  }
  std::string Echo(const std::string& message) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto answer =
        channel_->Call({.method = kVerifyDraftsMethod, .message = message, .deadline = deadline});
    return answer.ok() ? *answer : answer.status().message();
  }

  PlainEcho service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<DelayedLink> link_;
  std::unique_ptr<RpcChannel> channel_;
};

TEST_F(DelayedLinkTest, CallsTakeARoundTripAtLeast) {
  Open({.round_trip = std::chrono::milliseconds(30)});
  EXPECT_EQ(Echo("first, which connects"), "first, which connects");
  const Stopwatch stopwatch;
  EXPECT_EQ(Echo("second"), "second");
  EXPECT_GE(stopwatch.Seconds(), 0.03);
}

TEST_F(DelayedLinkTest, BytesStayInOrderThroughLosses) {
  Open({.round_trip = std::chrono::milliseconds(1), .loss = 0.05});
  std::string large(100000, '\0');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7);
  EXPECT_EQ(Echo(large), large);
}

TEST_F(DelayedLinkTest, ALossCostsTheRetransmissionTime) {
  Open({.loss = 1});
  const Stopwatch stopwatch;
  EXPECT_EQ(Echo("x"), "x");
  EXPECT_GE(stopwatch.Seconds(), 0.4);  // once each way
}

TEST_F(DelayedLinkTest, ConnectionsCloseWithTheWorker) {
  Open({});
  EXPECT_EQ(Echo("x"), "x");
  server_.reset();
  EXPECT_NE(Echo("y"), "y");
}

TEST(DelayedLinkAddressTest, BadAddressesAreNamed) {
  EXPECT_FALSE(DelayedLink::Open("nowhere", {}).ok());
  EXPECT_NE(DelayedLink::Open("name.example:1", {}).status().message().find("name.example"),
            std::string::npos);
}

}  // namespace
}  // namespace talon
