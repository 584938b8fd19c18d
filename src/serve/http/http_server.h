// The HTTP server: OpenAI's API on an engine, its health and metrics, and a page to try it.
//
//   POST /v1/completions, /v1/chat/completions, /v1/embeddings, /v1/responses, /tokenize,
//        /detokenize
//   GET  /v1/models, /v1/models/ID, /health, /metrics, /version, /talon/status, /
//
// Thread-safe. Requests are served on threads of their own (listener.h).
#ifndef TALON_SERVE_HTTP_HTTP_SERVER_H_
#define TALON_SERVE_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "serve/http/api/api_keys.h"
#include "serve/http/listener.h"
#include "serve/http/serve_parts.h"

namespace talon {

struct HttpOptions {
  Listener::Options listen;
  size_t max_request_bytes = size_t{4} << 20;
  size_t max_inflight_bytes = size_t{32} << 20;  // large bodies, all requests together
  ApiKeys keys;
  std::string cors_origin;  // "*" or an origin; "" = pages of others may not use the server
  std::vector<std::string> allowed_hosts;  // names in Host headers besides the server's own
  std::string version;
};

class HttpServer {
 public:
  static Result<std::unique_ptr<HttpServer>> Start(const ServeParts& parts,
                                                   const HttpOptions& options);
  ~HttpServer();  // as Stop

  int port() const;
  // No new connections from now on, new requests on old ones are refused (503). Returns at once.
  void Drain();
  // Drain, and waits for the running requests, which end with the engine's.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_HTTP_SERVER_H_
