// One accepted socket: buffered bytes, and reads and writes with deadlines.
//
// Used by one thread at a time. All times are limits for the client, not for the work in between.
#ifndef TALON_SERVE_HTTP_CONNECTION_H_
#define TALON_SERVE_HTTP_CONNECTION_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace talon {

struct ConnectionLimits {
  std::chrono::milliseconds idle{60'000};   // without a byte of the next request
  std::chrono::milliseconds read{30'000};   // for a whole header, and for a whole body
  std::chrono::milliseconds write{10'000};  // without any progress
};

class Connection {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr size_t kMaxHeaderBytes = size_t{1} << 15;

  // Takes over the socket, which must not block.
  Connection(int socket, const ConnectionLimits& limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int socket() const { return socket_; }

  // ---- While a request's header is awaited ----

  enum class Header { kIncomplete, kComplete, kTooLarge, kClosed };
  // Starts the wait for a request.
  void AwaitRequest();
  // Reads what is there, without waiting.
  Header Gather();
  // True once some of a header has come.
  bool begun() const { return !ahead_.empty(); }
  TimePoint deadline() const { return deadline_; }
  const Stopwatch& age() const {
    return age_;
  }  // since the first of a header came, or the wait began
  // The header as it came, with its empty line. REQUIRES: it is complete and nothing was read.
  std::string_view header() const;
  // "127.0.0.1:50000", or "" where there is none.
  std::string ClientAddress() const;

  // ---- While a request is served ----

  // Starts the body's time.
  void BeginBody();
  // At least one byte; 0 at the end of the stream, on failure and after the deadline.
  size_t Read(char* out, size_t size);
  // Everything, or false.
  bool Write(std::string_view bytes);
  // The client will not read the answer. A client that has only shut down its sending side looks
  // like one that has gone, so the moment counts: one that does so along with its request waits for
  // the answer, one that does so later has gone.
  bool HungUp();

  // Shuts down the write side and drains what the client still sends: closing with unread bytes
  // would reset the connection. Bounded in time and bytes.
  void LingerAndClose();

 private:
  Header HeaderState();
  // Waits for `events` until `until`; false if they did not come.
  bool Wait(short events, TimePoint until) const;
  void Close();

  int socket_;
  ConnectionLimits limits_;
  std::string ahead_;    // received, not yet read
  size_t searched_ = 0;  // bytes of ahead_ known not to end a header
  TimePoint deadline_;
  Stopwatch age_;
  TimePoint last_read_;              // when bytes of a request came last
  std::optional<TimePoint> looked_;  // when HungUp was called for this request
  bool half_closed_ = false;         // it sends no more, but reads
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_CONNECTION_H_
