#include "serve/grpc/delayed_link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <utility>

#include "base/random.h"
#include "serve/grpc/credentials.h"

namespace talon {
namespace {

using std::chrono::steady_clock;

constexpr size_t kSegmentBytes = 1460;
constexpr size_t kReadBytes = 65536;
constexpr auto kResendAfter = std::chrono::milliseconds(200);

// One direction: a thread that reads and one that writes what is due.
class Pipe {
 public:
  Pipe(int from, int to, const LinkDelays& delays)
      : from_(from), to_(to), delays_(delays), reader_([this] { Read(); }), writer_([this] {
          Write();
        }) {}
  ~Pipe() {
    reader_.join();
    writer_.join();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

 private:
  struct Chunk {
    steady_clock::time_point due;
    std::string bytes;  // empty: the end
  };

  void Read() {
    std::string buffer(kReadBytes, '\0');
    for (;;) {
      const ssize_t count = recv(from_, buffer.data(), buffer.size(), 0);
      const size_t bytes = count > 0 ? static_cast<size_t>(count) : 0;
      Push({steady_clock::now() + Delay(bytes), buffer.substr(0, bytes)});
      if (bytes == 0) return;
    }
  }

  steady_clock::duration Delay(size_t bytes) {
    steady_clock::duration delay = delays_.round_trip / 2;
    for (size_t sent = 0; sent < bytes; sent += kSegmentBytes) {
      const double draw = UniformDraw({.seed = delays_.seed, .position = segments_++});
      if (draw < delays_.loss) delay += kResendAfter + delays_.round_trip;
    }
    return delay;
  }

  void Push(Chunk chunk) {
    const std::lock_guard<std::mutex> lock(mutex_);
    chunk.due = std::max(chunk.due, last_due_);  // bytes stay in order
    last_due_ = chunk.due;
    chunks_.push_back(std::move(chunk));
    arrived_.notify_one();
  }

  void Write() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      arrived_.wait(lock, [this] { return !chunks_.empty(); });
      const Chunk chunk = std::move(chunks_.front());
      chunks_.pop_front();
      lock.unlock();
      std::this_thread::sleep_until(chunk.due);
      if (chunk.bytes.empty() || !SendAll(chunk.bytes)) break;
    }
    shutdown(to_, SHUT_WR);
    shutdown(from_, SHUT_RD);
  }

  bool SendAll(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = send(to_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

  const int from_;
  const int to_;
  const LinkDelays delays_;
  uint64_t segments_ = 0;  // the reader's

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Chunk> chunks_;
  steady_clock::time_point last_due_;

  std::thread reader_;
  std::thread writer_;
};

void SendAtOnce(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

sockaddr_in AddressOf(uint32_t host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = host;
  address.sin_port = port;
  return address;
}

}  // namespace

// Owns both sockets; ends when either side does.
class DelayedLink::Connection {
 public:
  Connection(int near, int far, const LinkDelays& delays)
      : near_(near), far_(far), there_(near, far, delays), back_(far, near, Other(delays)) {}
  ~Connection() { End(); }

  // Wakes the pipes; the destructor of the members waits for them.
  void End() const {
    shutdown(near_.fd, SHUT_RDWR);
    shutdown(far_.fd, SHUT_RDWR);
  }

 private:
  struct Socket {
    explicit Socket(int given) : fd(given) {}
    ~Socket() { close(fd); }
    const int fd;
  };
  // The way back loses other segments.
  static LinkDelays Other(LinkDelays delays) {
    delays.seed = ~delays.seed;
    return delays;
  }

  Socket near_;
  Socket far_;
  Pipe there_;
  Pipe back_;
};

Result<std::unique_ptr<DelayedLink>> DelayedLink::Open(const std::string& address,
                                                       const LinkDelays& delays) {
  TALON_RETURN_IF_ERROR(CheckAddress("link", address));
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  in_addr parsed{};
  if (inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &parsed) != 1) {
    return InvalidArgument("link: '{}', must be an IPv4 address", host);
  }
  const Target target{.host = parsed.s_addr,
                      .port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))))};
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in here = AddressOf(htonl(INADDR_LOOPBACK), 0);
  socklen_t size = sizeof(here);
  auto* const name = reinterpret_cast<sockaddr*>(&here);
  if (listener < 0 || bind(listener, name, size) != 0 || listen(listener, SOMAXCONN) != 0 ||
      getsockname(listener, name, &size) != 0) {
    if (listener >= 0) close(listener);
    return Unavailable("link: no port to listen on");
  }
  return std::unique_ptr<DelayedLink>(
      new DelayedLink(target, delays, listener, ntohs(here.sin_port)));
}

DelayedLink::DelayedLink(const Target& target, const LinkDelays& delays, int socket, int port)
    : target_(target), delays_(delays), socket_(socket), port_(port), thread_([this] {
        Accept();
      }) {}

DelayedLink::~DelayedLink() {
  ending_ = true;
  shutdown(socket_, SHUT_RDWR);  // ends accept
  thread_.join();
  close(socket_);
  for (const auto& connection : connections_) connection->End();
}

std::string DelayedLink::address() const { return fmt::format("127.0.0.1:{}", port_); }

void DelayedLink::Accept() {
  while (!ending_) {
    const int near = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (near < 0) continue;
    const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in there = AddressOf(target_.host, target_.port);
    if (connect(far, reinterpret_cast<const sockaddr*>(&there), sizeof(there)) != 0) {
      close(far);
      close(near);
      continue;
    }
    SendAtOnce(near);
    SendAtOnce(far);
    LinkDelays delays = delays_;
    const std::lock_guard<std::mutex> lock(mutex_);
    delays.seed += connections_.size();
    connections_.push_back(std::make_unique<Connection>(near, far, delays));
  }
}

}  // namespace talon
