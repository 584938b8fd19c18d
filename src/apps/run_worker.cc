#include "apps/run_worker.h"

#include <cstdio>
#include <memory>

#include "apps/commands.h"
#include "apps/common/stop_signal.h"
#include "base/log.h"
#include "serve/http/metrics_server.h"
#include "setup/settings.h"

namespace talon {
namespace {

constexpr int kDraftPort = 50051;
constexpr int kTargetPort = 50052;

RpcServerOptions MakeServerOptions(const WorkerProcess& worker) {
  const WorkerConfig& config = worker.config;
  const int own_port = worker.kind == WorkerKind::kTarget ? kTargetPort : kDraftPort;
  RpcServerOptions options;
  options.kind = worker.kind;
  options.host = config.host;
  options.port = config.port < 0 ? own_port : config.port;
  options.handler_threads = config.handler_threads;
  options.security = {.cert_file = config.tls.cert_file,
                      .key_file = config.tls.key_file,
                      .ca_file = config.tls.ca_file,
                      .insecure = config.tls.insecure};
  options.metrics = worker.metrics;
  return options;
}

// Null: none is asked for.
Result<std::unique_ptr<MetricsServer>> StartMetrics(const WorkerProcess& worker) {
  const WorkerConfig& config = worker.config;
  if (config.metrics_port < 0) return std::unique_ptr<MetricsServer>();
  return StartMetricsServer(config.metrics_host, config.metrics_port, worker.metrics);
}

}  // namespace

Result<int> RunWorker(const WorkerProcess& worker) {
  SetLogTimes(true);
  TALON_RETURN_IF_ERROR(CheckWorkerConfig(worker.config));
  TALON_ASSIGN_OR_RETURN(const auto server,
                         RpcServer::Start(MakeServerOptions(worker), worker.service));
  TALON_ASSIGN_OR_RETURN(const auto metrics, StartMetrics(worker));
  TALON_ASSIGN_OR_RETURN(const std::string announcement, worker.load());
  TALON_RETURN_IF_ERROR(CatchStopSignals());
  server->SetServing(true);
  if (metrics != nullptr) {
    std::fprintf(stderr, "metrics at http://%s:%d/metrics\n", worker.config.metrics_host.c_str(),
                 metrics->port());
  }
  std::fprintf(stderr, "%slistening on %s\n", announcement.c_str(), server->address().c_str());
  std::fflush(stderr);
  WaitForStopSignal(worker.config.shutdown_timeout);
  const std::chrono::seconds grace_period(worker.config.shutdown_timeout);
  server->Drain();
  worker.finish(grace_period);
  server->Stop(grace_period);
  return worker.health().ok() ? kExitOk : kExitStopped;
}

}  // namespace talon
