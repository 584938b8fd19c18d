#include "serve/http/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "serve/http/access_log.h"
#include "serve/http/api/api_error.h"

namespace talon {
namespace {

constexpr int kBacklog = 1024;
constexpr int kMaxPollMillis = 1000;
constexpr int kNoMemoryMillis = 10;
constexpr int kGraceMillis = 5;  // for a connection's first bytes, at the limit of connections

// Answers without a request, written by the loop, which must not wait.
void Refuse(const Connection& connection, int status, const char* reason, const char* message) {
  const std::string body = JsonText(ErrorJson({.status = status, .message = message}));
  const AccessRecord record{.id = fmt::format("req-{:016x}", RandomSeed()),
                            .client = connection.ClientAddress(),
                            .status = status,
                            .age = connection.age()};
  const std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}"
      "X-Request-Id: {}\r\nConnection: close\r\n\r\n{}",
      status, reason, body.size(), status == 503 ? "Retry-After: 1\r\n" : "", record.id, body);
  (void)!send(connection.socket(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(connection.socket(), SHUT_WR);
  LogAccess(record);
}

Result<int> BindAddress(const addrinfo& address) {
  const int fd = socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                        address.ai_protocol);
  if (fd < 0) return Unavailable("{}", std::strerror(errno));
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const std::string reason = std::strerror(errno);
  close(fd);
  return Unavailable("{}", reason);
}

Result<int> BindHost(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return InvalidArgument("host: '{}': {}", host, gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  Result<int> bound = Unavailable("no address");
  for (const addrinfo* each = found; each != nullptr && !bound.ok(); each = each->ai_next) {
    bound = BindAddress(*each);
  }
  if (bound.ok()) return bound;
  return bound.status().WithContext(fmt::format("cannot listen on {}:{}", host, port));
}

int PortOf(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::Open(const Options& options, Serve serve) {
  TALON_ASSIGN_OR_RETURN(const int socket, BindHost(options.host, options.port));
  const int wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake < 0) {
    close(socket);
    return Unavailable("eventfd: {}", std::strerror(errno));
  }
  return std::unique_ptr<Listener>(
      new Listener(options, std::move(serve), socket, PortOf(socket), wake));
}

Listener::Listener(const Options& options, Serve serve, int socket, int port, int wake)
    : options_(options), serve_(std::move(serve)), socket_(socket), port_(port), wake_(wake) {
  thread_ = std::thread([this] { Loop(); });
}

Listener::~Listener() {
  Stop();
  close(socket_);
  close(wake_);
}

void Listener::Wake() const {
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof(one));
}

void Listener::StopAccepting() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    returned_.clear();
  }
  Wake();
  if (thread_.joinable()) thread_.join();
  shutdown(socket_, SHUT_RDWR);  // those in the backlog learn it now
}

void Listener::Stop() {
  StopAccepting();
  std::unique_lock<std::mutex> lock(mutex_);
  request_ended_.wait(lock, [this] { return busy_ == 0; });
}

void Listener::Loop() {
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_) break;
    }
    try {
      const bool acceptable = PollAll();
      DropExpired();
      TakeReturned();
      if (acceptable) AcceptAll();
    } catch (const std::bad_alloc&) {  // the connection at hand is closed, the others wait
      std::erase(waiting_, nullptr);
      poll(nullptr, 0, kNoMemoryMillis);
    }
  }
  waiting_.clear();
}

// Waits until something happens: goes on with connections that have bytes, tells whether there are
// new ones.
bool Listener::PollAll() {
  std::vector<pollfd> fds = WaitingFds();
  const size_t count = fds.size();
  fds.push_back({.fd = wake_, .events = POLLIN, .revents = 0});
  fds.push_back({.fd = socket_, .events = POLLIN, .revents = 0});
  if (poll(fds.data(), fds.size(), kMaxPollMillis) <= 0) return false;
  uint64_t wakes = 0;
  if (fds[count].revents != 0) (void)!read(wake_, &wakes, sizeof(wakes));
  const bool acceptable = fds[count + 1].revents != 0;
  fds.resize(count);
  AdvanceReady(fds);
  return acceptable;
}

