#include "setup/config.h"

#include <algorithm>

namespace talon {
namespace {

// What the help calls a value, and what an error says it must be.
struct Kind {
  const char* name;
  const char* meaning;
};

Kind KindOf(const bool*) { return {"BOOL", "true or false"}; }
Kind KindOf(const int*) { return {"N", "a whole number"}; }
Kind KindOf(const int64_t*) { return {"N", "a whole number"}; }
Kind KindOf(const float*) { return {"X", "a number"}; }
Kind KindOf(const std::string*) { return {"TEXT", "text"}; }
Kind KindOf(const std::vector<std::string>*) { return {"TEXT", "a list of texts"}; }
Kind KindOf(const std::vector<int>*) { return {"N", "a list of whole numbers"}; }

std::string FlagOf(const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

void AddModelSettings(Config* c, std::vector<Setting>* out) {
  const auto add = [&](const char* key, auto* value, const char* help, const char* kind = nullptr) {
    out->push_back(
        {"", key, FlagOf(key), help, kind != nullptr ? kind : KindOf(value).name, value});
  };
  add("model", &c->model, "Model directory in Hugging Face format; none = the bundled model",
      "DIR");
  add("device", &c->device, "cpu, cuda or cuda:N, as far as this build has them (--version)");
  add("deterministic", &c->deterministic,
      "cuda: the same bits whatever the batch, so the same text as plain decoding; the CPU always "
      "does so");
  add("threads", &c->threads, "Threads; 0 = all cores this process may use");
  add("weights", &c->weights, "auto (as stored), f32, f16, bf16, int8 or int4 (quantised at load)");
  add("kv_dtype", &c->kv_dtype, "Type of the KV cache: f32, f16 or bf16");
  add("block_size", &c->block_size, "Tokens per KV block: 8, 16, 32 or 64");
  add("max_length", &c->max_length, "Longest sequence in tokens; 0 = the model's context");
  add("kv_tokens", &c->kv_tokens, "Size of the KV pool in tokens; 0 = as much as is needed");
  add("max_sequences", &c->max_sequences, "Sequences that run at once");
  add("prefill_chunk", &c->prefill_chunk, "Prompt tokens computed per step");
  add("kv_offload", &c->kv_offload,
      "Keep K and V in host memory; with SpecPV partial steps read a copy of their blocks on the "
      "GPU");
  add("enable_prefix_cache", &c->enable_prefix_cache,
      "Keep the K and V of earlier requests; equal prompt beginnings skip their pass");
  add("kv_audit", &c->kv_audit, "Hash committed KV and fail if a verified prefix ever changes");
  add("log_level", &c->log_level, "debug, info, warning, error or off");
  add("log_format", &c->log_format, "text, or json: one object per line");
  add("trace", &c->trace,
      "Write steps, passes and requests to this file, for ui.perfetto.dev or chrome://tracing");
}

void AddSamplingSettings(SamplingConfig* s, std::vector<Setting>* out) {
  const auto add = [&](const char* key, auto* value, const char* help) {
    out->push_back({"", key, FlagOf(key), help, KindOf(value).name, value});
  };
  add("max_tokens", &s->max_tokens, "New tokens at most");
  add("temperature", &s->temperature, "0 = greedy; higher is more random");
  add("top_k", &s->top_k, "Draw from the k most likely tokens; 0 = off");
  add("top_p", &s->top_p, "Draw from the smallest set with this probability; 1 = off");
  add("min_p", &s->min_p, "Drop tokens below this share of the most likely one's; 0 = off");
  add("repetition_penalty", &s->repetition_penalty,
      "Makes tokens of prompt and output less likely; 1 = off");
  add("frequency_penalty", &s->frequency_penalty,
      "Taken off a logit per occurrence in the output; 0 = off");
  add("presence_penalty", &s->presence_penalty,
      "Taken off once if a token is in the output; 0 = off");
  add("logit_bias", &s->logit_bias, "Added to logits: token=bias, e.g. 17=-2.5,42=1");
  add("bad_words", &s->bad_words,
      "Texts that must not appear, one per line: the tokens of each are banned, with and without a "
      "space before it");
  add("min_tokens", &s->min_tokens, "No end of text before this many tokens");
  add("ignore_eos", &s->ignore_eos, "Go on after the end-of-text token");
  add("stop", &s->stop, "Text that ends the output (not part of it); may be repeated");
  add("stop_token_ids", &s->stop_token_ids, "Token ids that end the output, separated by commas");
  add("seed", &s->seed, "Seed of the draws; -1 = random, reported in the statistics");
  add("logprobs", &s->logprobs,
      "With --json: log-probs of this many most likely tokens; -1 = none");
}

void AddServeSettings(ServeConfig* s, std::vector<Setting>* out) {
  const auto add = [&](const char* key, auto* value, const char* help, const char* kind = nullptr) {
    out->push_back(
        {"", key, FlagOf(key), help, kind != nullptr ? kind : KindOf(value).name, value});
  };
  add("host", &s->host, "Address to listen on; 0.0.0.0 = all, reachable from other machines");
  add("port", &s->port, "Port to listen on; 0 = any that is free");
  add("api_key_file", &s->api_key_file,
      "File with one key per line; clients must send one as Authorization: Bearer KEY", "FILE");
  add("cors_origin", &s->cors_origin,
      "Web pages of this origin (* = all) may use the server; none = only its own page");
  add("max_connections", &s->max_connections, "Connections open at once");
  add("max_request_bytes", &s->max_request_bytes, "Largest body of a request");
  add("max_waiting", &s->max_waiting, "Requests that may wait; more are refused (429)");
  add("read_timeout", &s->read_timeout, "Seconds for a client to send a header, and a body");
  add("request_timeout", &s->request_timeout,
      "Seconds after which a request is cancelled; 0 = never");
  add("served_model_name", &s->served_model_name,
      "The model's name in the API; none = its directory's");
  add("shutdown_timeout", &s->shutdown_timeout,
      "Seconds that requests may still take after Ctrl-C or SIGTERM");
}

void AddSpeculativeSettings(SpeculativeConfig* s, std::vector<Setting>* out) {
  const auto add = [&](const char* key, const char* flag, auto* value, const char* help,
                       const char* kind = nullptr) {
    out->push_back(
        {kSpeculativeGroup, key, flag, help, kind != nullptr ? kind : KindOf(value).name, value});
  };
  add("enable_speculative_decoding", "--enable-speculative-decoding",
      &s->enable_speculative_decoding, "false: plain decoding whatever the method");
  add("enable_target_tree", "--enable-target-tree", &s->enable_target_tree,
      "false: the target verifies no trees, which is plain decoding");
  out->back().alias = "enable_eagle_target_tree";
  add("method", "--speculative-algorithm", &s->method,
      "NONE, EAGLE3, NGRAM, REMOTE, SUFFIX, STANDALONE, or several as a list (MERGED)");
  add("draft_model_path", "--speculative-draft-model-path", &s->draft_model_path,
      "Directory of the EAGLE3 head or the STANDALONE model", "DIR");
  add("draft_weights", "--speculative-draft-weights", &s->draft_weights,
      "Weights of the draft model: auto (as stored), f32, f16, bf16, int8 or int4");
  add("draft_window_size", "--speculative-draft-window-size", &s->draft_window_size,
      "EAGLE3: a draft row sees this many last rows; 0 = all, -1 = all, or with SpecPV as many "
      "as a partial step reads");
  add("draft_sink_size", "--speculative-draft-sink-size", &s->draft_sink_size,
      "EAGLE3: and this many first rows, where there is a window");
  add("eagle3_capture_layers", "--eagle3-capture-layers", &s->eagle3_capture_layers,
      "EAGLE3: layers whose input the head reads; none = as its config says");
  add("num_steps", "--speculative-num-steps", &s->num_steps,
      "Depth of the draft tree; 0 = the method's default");
  add("eagle_topk", "--speculative-eagle-topk", &s->eagle_topk,
      "Branches per expansion of a tree drafter; 0 = the method's default");
  add("num_draft_tokens", "--speculative-num-draft-tokens", &s->num_draft_tokens,
      "Nodes of a tree, root included; 0 = the method's default");
  add("acceptance", "--speculative-acceptance", &s->acceptance,
      "match (exact, same text as plain), threshold (lossy; implied by a threshold below 1) or "
      "rejection (exact in distribution)");
  add("accept_threshold_single", "--speculative-accept-threshold-single",
      &s->accept_threshold_single, "Accept a draft of at least this probability; below 1 is lossy");
  add("accept_threshold_acc", "--speculative-accept-threshold-acc", &s->accept_threshold_acc,
      "Divides the cumulative probability of drafts; below 1 is lossy");
  add("adaptive", "--speculative-adaptive", &s->adaptive,
      "Choose the number of nodes by measured cost and acceptance, down to none");
  add("verify_curve", "--speculative-verify-curve", &s->verify_curve,
      "File of the verify curve: loaded if it exists, else measured and saved", "FILE");
  add("draft_min_prob", "--draft-min-prob", &s->draft_min_prob,
      "Drop drafts whose path probability is below this");
  add("enable_nwor", "--enable-nwor", &s->enable_nwor,
      "No-write-on-reject: stage tree rows, write accepted ones only");
  add("scv_chunk_size", "--scv-chunk-size", &s->scv_chunk_size,
      "Verify trees in chunks of this many nodes; 0 = in one pass");
  add("ngram_mode", "--ngram-mode", &s->ngram_mode, "BFS or PROB");
  add("ngram_max_depth", "--ngram-max-depth", &s->ngram_max_depth, "Longest n-gram kept");
  add("suffix_corpus", "--suffix-corpus", &s->suffix_corpus,
      "SUFFIX knows this file's documents from the start, one per line: text, or JSON: \"text\", "
      "{\"prompt\": text}, [token ids] or {\"tokens\": [ids]}",
      "FILE");
}

void AddSpecPvSettings(SpecPvSettings* s, std::vector<Setting>* out) {
  const auto add = [&](const char* key, auto* value, const char* help) {
    out->push_back({kSpeculativeGroup, key, FlagOf(key), help, KindOf(value).name, value});
  };
  SpecPvConfig& v = s->values;
  add("enable_specpv", &v.enabled,
      "Partial verification: long sequences are verified over chosen KV blocks, and now and then "
      "in full");
  add("specpv_mode", &s->mode,
      "exact (full passes re-check; same text as without) or fast (never re-checked, lossy)");
  add("specpv_block_size", &v.block_size, "Tokens per block; must equal --block-size");
  add("specpv_n_sink_blocks", &v.sink_blocks, "First blocks, always read");
  add("specpv_n_retrieval_blocks", &v.retrieval_blocks, "Blocks chosen by the selector");
  add("specpv_n_window_blocks", &v.window_blocks, "Last blocks, always read");
  add("specpv_n_spec_tokens_buf", &v.buffer_tokens,
      "Room for provisional tokens and a tree; at least tree + depth + 1");
  add("specpv_partial_threshold", &v.partial_threshold,
      "Sequences up to this many tokens are verified in full");
  add("specpv_full_refresh_interval", &v.full_refresh_interval,
      "Partial steps between full passes at most");
  out->back().alias = "specpv_full_refresh_steps";
  add("specpv_selector", &s->selector, "quest, quest_bound, h2o, streaming or sliding");
  add("specpv_reduce", &s->reduce, "Over a pass's queries: mean, max or root (the root's only)");
  add("specpv_adaptive", &v.adaptive, "Fewer retrieved blocks for very long requests");
  add("specpv_shadow_rate", &v.shadow_rate,
      "Share of partial steps that are also run in full, to measure the difference");
  add("specpv_error_target", &v.error_target,
      "Disagreement with full verification that sets the refresh interval; 0 = off");
}

// Adds settings whose flag follows from the key to a group.
class GroupAdder {
 public:
  GroupAdder(const char* group, std::vector<Setting>* out) : group_(group), out_(out) {}

  template <typename T>
  void operator()(const char* key, T* value, const char* help, const char* kind = nullptr) {
    out_->push_back(
        {group_, key, FlagOf(key), help, kind != nullptr ? kind : KindOf(value).name, value});
  }

 private:
  const char* group_;
  std::vector<Setting>* out_;
};

void AddTlsSettings(TlsConfig* t, GroupAdder* add) {
  (*add)("tls_cert_file", &t->cert_file, "Own certificate, PEM", "FILE");
  (*add)("tls_key_file", &t->key_file, "Its key, PEM", "FILE");
  (*add)("tls_ca_file", &t->ca_file,
         "Authority that the other side's certificate must be signed by, PEM", "FILE");
  (*add)("insecure", &t->insecure, "Plaintext also beyond this machine; anyone there can read it");
}

void AddWorkerSettings(WorkerConfig* w, std::vector<Setting>* out) {
  GroupAdder add(kWorkerGroup, out);
  add("host", &w->host, "Address to listen on; 0.0.0.0 = all, which needs TLS or --insecure");
  add("port", &w->port, "Port to listen on; 0 = any that is free, -1 = 50051 (draft) or 50052");
  add("handler_threads", &w->handler_threads, "Calls served at once; others wait");
  add("max_sessions", &w->max_sessions,
      "Sessions kept; the one that was idle longest makes room for a new one");
  add("session_ttl_seconds", &w->session_ttl_seconds,
      "Idle sessions end after this many seconds, at least 30");
  add("max_tree_nodes", &w->max_tree_nodes, "Largest tree of a call");
  add("max_prompt_tokens", &w->max_prompt_tokens, "Longest prompt of a call");
  add("shutdown_timeout", &w->shutdown_timeout,
      "Seconds that calls may still take after Ctrl-C or SIGTERM");
  add("metrics_port", &w->metrics_port,
      "Port of GET /metrics (Prometheus, HTTP); 0 = any that is free, -1 = none");
  add("metrics_host", &w->metrics_host, "Address of GET /metrics");
  AddTlsSettings(&w->tls, &add);
}

void AddDraftWorkerSettings(WorkerConfig* w, std::vector<Setting>* out) {
  GroupAdder add(kWorkerGroup, out);
  add("max_draft_tokens", &w->max_draft_tokens, "Longest draft of a call that does not say");
  add("num_beams", &w->num_beams, "Branches at the root for a call that does not say");
  add("draft_temperature", &w->draft_temperature, "Temperature of a call that does not say");
}

void AddRemoteSettings(RemoteConfig* r, std::vector<Setting>* out) {
  GroupAdder add(kRemoteGroup, out);
  add("draft_address", &r->draft_address, "Draft worker, as HOST:PORT", "ADDRESS");
  add("target_address", &r->target_address,
      "Target worker, as HOST:PORT; none = the model runs here", "ADDRESS");
  add("max_rounds", &r->max_rounds, "Rounds at most; 0 = no limit");
  add("timeout_s", &r->timeout_s, "Seconds a round may take, retries included");
  add("max_output_tokens", &r->max_output_tokens,
      "New tokens at most, beside --max-tokens; 0 = no limit");
  add("max_context_window", &r->max_context_window,
      "Tokens of prompt and output at most; 0 = the target's limit");
  add("max_draft_tokens", &r->max_draft_tokens, "Longest draft asked for");
  add("num_beams", &r->num_beams, "Guesses of the next token asked for; 1 = a chain");
  add("draft_nodes", &r->draft_nodes,
      "Nodes of a tree asked for; 0 = as --num-beams and --max-draft-tokens give");
  add("draft_temperature", &r->draft_temperature, "Temperature of drafts; -1 = as --temperature");
  add("overlap", &r->overlap, "Draft the next round while the target verifies this one");
  add("adaptive_length", &r->adaptive_length,
      "Draft longer where drafts are accepted, shorter or not at all where they are not");
  add("strict_vocab_check", &r->strict_vocab_check,
      "Refuse workers of different vocabularies; false: translate between them");
  add("simulated_rtt_ms", &r->simulated_rtt_ms, "Delay added to every call, in milliseconds");
  add("telemetry", &r->telemetry,
      "Write rounds and calls to this file: .csv, .trace.json (ui.perfetto.dev) or JSON", "FILE");
  AddTlsSettings(&r->tls, &add);
}

Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument("{}: {}, must be {} to {}", name, value, low, high);
}

}  // namespace

std::vector<Setting> SettingsOf(Config* config, unsigned sets) {
  std::vector<Setting> settings;
  if ((sets & kModelSettings) != 0) AddModelSettings(config, &settings);
  if ((sets & kSamplingSettings) != 0) AddSamplingSettings(&config->sampling, &settings);
  if ((sets & kSpeculativeSettings) != 0) {
    AddSpeculativeSettings(&config->speculative, &settings);
    AddSpecPvSettings(&config->speculative.specpv, &settings);
  }
  if ((sets & kServeSettings) != 0) AddServeSettings(&config->serve, &settings);
  if ((sets & kWorkerSettings) != 0) AddWorkerSettings(&config->worker, &settings);
  if ((sets & kDraftWorkerSettings) != 0) AddDraftWorkerSettings(&config->worker, &settings);
  if ((sets & kRemoteSettings) != 0) AddRemoteSettings(&config->remote, &settings);
  return settings;
}

Status CheckWorkerConfig(const WorkerConfig& worker) {
  constexpr int kDay = 24 * 3600;
  TALON_RETURN_IF_ERROR(CheckRange("port", worker.port, -1, 65535));
  TALON_RETURN_IF_ERROR(CheckRange("metrics_port", worker.metrics_port, -1, 65535));
  TALON_RETURN_IF_ERROR(CheckRange("handler_threads", worker.handler_threads, 1, 1024));
  TALON_RETURN_IF_ERROR(CheckRange("max_sessions", worker.max_sessions, 1, 65536));
  TALON_RETURN_IF_ERROR(CheckRange("session_ttl_seconds", worker.session_ttl_seconds, 30, kDay));
  TALON_RETURN_IF_ERROR(CheckRange("max_tree_nodes", worker.max_tree_nodes, 1, 1 << 16));
  TALON_RETURN_IF_ERROR(CheckRange("max_prompt_tokens", worker.max_prompt_tokens, 1, 1 << 24));
  TALON_RETURN_IF_ERROR(CheckRange("shutdown_timeout", worker.shutdown_timeout, 0, kDay));
  TALON_RETURN_IF_ERROR(CheckRange("max_draft_tokens", worker.max_draft_tokens, 1, 64));
  TALON_RETURN_IF_ERROR(CheckRange("num_beams", worker.num_beams, 1, 16));
  return CheckRange("draft_temperature", worker.draft_temperature, 0, 100);
}

Status CheckRemoteConfig(const RemoteConfig& remote) {
  constexpr int kMost = 1 << 30;
  TALON_RETURN_IF_ERROR(CheckRange("max_rounds", remote.max_rounds, 0, kMost));
  TALON_RETURN_IF_ERROR(CheckRange("timeout_s", remote.timeout_s, 0.001, 24 * 3600));
  TALON_RETURN_IF_ERROR(CheckRange("max_output_tokens", remote.max_output_tokens, 0, kMost));
  TALON_RETURN_IF_ERROR(CheckRange("max_context_window", remote.max_context_window, 0, kMost));
  TALON_RETURN_IF_ERROR(CheckRange("max_draft_tokens", remote.max_draft_tokens, 1, 64));
  TALON_RETURN_IF_ERROR(CheckRange("num_beams", remote.num_beams, 1, 16));
  TALON_RETURN_IF_ERROR(CheckRange("draft_nodes", remote.draft_nodes, 0, 2048));
  if (remote.draft_temperature != -1) {
    TALON_RETURN_IF_ERROR(CheckRange("draft_temperature", remote.draft_temperature, 0, 100));
  }
  return CheckRange("simulated_rtt_ms", remote.simulated_rtt_ms, 0, 60000);
}

const char* MeaningOf(const Setting& setting) {
  return std::visit([](auto* value) { return KindOf(value).meaning; }, setting.value);
}

Result<SpecPvConfig> MakeSpecPvConfig(const Config& config) {
  const SpecPvSettings& settings = config.speculative.specpv;
  SpecPvConfig specpv = settings.values;
  TALON_ASSIGN_OR_RETURN(specpv.mode, ParseSpecPvMode(settings.mode));
  TALON_ASSIGN_OR_RETURN(specpv.selector, ParseSpecPvSelector(settings.selector));
  TALON_ASSIGN_OR_RETURN(specpv.reduce, ParseSpecPvReduce(settings.reduce));
  TALON_RETURN_IF_ERROR(ValidateSpecPvConfig(specpv));
  return specpv;
}

}  // namespace talon
