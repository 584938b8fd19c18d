// Accepts connections and hands those whose request header has arrived to threads.
//
// One thread accepts and reads headers, so that an idle or slow client costs a socket and no
// thread. A connection with a whole header gets a thread while its request is served, and returns
// to the loop afterwards. At the limit of connections the one that was idle longest is closed for a
// new one; if all are being served, or their requests have come, the new one gets 503.
#ifndef TALON_SERVE_HTTP_LISTENER_H_
#define TALON_SERVE_HTTP_LISTENER_H_

#include <poll.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "serve/http/connection.h"

namespace talon {

class Listener {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;  // 0 = any that is free
    int max_connections = 1024;
    ConnectionLimits limits;
  };
  // Serves one request on a thread of its own. True: the connection may have another one.
  using Serve = std::function<bool(Connection*)>;

  // Binds and begins to accept.
  static Result<std::unique_ptr<Listener>> Open(const Options& options, Serve serve);
  ~Listener();  // as Stop
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int socket() const { return socket_; }
  int port() const { return port_; }

  // Accepts no more and closes idle connections. Running requests continue.
  void StopAccepting();
  // StopAccepting, and waits for the running requests.
  void Stop();

 private:
  using ConnectionPtr = std::unique_ptr<Connection>;

  Listener(const Options& options, Serve serve, int socket, int port, int wake);

  void Loop();
  bool PollAll();
  std::vector<pollfd> WaitingFds() const;
  void AdvanceReady(std::span<const pollfd> fds);
  bool IsFull();
  void AcceptAll();
  void Admit(int socket);
  bool EvictOldest();
  void Advance(ConnectionPtr connection);
  void DropExpired();
  void TakeReturned();
  void Dispatch(ConnectionPtr connection);
  void RunRequest(ConnectionPtr connection);
  void Wake() const;

  const Options options_;
  const Serve serve_;
  const int socket_;
  const int port_;
  const int wake_;  // an eventfd that ends the loop's poll

  std::vector<ConnectionPtr> waiting_;  // owned by the loop; the longest idle first

  std::mutex mutex_;
  std::condition_variable request_ended_;
  int busy_ = 0;                         // connections with a thread
  std::vector<ConnectionPtr> returned_;  // for another request
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_LISTENER_H_
