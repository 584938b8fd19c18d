#include "serve/http/metrics_server.h"

#include <string_view>
#include <utility>

#include "base/log.h"
#include "serve/http/guard/header_lines.h"
#include "serve/http/guard/host_policy.h"
#include "serve/http/listener.h"
#include "serve/http/prometheus_text.h"

namespace talon {
namespace {

constexpr int kMaxConnections = 32;

std::string ReadHeader(Connection* connection) {
  std::string header;
  for (char c = 0; !header.ends_with("\r\n\r\n") && connection->Read(&c, 1) == 1;) header += c;
  return header;
}

bool AsksForMetrics(std::string_view header) {
  return header.starts_with("GET /metrics ") || header.starts_with("GET /metrics?");
}

bool WriteAnswer(Connection* connection, std::string_view status, std::string_view type,
                 std::string_view body) {
  return connection->Write(
      fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: "
                  "close\r\n\r\n{}",
                  status, type, body.size(), body));
}

class ListeningMetricsServer : public MetricsServer {
 public:
  ListeningMetricsServer(const std::string& host, const Metrics* metrics)
      : hosts_({.listen_host = host}), metrics_(metrics) {}

  Status Open(const std::string& host, int port) {
    const Listener::Options options{.host = host, .port = port, .max_connections = kMaxConnections};
    TALON_ASSIGN_OR_RETURN(
        listener_, Listener::Open(options, [this](Connection* client) { return Serve(client); }));
    return OkStatus();
  }
  int port() const override { return listener_->port(); }

 private:
  // False: a scrape is one connection.
  bool Serve(Connection* client) const {
    const std::string header = ReadHeader(client);
    if (const auto error = CheckHeaderLines(header)) {
      WriteAnswer(client, "400 Bad Request", "text/plain", error->message + "\n");
    } else if (const auto stranger =
                   hosts_.Check(FieldOf(header, "host"), FieldOf(header, "origin"))) {
      WriteAnswer(client, "403 Forbidden", "text/plain", stranger->message + "\n");
    } else if (AsksForMetrics(header)) {
      WriteAnswer(client, "200 OK", kPrometheusContentType, PrometheusText(*metrics_));
    } else {
      WriteAnswer(client, "404 Not Found", "text/plain", "only GET /metrics\n");
    }
    return false;
  }

  const HostPolicy hosts_;
  const Metrics* metrics_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace

Result<std::unique_ptr<MetricsServer>> StartMetricsServer(const std::string& host, int port,
                                                          const Metrics* metrics) {
  auto server = std::make_unique<ListeningMetricsServer>(host, metrics);
  TALON_RETURN_IF_ERROR(server->Open(host, port));
  return std::unique_ptr<MetricsServer>(std::move(server));
}

}  // namespace talon
