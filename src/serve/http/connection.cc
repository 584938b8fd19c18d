#include "serve/http/connection.h"

#include <fmt/core.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace talon {
namespace {

constexpr size_t kReadBytes = 16384;
constexpr std::chrono::milliseconds kLingerTime(2000);
constexpr size_t kLingerBytes = size_t{64} << 20;
// How long after a request the end of the client's side may come and still belong to it.
constexpr std::chrono::milliseconds kHalfCloseTime(500);

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Connection::Connection(int socket, const ConnectionLimits& limits)
    : socket_(socket), limits_(limits) {
  AwaitRequest();
}

Connection::~Connection() { Close(); }

void Connection::Close() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void Connection::AwaitRequest() {
  searched_ = 0;
  age_ = {};
  deadline_ = std::chrono::steady_clock::now() + (begun() ? limits_.read : limits_.idle);
}

Connection::Header Connection::HeaderState() {
  const size_t from = searched_ < 3 ? 0 : searched_ - 3;  // an end may lie across two reads
  if (ahead_.find("\r\n\r\n", from) != std::string::npos) return Header::kComplete;
  searched_ = ahead_.size();
  return ahead_.size() > kMaxHeaderBytes ? Header::kTooLarge : Header::kIncomplete;
}

Connection::Header Connection::Gather() {
  Header state = HeaderState();
  while (state == Header::kIncomplete) {
    std::array<char, kReadBytes> bytes;
    const ssize_t count = recv(socket_, bytes.data(), bytes.size(), 0);
    if (count < 0 && WouldBlock()) return state;
    if (count <= 0) return Header::kClosed;
    if (!begun()) {
      age_ = {};
      deadline_ = std::chrono::steady_clock::now() + limits_.read;
    }
    ahead_.append(bytes.data(), static_cast<size_t>(count));
    state = HeaderState();
  }
  return state;
}

std::string_view Connection::header() const {
  constexpr std::string_view kEnd = "\r\n\r\n";
  return std::string_view(ahead_).substr(0, ahead_.find(kEnd) + kEnd.size());
}

std::string Connection::ClientAddress() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host.data(), host.size(),
                  port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  const bool v6 = address.ss_family == AF_INET6;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", host.data(), v6 ? "]" : "", port.data());
}

void Connection::BeginBody() {
  looked_.reset();
  last_read_ = std::chrono::steady_clock::now();
  deadline_ = last_read_ + limits_.read;
}

bool Connection::Wait(short events, TimePoint until) const {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd fd{.fd = socket_, .events = events, .revents = 0};
    const int ready = poll(&fd, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

size_t Connection::Read(char* out, size_t size) {
  if (!ahead_.empty()) {
    const size_t count = std::min(size, ahead_.size());
    ahead_.copy(out, count);
    ahead_.erase(0, count);
    return count;
  }
  while (Wait(POLLIN, deadline_)) {
    const ssize_t count = recv(socket_, out, size, 0);
    if (count < 0 && WouldBlock()) continue;
    last_read_ = std::chrono::steady_clock::now();
    return count > 0 ? static_cast<size_t>(count) : 0;
  }
  return 0;
}

bool Connection::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (!WouldBlock() || !Wait(POLLOUT, std::chrono::steady_clock::now() + limits_.write)) {
      return false;
    }
  }
  return true;
}

bool Connection::HungUp() {
  const auto last_look = std::exchange(looked_, std::chrono::steady_clock::now());
  pollfd fd{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  if (poll(&fd, 1, 0) <= 0) return false;
  if ((fd.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return true;
  if ((fd.revents & POLLRDHUP) == 0 || half_closed_) return false;
  // The end came at some time after the last look.
  half_closed_ = !last_look || *last_look - last_read_ < kHalfCloseTime;
  return !half_closed_;
}

void Connection::LingerAndClose() {
  shutdown(socket_, SHUT_WR);
  const TimePoint until = std::chrono::steady_clock::now() + kLingerTime;
  std::array<char, kReadBytes> bytes;
  for (size_t dropped = 0; dropped < kLingerBytes && Wait(POLLIN, until);) {
    const ssize_t count = recv(socket_, bytes.data(), bytes.size(), 0);
    if (count < 0 && WouldBlock()) continue;
    if (count <= 0) break;
    dropped += static_cast<size_t>(count);
  }
  Close();
}

}  // namespace talon