std::vector<pollfd> Listener::WaitingFds() const {
  std::vector<pollfd> fds;
  for (const ConnectionPtr& each : waiting_) {
    fds.push_back({.fd = each->socket(), .events = POLLIN, .revents = 0});
  }
  return fds;
}

// `fds`: those of waiting_, polled.
void Listener::AdvanceReady(std::span<const pollfd> fds) {
  std::vector<ConnectionPtr> ready;
  for (size_t i = 0; i < fds.size(); ++i) {
    if (fds[i].revents != 0) ready.push_back(std::move(waiting_[i]));
  }
  std::erase(waiting_, nullptr);
  for (ConnectionPtr& each : ready) Advance(std::move(each));
}

// Goes on with a connection that has bytes: it waits on, is served, or ends.
void Listener::Advance(ConnectionPtr connection) {
  switch (connection->Gather()) {
    case Connection::Header::kIncomplete:
      waiting_.push_back(std::move(connection));
      break;
    case Connection::Header::kComplete:
      Dispatch(std::move(connection));
      break;
    case Connection::Header::kTooLarge:
      Refuse(*connection, 431, "Request Header Fields Too Large",
             "the request's header is too large");
      break;
    case Connection::Header::kClosed:
      break;
  }
}

void Listener::DropExpired() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(waiting_, [now](const ConnectionPtr& each) {
    if (each->deadline() > now) return false;
    if (each->begun()) {
      Refuse(*each, 408, "Request Timeout", "the request's header took too long");
    }
    return true;
  });
}

void Listener::TakeReturned() {
  std::vector<ConnectionPtr> returned;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    returned.swap(returned_);
  }
  for (ConnectionPtr& each : returned) {
    each->AwaitRequest();
    Advance(std::move(each));  // the next request may have come along with the last
  }
}

void Listener::AcceptAll() {
  for (;;) {
    const int socket = accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket >= 0) {
      Admit(socket);
    } else if (errno == EMFILE || errno == ENFILE) {
      if (EvictOldest()) continue;
      poll(nullptr, 0, 10);  // all files are open for requests; one of them will end
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void Listener::Admit(int socket) {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  auto connection = std::make_unique<Connection>(socket, options_.limits);
  // A connection whose request has come, or is about to, is served and not given up.
  for (size_t i = waiting_.size(); i > 0 && IsFull(); --i) {
    std::vector<pollfd> fds = WaitingFds();
    if (poll(fds.data(), fds.size(), kGraceMillis) <= 0) break;
    AdvanceReady(fds);
  }
  if (IsFull() && !EvictOldest()) {
    Refuse(*connection, 503, "Service Unavailable", "all connections are in use, try again");
    return;
  }
  waiting_.push_back(std::move(connection));
}

bool Listener::IsFull() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t open = waiting_.size() + static_cast<size_t>(busy_) + returned_.size();
  return open >= static_cast<size_t>(options_.max_connections);
}

// Gives up the connection that was silent longest. False: none waits.
bool Listener::EvictOldest() {
  if (waiting_.empty()) return false;
  waiting_.erase(waiting_.begin());
  return true;
}

void Listener::Dispatch(ConnectionPtr connection) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++busy_;
  }
  try {
    std::thread([this, mine = std::move(connection)]() mutable {
      RunRequest(std::move(mine));
    }).detach();
  } catch (const std::exception& error) {  // the connection is closed
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      --busy_;
    }
    LogWarning("no thread for a connection: {}", error.what());
  }
}

void Listener::RunRequest(ConnectionPtr connection) {
  connection->BeginBody();
  bool keep = false;
  try {
    keep = serve_(connection.get());
  } catch (const std::exception&) {  // out of memory even for an answer: the connection is closed
  }
  if (!keep) {
    connection->LingerAndClose();
    connection.reset();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    if (keep && !stopping_) returned_.push_back(std::move(connection));
  } catch (const std::bad_alloc&) {  // as above
  }
  Wake();
  --busy_;
  request_ended_.notify_all();
}

}  // namespace talon
