// The settings of workers and of their clients.
#include "model/sampling/sampling_params.h"
#include "setup/setting_rows.h"

namespace talon {
namespace {

constexpr Range kPortOrDefault{-1, 65535};
constexpr Range kOrNoLimit{0, 1 << 30};

void AddTlsSettings(TlsConfig* t, RowAdder add) {
  add("tls_cert_file", &t->cert_file, "Own certificate, PEM", ValueName{"FILE"});
  add("tls_key_file", &t->key_file, "Its key, PEM", ValueName{"FILE"});
  add("tls_ca_file", &t->ca_file,
      "Authority that the other side's certificate must be signed by, PEM", ValueName{"FILE"});
  add("insecure", &t->insecure, "Plaintext also beyond this machine; anyone there can read it");
}

}  // namespace

void AddWorkerSettings(WorkerConfig* w, std::vector<Setting>* rows) {
  RowAdder add(kWorkerGroup, rows);
  add("host", &w->host, "Address to listen on; 0.0.0.0 = all, which needs TLS or --insecure");
  add("port", &w->port, "Port to listen on; 0 = any that is free, -1 = 50051 (draft) or 50052",
      kPortOrDefault);
  add("handler_threads", &w->handler_threads, "Calls served at once; others wait", Range{1, 1024});
  add("max_sessions", &w->max_sessions,
      "Sessions kept; the one that was idle longest makes room for a new one", Range{1, 65536});
  add("session_ttl_seconds", &w->session_ttl_seconds, "Idle sessions end after this many seconds",
      Range{30, kDaySeconds});
  add("max_tree_nodes", &w->max_tree_nodes, "Largest tree of a call", Range{1, 1 << 16});
  add("max_prompt_tokens", &w->max_prompt_tokens, "Longest prompt of a call", Range{1, 1 << 24});
  add("shutdown_timeout", &w->shutdown_timeout,
      "Seconds that calls may still take after Ctrl-C or SIGTERM", kSecondsOfADay);
  add("metrics_port", &w->metrics_port,
      "Port of GET /metrics (Prometheus, HTTP); 0 = any that is free, -1 = none", kPortOrDefault);
  add("metrics_host", &w->metrics_host, "Address of GET /metrics");
  AddTlsSettings(&w->tls, add);
}

void AddDraftWorkerSettings(WorkerConfig* w, std::vector<Setting>* rows) {
  RowAdder add(kWorkerGroup, rows);
  add("max_draft_tokens", &w->max_draft_tokens, "Longest draft of a call that does not say",
      Range{1, 64});
  add("num_beams", &w->num_beams, "Branches at the root for a call that does not say",
      Range{1, 16});
  add("draft_temperature", &w->draft_temperature, "Temperature of a call that does not say",
      SamplingParams::kTemperatureRange);
}

void AddRemoteSettings(RemoteConfig* r, std::vector<Setting>* rows) {
  RowAdder add(kRemoteGroup, rows);
  add("draft_address", &r->draft_address, "Draft worker, as HOST:PORT", ValueName{"ADDRESS"});
  add("timeout_s", &r->timeout_s, "Seconds a round may take, retries included",
      Range{0.001, kDaySeconds});
  add("max_draft_tokens", &r->max_draft_tokens, "Longest draft asked for", Range{1, 64});
  add("num_beams", &r->num_beams, "Guesses of the next token asked for; 1 = a chain", Range{1, 16});
  add("draft_nodes", &r->draft_nodes,
      "Nodes of a tree asked for; 0 = as --num-beams and --max-draft-tokens give", Range{0, 2048});
  add("draft_temperature", &r->draft_temperature, "Temperature of drafts; -1 = as --temperature",
      Range{.low = 0, .high = 100, .also = -1});
  add("overlap", &r->overlap, "Draft the next round while the target verifies this one");
  add("adaptive_length", &r->adaptive_length,
      "Draft longer where drafts are accepted, shorter or not at all where they are not");
  add("strict_vocab_check", &r->strict_vocab_check,
      "Refuse workers of different vocabularies; false: translate between them");
  add("simulated_rtt_ms", &r->simulated_rtt_ms, "Delay added to every call, in milliseconds",
      Range{0, 60000});
  AddTlsSettings(&r->tls, add);
}

void AddTargetSettings(RemoteConfig* r, std::vector<Setting>* rows) {
  RowAdder add(kRemoteGroup, rows);
  add("target_address", &r->target_address,
      "Target worker, as HOST:PORT; none = the model runs here", ValueName{"ADDRESS"});
  add("max_rounds", &r->max_rounds, "Rounds at most; 0 = no limit", kOrNoLimit);
  add("max_output_tokens", &r->max_output_tokens,
      "New tokens at most, beside --max-tokens; 0 = no limit", kOrNoLimit);
  add("max_context_window", &r->max_context_window,
      "Tokens of prompt and output at most; 0 = the target's limit", kOrNoLimit);
  add("telemetry", &r->telemetry,
      "Write rounds and calls to this file: .csv, .trace.json (ui.perfetto.dev) or JSON",
      ValueName{"FILE"});
}

}  // namespace talon
