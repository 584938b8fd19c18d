#include "apps/run_server.h"

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "apps/commands.h"
#include "apps/common/stop_signal.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/engine_thread.h"
#include "serve/http/http_server.h"
#include "serve/http/prompt_tokens.h"
#include "setup/loader.h"
#include "setup/settings.h"

namespace talon {
namespace {

// As many files as the system lets us open, because connections are files.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Result<HttpOptions> MakeHttpOptions(const ServeConfig& serve) {
  HttpOptions options;
  options.listen.host = serve.host;
  options.listen.port = serve.port;
  options.listen.max_connections = serve.max_connections;
  options.listen.limits.read = std::chrono::seconds(serve.read_timeout);
  options.max_request_bytes = static_cast<size_t>(serve.max_request_bytes);
  options.cors_origin = serve.cors_origin;
  options.version = TALON_VERSION;
  if (!serve.api_key_file.empty()) {
    TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(serve.api_key_file));
    TALON_ASSIGN_OR_RETURN(options.keys, ApiKeys::Parse(text, serve.api_key_file));
  }
  return options;
}

void Announce(const ServeParts& parts, const LoadedModel& model, const Config& config,
              const std::string& address) {
  const EngineOptions& options = parts.engine->engine().options();
  Table table({});
  table.Add({"model", fmt::format("{} on {}", parts.model_name, model.backend->description())});
  table.Add({"context", fmt::format("{} tokens, {} sequences at once", ContextTokens(*parts.engine),
                                    options.max_sequences)});
  table.Add({"KV pool",
             fmt::format("{} tokens, {}", parts.engine->snapshot().blocks * options.block_size,
                         FormatBytes(static_cast<double>(parts.engine->engine().kv().bytes())))});
  table.Add({"drafter", parts.drafter_name});
  table.Add({"access", config.serve.api_key_file.empty() ? "no key needed" : "with an API key"});
  std::fprintf(stderr, "%slistening on %s\n", table.ToString(/*all_left=*/true).c_str(),
               address.c_str());
  std::fflush(stderr);
}

bool OnlyThisMachine(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Serves until a signal or until the engine stops; then lets requests finish. The exit code.
Result<int> ServeUntilStopped(const Config& config, const HttpOptions& options,
                              const LoadedModel& model, const ServeParts& parts) {
  TALON_ASSIGN_OR_RETURN(const auto server, HttpServer::Start(parts, options));
  TALON_RETURN_IF_ERROR(CatchStopSignals());
  const bool v6 = config.serve.host.find(':') != std::string::npos;
  const std::string host = v6 ? fmt::format("[{}]", config.serve.host) : config.serve.host;
  Announce(parts, model, config, fmt::format("http://{}:{}", host, server->port()));
  if (config.serve.api_key_file.empty() && !OnlyThisMachine(config.serve.host)) {
    LogWarning("other machines can use this server without a key (--api-key-file)");
  }
  WaitForStopSignal(config.serve.shutdown_timeout);
  server->Drain();
  parts.engine->Shutdown(std::chrono::seconds(config.serve.shutdown_timeout));
  server->Stop();
  return parts.engine->snapshot().health.ok() ? kExitOk : kExitStopped;
}

}  // namespace

Result<int> RunServer(Config config) {
  config.touch_memory = true;
  TALON_RETURN_IF_ERROR(CheckSettings(config, kServeSettings));
  TALON_ASSIGN_OR_RETURN(const HttpOptions options, MakeHttpOptions(config.serve));
  RaiseFileLimit();
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config));
  if (model->engine_options.kv_tokens == 0) {
    model->engine_options.kv_tokens = DefaultKvTokens(*model, model->engine_options.max_sequences);
  }
  std::optional<ChatTemplate> chat;
  if (model->tokenizer != nullptr) {
    TALON_ASSIGN_OR_RETURN(chat, ChatTemplate::Load(model->name));
  }
  TALON_ASSIGN_OR_RETURN(auto engine, MakeEngine(model.get(), config, model->drafters));
  EngineThread thread(std::move(engine), config.serve.max_waiting, RequestStop);
  const ServeParts parts{.engine = &thread,
                         .tokenizer = model->tokenizer.get(),
                         .chat_template = chat ? &*chat : nullptr,
                         .model_name = config.serve.served_model_name.empty()
                                           ? ShortModelName(model->name)
                                           : config.serve.served_model_name,
                         .drafter_name = model->drafters.Name(),
                         .request_timeout = std::chrono::seconds(config.serve.request_timeout)};
  return ServeUntilStopped(config, options, *model, parts);
}

}  // namespace talon
