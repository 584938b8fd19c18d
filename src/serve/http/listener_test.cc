#include "serve/http/listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace talon {
namespace {

using std::chrono::milliseconds;

class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& text) const {
    (void)!send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  void Finish() const { shutdown(socket_, SHUT_WR); }
  // Everything until the server closes.
  std::string ReadAll() const {
    std::string all;
    char bytes[4096];
    for (ssize_t n; (n = recv(socket_, bytes, sizeof(bytes), 0)) > 0;) {
      all.append(bytes, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  int socket_;
  bool connected_ = false;
};

// Reads a request's header byte by byte and says so.
class ListenerTest : public ::testing::Test {
 protected:
  void Open(Listener::Options options) {
    auto listener = Listener::Open(options, [this](Connection* connection) {
      std::string header;
      for (char c; !header.ends_with("\r\n\r\n") && connection->Read(&c, 1) == 1;) header += c;
      ++served_;
      connection->Write("got " + std::to_string(header.size()) + "\n");
      return header.find("keep") != std::string::npos;
    });
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    listener_ = std::move(*listener);
  }

  std::atomic<int> served_{0};
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerTest, ServesAHeaderSentInParts) {
  Open({});
  const Client client(listener_->port());
  for (const char* part : {"GET / HT", "TP/1.1\r", "\n\r", "\n"}) client.Send(part);
  EXPECT_EQ(client.ReadAll(), "got 18\n");
}

TEST_F(ListenerTest, ServesPipelinedRequests) {
  Open({});
  const Client client(listener_->port());
  client.Send("keep\r\n\r\nkeep\r\n\r\nlast\r\n\r\n");
  EXPECT_EQ(client.ReadAll(), "got 8\ngot 8\ngot 8\n");
  EXPECT_EQ(served_, 3);
}

TEST_F(ListenerTest, IdleConnectionsAreClosedForNewOnes) {
  Open({.max_connections = 4});
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 50; ++i) {
    idle.push_back(std::make_unique<Client>(listener_->port()));
    ASSERT_TRUE(idle.back()->connected());
    idle.back()->Send("GET");
  }
  const Client client(listener_->port());
  client.Send("last\r\n\r\n");
  EXPECT_EQ(client.ReadAll(), "got 8\n");
  EXPECT_EQ(served_, 1);
}

TEST_F(ListenerTest, RequestsThatHaveComeAreAnsweredOrRefused) {
  Open({.max_connections = 3});
  int answered = 0, refused = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 12; ++i) {
      clients.push_back(std::make_unique<Client>(listener_->port()));
      clients.back()->Send("last\r\n\r\n");
    }
    for (const auto& client : clients) {
      const std::string answer = client->ReadAll();
      const bool is_refusal = answer.starts_with("HTTP/1.1 503");
      EXPECT_TRUE(is_refusal || answer == "got 8\n") << answer;
      EXPECT_EQ(answer.find("Retry-After: 1\r\n") != std::string::npos, is_refusal);
      ++(is_refusal ? refused : answered);
    }
  }
  EXPECT_EQ(answered, served_);
  EXPECT_GE(answered, 20);  // one of a round at least
  EXPECT_EQ(answered + refused, 240);
}

TEST_F(ListenerTest, EndlessHeadersAreRefused) {
  Open({});
  const Client client(listener_->port());
  client.Send(std::string(Connection::kMaxHeaderBytes + 1, 'a'));
  EXPECT_EQ(client.ReadAll().substr(0, 12), "HTTP/1.1 431");
  EXPECT_EQ(served_, 0);
}

TEST_F(ListenerTest, SlowHeadersTimeOut) {
  Open({.limits = {.read = milliseconds(50)}});
  const Client client(listener_->port());
  client.Send("GET / HTTP/1.1\r\n");
  EXPECT_EQ(client.ReadAll().substr(0, 12), "HTTP/1.1 408");
  EXPECT_EQ(served_, 0);
}

TEST_F(ListenerTest, DisconnectedClientsAreRemoved) {
  Open({.max_connections = 2});
  for (int i = 0; i < 10; ++i) Client(listener_->port()).Send("x");
  const Client client(listener_->port());
  client.Send("last\r\n\r\n");
  EXPECT_EQ(client.ReadAll(), "got 8\n");
}

TEST_F(ListenerTest, StopEndsWaitingConnections) {
  Open({});
  const Client client(listener_->port());
  client.Send("GET");
  listener_->Stop();
  EXPECT_EQ(client.ReadAll(), "");
}

TEST(Listener, AnAddressThatCannotBeBoundIsAnError) {
  const auto unknown = Listener::Open({.host = "no such host"}, nullptr);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("no such host"), std::string::npos);
  const auto first = Listener::Open({}, [](Connection*) { return false; });
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(Listener::Open({.port = (*first)->port()}, nullptr).ok());
}

}  // namespace
}  // namespace talon
