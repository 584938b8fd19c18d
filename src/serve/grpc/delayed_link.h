// A TCP relay that simulates a distant worker: bytes leave the other end half a round trip later,
// and lost segments later still.
//
// For measurements where the system cannot delay packets itself. A lost segment (1460 bytes) is
// delayed by TCP's retransmission, 200 ms and a round trip, and everything behind it waits, as in a
// real connection. Bandwidth is not limited. Losses are drawn from a seed.
#ifndef TALON_SERVE_GRPC_DELAYED_LINK_H_
#define TALON_SERVE_GRPC_DELAYED_LINK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"

namespace talon {

struct LinkDelays {
  std::chrono::microseconds round_trip{0};
  double loss = 0;  // share of segments, 0 to 1
  uint64_t seed = 1;
};

class DelayedLink {
 public:
  // Relays connections from a free port of this machine to `address` (an IPv4 address or localhost,
  // with a port).
  static Result<std::unique_ptr<DelayedLink>> Open(const std::string& address,
                                                   const LinkDelays& delays);
  ~DelayedLink();  // ends all connections
  DelayedLink(const DelayedLink&) = delete;
  DelayedLink& operator=(const DelayedLink&) = delete;

  std::string address() const;  // "127.0.0.1:PORT"

 private:
  class Connection;
  struct Target {
    uint32_t host = 0;  // network order, like the port
    uint16_t port = 0;
  };

  DelayedLink(const Target& target, const LinkDelays& delays, int socket, int port);
  void Accept();

  const Target target_;
  const LinkDelays delays_;
  const int socket_;
  const int port_;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::thread thread_;
};

}  // namespace talon

#endif  // TALON_SERVE_GRPC_DELAYED_LINK_H_
