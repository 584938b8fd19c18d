#include "apps/run_server.h"

#include <malloc.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/common/stop_signal.h"
#include "apps/common/table.h"
#include "apps/run_remote.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/engine_thread.h"
#include "serve/http/guard/host_policy.h"
#include "serve/http/http_server.h"
#include "serve/http/prompt_tokens.h"
#include "setup/chat.h"
#include "setup/generation_defaults.h"
#include "setup/loader.h"
#include "setup/settings.h"

namespace talon {
namespace {

constexpr const char* kApiKeyVariable = "TALON_API_KEY";

// As many files as the system lets us open, because connections are files.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Large blocks go back to the system when they are freed. Small ones (the tree of a large body has
// many) stay with the arena of their thread, and there would be eight arenas for each core.
void LimitAllocator() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 4);
}

// Those of the file, and the one given by the flag or else by the environment.
Result<ApiKeys> MakeApiKeys(const ServeConfig& serve) {
  ApiKeys keys;
  if (!serve.api_key_file.empty()) {
    TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(serve.api_key_file));
    TALON_ASSIGN_OR_RETURN(keys, ApiKeys::Parse(text, serve.api_key_file));
  }
  const char* variable = std::getenv(kApiKeyVariable);
  if (!serve.api_key.empty()) {
    TALON_RETURN_IF_ERROR(keys.Add(serve.api_key, "api_key"));
  } else if (variable != nullptr) {
    TALON_RETURN_IF_ERROR(keys.Add(variable, kApiKeyVariable));
  }
  return keys;
}

Result<HttpOptions> MakeHttpOptions(const ServeConfig& serve) {
  HttpOptions options;
  options.listen.host = serve.host;
  options.listen.port = serve.port;
  options.listen.max_connections = serve.max_connections;
  options.listen.limits.read = std::chrono::seconds(serve.read_timeout);
  options.max_request_bytes = static_cast<size_t>(serve.max_request_bytes);
  options.max_inflight_bytes = static_cast<size_t>(serve.max_inflight_bytes);
  options.cors_origin = serve.cors_origin;
  options.allowed_hosts = serve.allowed_host;
  options.version = TALON_VERSION;
  TALON_ASSIGN_OR_RETURN(options.keys, MakeApiKeys(serve));
  return options;
}

std::string DescribeChat(const ServeParts& parts, const ServeConfig& serve) {
  if (parts.tokenizer == nullptr) return "refused, the model has no tokenizer";
  if (parts.chat_template == nullptr) {
    return "refused, the model has no chat template (--chat-template)";
  }
  return serve.chat_template.empty() ? "by the model's template" : "by " + serve.chat_template;
}

// The banner: a table, or one line of the log.
void Announce(const ServeParts& parts, const LoadedModel& model, const Config& config,
              bool needs_key, const std::string& address) {
  const EngineOptions& options = parts.engine->engine().options();
  const std::string backend = model.backend->info().description;
  const int context = ContextTokens(*parts.engine);
  const int kv_tokens = parts.engine->snapshot().blocks * options.block_size;
  const std::string chat = DescribeChat(parts, config.serve);
  const auto kv_bytes = static_cast<int64_t>(parts.engine->engine().kv().bytes());
  if (config.log_format == "json") {
    const std::array<LogField, 9> fields = {{{"model", parts.model_name},
                                             {"backend", backend},
                                             {"context", context},
                                             {"max_sequences", options.max_sequences},
                                             {"kv_tokens", kv_tokens},
                                             {"kv_bytes", kv_bytes},
                                             {"drafter", parts.defaults.drafter},
                                             {"chat", chat},
                                             {"needs_key", needs_key}}};
    const std::string line =
        FormatLogLine(LogFormat::kJson, {.time = std::chrono::system_clock::now(),
                                         .message = "listening on " + address,
                                         .fields = fields});
    std::fprintf(stderr, "%s\n", line.c_str());
  } else {
    Table table({});
    table.Add({"model", fmt::format("{} on {}", parts.model_name, backend)});
    table.Add({"context",
               fmt::format("{} tokens, {} sequences at once", context, options.max_sequences)});
    table.Add({"KV pool", fmt::format("{} tokens, {}", kv_tokens,
                                      FormatBytes(static_cast<double>(kv_bytes)))});
    table.Add({"drafter", parts.draft_model.empty()
                              ? parts.defaults.drafter
                              : parts.defaults.drafter + " with " + parts.draft_model});
    const auto suggested = UsedGenerationDefaults(config);
    if (suggested.ok() && !suggested->empty()) {
      table.Add({"sampling", suggested->ToString() + " where a request does not say"});
    }
    table.Add({"chat", chat});
    table.Add({"access", needs_key ? "with an API key" : "no key needed"});
    std::fprintf(stderr, "%slistening on %s\n", table.ToString(/*all_left=*/true).c_str(),
                 address.c_str());
  }
  std::fflush(stderr);
}

// Serves until a signal or until the engine stops; then lets requests finish. The exit code.
Result<int> ServeUntilStopped(const Config& config, const HttpOptions& options,
                              const LoadedModel& model, const ServeParts& parts) {
  TALON_RETURN_IF_ERROR(CatchStopSignals());  // before a request can stop the engine
  TALON_ASSIGN_OR_RETURN(const auto server, HttpServer::Start(parts, options));
  const bool v6 = config.serve.host.find(':') != std::string::npos;
  const std::string host = v6 ? fmt::format("[{}]", config.serve.host) : config.serve.host;
  const bool needs_key = options.keys.required();
  Announce(parts, model, config, needs_key, fmt::format("http://{}:{}", host, server->port()));
  if (!needs_key && !IsLoopback(config.serve.host)) {
    LogWarning("other machines can use this server without a key (--api-key)");
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
  SetLogTimes(true);
  TALON_RETURN_IF_ERROR(CheckSettings(config, kServeSettings | kChatSettings));
  TALON_ASSIGN_OR_RETURN(const HttpOptions options, MakeHttpOptions(config.serve));
  RaiseFileLimit();
  LimitAllocator();
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config));
  if (model->engine_options.kv_tokens == 0) {
    model->engine_options.kv_tokens = DefaultKvTokens(*model, model->engine_options.max_sequences);
  }
  TALON_ASSIGN_OR_RETURN(const std::optional<Chat> chat, LoadChat(config.serve, *model));
  TALON_ASSIGN_OR_RETURN(auto engine, MakeEngine(model.get(), config, model->drafters));
  TALON_ASSIGN_OR_RETURN(const auto suggested, UsedGenerationDefaults(config));
  ApiDefaults defaults{.drafter = model->drafters.Name()};
  suggested.Apply(&defaults.sampling);
  if (chat) {
    defaults.tool_format = chat->tool_format;
    defaults.takes_tools = chat->chat_template.Reads("tools");
    defaults.takes_reasoning_effort = chat->chat_template.Reads("reasoning_effort");
  }
  const GrammarCompiler grammars(model->tokenizer.get());
  EngineThread thread(std::move(engine), config.serve.max_waiting, RequestStop);
  const ServeParts parts{
      .engine = &thread,
      .tokenizer = model->tokenizer.get(),
      .chat_template = chat ? &chat->chat_template : nullptr,
      .control_tokens =
          chat && !config.serve.allow_special_in_content ? &chat->control_tokens : nullptr,
      .ends_of_turn = chat ? chat->ends_of_turn : std::vector<int32_t>(),
      .model_name = config.serve.served_model_name.empty() ? ShortModelName(model->name)
                                                           : config.serve.served_model_name,
      .draft_model = DraftModelDir(*model).empty() ? "" : ShortModelName(DraftModelDir(*model)),
      .defaults = defaults,
      .grammars = &grammars,
      .request_timeout = std::chrono::seconds(config.serve.request_timeout)};
  return ServeUntilStopped(config, options, *model, parts);
}

}  // namespace talon
