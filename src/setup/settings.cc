// The table itself. Its checks are in check_settings.cc.
#include "setup/settings.h"

#include <algorithm>

#include "model/sampling/sampling_params.h"
#include "setup/device.h"
#include "spec/drafter_list.h"

namespace talon {
namespace {

constexpr Range kShare{0, 1};
constexpr int kDaySeconds = 24 * 3600;
constexpr Range kSecondsOfADay{0, kDaySeconds};
constexpr Range kPort{0, 65535};
constexpr Range kPortOrDefault{-1, 65535};
constexpr Range kOrNoLimit{0, 1 << 30};

// What the help calls a value, and what an error says that it must be.
struct Kind {
  const char* name;
  const char* text;
};

Kind KindOf(const bool*) { return {"BOOL", "true or false"}; }
Kind KindOf(const int*) { return {"N", "a whole number"}; }
Kind KindOf(const int64_t*) { return {"N", "a whole number"}; }
Kind KindOf(const float*) { return {"X", "a number"}; }
Kind KindOf(const std::string*) { return {"TEXT", "text"}; }
Kind KindOf(const std::vector<std::string>*) { return {"TEXT", "a list of texts"}; }
Kind KindOf(const std::vector<int>*) { return {"N", "a list of whole numbers"}; }

// What a row may have besides key, field and meaning.
using Choices = std::vector<SettingChoice>;
enum AnyCase { kAnyCase };  // of the choices
struct Check {
  Status (*function)(const std::string& text);
};
struct ValueName {
  const char* name;
};
struct Flag {
  const char* name;
};
struct Alias {
  const char* name;
};

void Set(const Range& range, Setting* row) { row->range = range; }
void Set(const Choices& choices, Setting* row) { row->choices = choices; }
void Set(AnyCase, Setting* row) { row->any_case = true; }
void Set(Check check, Setting* row) { row->check = check.function; }
void Set(ValueName kind, Setting* row) { row->kind = kind.name; }
void Set(Flag flag, Setting* row) { row->flag = flag.name; }
void Set(Alias alias, Setting* row) { row->alias = alias.name; }

// Adds rows to one group.
class RowAdder {
 public:
  RowAdder(const char* group, std::vector<Setting>* rows) : group_(group), rows_(rows) {}

  template <typename T, typename... More>
  void operator()(const char* key, T* value, const char* meaning, const More&... more) {
    Add("--", key, value, meaning, more...);
  }
  // The flag has a prefix that the key lacks, because within the file the group says it.
  template <typename T, typename... More>
  void Speculative(const char* key, T* value, const char* meaning, const More&... more) {
    Add("--speculative-", key, value, meaning, more...);
  }

 private:
  template <typename T, typename... More>
  void Add(const char* prefix, const std::string& key, T* value, const char* meaning,
           const More&... more) {
    std::string flag = prefix + key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    rows_->push_back({.group = group_,
                      .key = key,
                      .flag = flag,
                      .meaning = meaning,
                      .kind = KindOf(value).name,
                      .value = value});
    (Set(more, &rows_->back()), ...);
  }

  const char* group_;
  std::vector<Setting>* rows_;
};

Choices WeightChoices() {
  return {{"auto", "as stored"},        "f32", "f16", "bf16", {"int8", "quantised at load"},
          {"int4", "quantised at load"}};
}

Choices BlockSizeChoices() { return {"8", "16", "32", "64"}; }

Choices MethodChoices() {
  Choices choices;
  for (const std::string& name : DrafterList::KnownNames()) {
    choices.emplace_back(name.c_str(), name == "MERGED" ? "EAGLE3,SUFFIX" : "");
  }
  return choices;
}

Status CheckDevice(const std::string& name) { return ParseDeviceName(name).status(); }
Status CheckMethod(const std::string& names) { return DrafterList::Parse(names).status(); }

void AddModelSettings(Config* c, std::vector<Setting>* rows) {
  RowAdder add("", rows);
  add("model", &c->model, "Model directory in Hugging Face format; none = the bundled model",
      ValueName{"DIR"});
  add("device", &c->device, "Device, as far as this build has it (--version)",
      Choices{"cpu", "cuda", "cuda:N"}, Check{CheckDevice});
  add("deterministic", &c->deterministic,
      "cuda: the same bits whatever the batch, so the same text as plain decoding; the CPU always "
      "does so");
  add("threads", &c->threads, "Threads; 0 = all cores this process may use", Range{0, 1024});
  add("weights", &c->weights, "Type of the weights", WeightChoices());
  add("kv_dtype", &c->kv_dtype, "Type of the KV cache", Choices{"f32", "f16", "bf16"}, kAnyCase);
  add("block_size", &c->block_size, "Tokens per KV block", BlockSizeChoices());
  add("max_length", &c->max_length, "Longest sequence in tokens; 0 = the model's context",
      Range{0, 1 << 24});
  add("kv_tokens", &c->kv_tokens, "Size of the KV pool in tokens; 0 = as much as is needed",
      Range{0, 1 << 30});
  add("max_sequences", &c->max_sequences, "Sequences that run at once", Range{1, 1024});
  add("prefill_chunk", &c->prefill_chunk, "Prompt tokens computed per step", Range{1, 16384});
  add("kv_offload", &c->kv_offload,
      "Keep K and V in host memory; with SpecPV partial steps read a copy of their blocks on the "
      "GPU");
  add("enable_prefix_cache", &c->enable_prefix_cache,
      "Keep the K and V of earlier requests; equal prompt beginnings skip their pass");
  add("kv_audit", &c->kv_audit, "Check after every step that committed K and V are unchanged (slow); if not, the requests "
      "fail and the engine stops");
  add("log_level", &c->log_level, "Least severe messages that are logged",
      Choices{"debug", "info", "warning", "error", "off"});
  add("log_format", &c->log_format, "Form of log lines",
      Choices{"text", {"json", "one object per line"}});
  add("trace", &c->trace,
      "Write steps, passes and requests to this file, for ui.perfetto.dev or chrome://tracing",
      ValueName{"FILE"});
}

void AddSamplingSettings(SamplingConfig* s, std::vector<Setting>* rows) {
  using P = SamplingParams;
  RowAdder add("", rows);
  add("max_tokens", &s->max_tokens, "New tokens at most", P::kMaxTokensRange);
  add("temperature", &s->temperature, "0 = greedy; higher is more random", P::kTemperatureRange);
  add("top_k", &s->top_k, "Draw from the k most likely tokens; 0 = off", P::kTopKRange);
  add("top_p", &s->top_p, "Draw from the smallest set with this probability; 1 = off",
      P::kProbabilityRange);
  add("min_p", &s->min_p, "Drop tokens below this share of the most likely one's; 0 = off",
      P::kProbabilityRange);
  add("repetition_penalty", &s->repetition_penalty,
      "Makes tokens of prompt and output less likely; 1 = off", P::kRepetitionPenaltyRange);
  add("frequency_penalty", &s->frequency_penalty,
      "Taken off a logit per occurrence in the output; 0 = off", P::kPenaltyRange);
  add("presence_penalty", &s->presence_penalty,
      "Taken off once if a token is in the output; 0 = off", P::kPenaltyRange);
  add("logit_bias", &s->logit_bias, "Added to logits: token=bias, e.g. 17=-2.5,42=1");
  add("bad_words", &s->bad_words,
      "Texts that must not appear, one per line: the tokens of each are banned, with and without a "
      "space before it");
  add("min_tokens", &s->min_tokens, "No end of text before this many tokens", P::kMinTokensRange);
  add("ignore_eos", &s->ignore_eos, "Go on after the end-of-text token");
  add("stop", &s->stop, "Text that ends the output (not part of it); may be repeated");
  add("stop_token_ids", &s->stop_token_ids, "Token ids that end the output, separated by commas");
  add("seed", &s->seed, "Seed of the draws; -1 = random, reported in the statistics",
      Range{.low = -1});
  add("logprobs", &s->logprobs, "With --json: log-probs of this many most likely tokens; -1 = none",
      P::kLogProbsRange);
}

void AddServeSettings(ServeConfig* s, std::vector<Setting>* rows) {
  RowAdder add("", rows);
  add("host", &s->host, "Address to listen on; 0.0.0.0 = all, reachable from other machines");
  add("port", &s->port, "Port to listen on; 0 = any that is free", kPort);
  add("api_key_file", &s->api_key_file,
      "File with one key per line; clients must send one as Authorization: Bearer KEY",
      ValueName{"FILE"});
  add("cors_origin", &s->cors_origin,
      "Web pages of this origin (* = all) may use the server; none = only its own page");
  add("max_connections", &s->max_connections, "Connections open at once", Range{1, 65536});
  add("max_request_bytes", &s->max_request_bytes, "Largest body of a request",
      Range{1024, 1 << 30});
  add("max_waiting", &s->max_waiting, "Requests that may wait; more are refused (429)",
      Range{1, 1 << 20});
  add("read_timeout", &s->read_timeout, "Seconds for a client to send a header, and a body",
      Range{1, kDaySeconds});
  add("request_timeout", &s->request_timeout,
      "Seconds after which a request is cancelled; 0 = never", kSecondsOfADay);
  add("served_model_name", &s->served_model_name,
      "The model's name in the API; none = its directory's");
  add("shutdown_timeout", &s->shutdown_timeout,
      "Seconds that requests may still take after Ctrl-C or SIGTERM", kSecondsOfADay);
}

void AddDraftSettings(SpeculativeConfig* s, RowAdder add) {
  add("method", &s->method, "Drafter, or several separated by commas",
      Flag{"--speculative-algorithm"}, MethodChoices(), Check{CheckMethod});
  add.Speculative("draft_model_path", &s->draft_model_path,
                  "Directory of the EAGLE3 head or the STANDALONE model", ValueName{"DIR"});
  add.Speculative("draft_weights", &s->draft_weights, "Type of the draft model's weights",
                  WeightChoices());
  add.Speculative("draft_window_size", &s->draft_window_size,
                  "EAGLE3: a draft row sees this many last rows; 0 = all, -1 = all, or with SpecPV "
                  "as many as a partial step reads",
                  Range{-1, 1 << 24});
  add.Speculative("draft_sink_size", &s->draft_sink_size,
                  "EAGLE3: and this many first rows, where there is a window", Range{0, 1 << 24});
  add("eagle3_capture_layers", &s->eagle3_capture_layers,
      "EAGLE3: layers whose input the head reads; none = as its config says");
  add.Speculative("num_steps", &s->num_steps, "Depth of the draft tree; 0 = the method's default",
                  Range{0, 64});
  add.Speculative("eagle_topk", &s->eagle_topk,
                  "Branches per expansion of a tree drafter; 0 = the method's default",
                  Range{0, 64});
  add.Speculative("num_draft_tokens", &s->num_draft_tokens,
                  "Nodes of a tree, root included; 0 = the method's default", Range{0, 256});
}

void AddAcceptanceSettings(SpeculativeConfig* s, RowAdder add) {
  add.Speculative("acceptance", &s->acceptance, "Rule that accepts drafts",
                  Choices{{"match", "exact, same text as plain"},
                          {"threshold", "lossy; implied by a threshold below 1"},
                          {"rejection", "exact in distribution"}});
  add.Speculative("accept_threshold_single", &s->accept_threshold_single,
                  "Accept a draft of at least this probability; below 1 is lossy", kShare);
  add.Speculative("accept_threshold_acc", &s->accept_threshold_acc,
                  "Divides the cumulative probability of drafts; below 1 is lossy", kShare);
  add.Speculative("adaptive", &s->adaptive,
                  "Choose the number of nodes by measured cost and acceptance, down to none");
  add.Speculative("verify_curve", &s->verify_curve,
                  "File of the verify curve: loaded if it exists, else measured and saved",
                  ValueName{"FILE"});
}

void AddSpeculativeSettings(SpeculativeConfig* s, std::vector<Setting>* rows) {
  RowAdder add(kSpeculativeGroup, rows);
  add("enable_speculative_decoding", &s->enable_speculative_decoding,
      "false: plain decoding whatever the method");
  add("enable_target_tree", &s->enable_target_tree,
      "false: the target verifies no trees, which is plain decoding",
      Alias{"enable_eagle_target_tree"});
  AddDraftSettings(s, add);
  AddAcceptanceSettings(s, add);
  add("draft_min_prob", &s->draft_min_prob, "Drop drafts whose path probability is below this",
      kShare);
  add("enable_nwor", &s->enable_nwor,
      "No-write-on-reject: stage tree rows, write accepted ones only");
  add("scv_chunk_size", &s->scv_chunk_size,
      "Verify trees in chunks of this many nodes; 0 = in one pass", Range{0, 256});
  add("ngram_mode", &s->ngram_mode, "How NGRAM grows its tree", Choices{"BFS", "PROB"}, kAnyCase);
  add("ngram_max_depth", &s->ngram_max_depth, "Longest n-gram kept", Range{2, 64});
  add("suffix_corpus", &s->suffix_corpus,
      "SUFFIX knows this file's documents from the start, one per line: text, or JSON: \"text\", "
      "{\"prompt\": text}, [token ids] or {\"tokens\": [ids]}",
      ValueName{"FILE"});
}

void AddSpecPvSettings(SpecPvSettings* s, std::vector<Setting>* rows) {
  using C = SpecPvConfig;
  C& v = s->values;
  RowAdder add(kSpeculativeGroup, rows);
  add("enable_specpv", &v.enabled,
      "Partial verification: long sequences are verified over chosen KV blocks, and now and then "
      "in full");
  add("specpv_mode", &s->mode, "Partial verification",
      Choices{{"exact", "full passes re-check; same text as without"},
              {"fast", "never re-checked, lossy"}});
  add("specpv_block_size", &v.block_size, "Tokens per block, as --block-size", BlockSizeChoices());
  add("specpv_n_sink_blocks", &v.sink_blocks, "First blocks, always read", C::kBlocksRange);
  add("specpv_n_retrieval_blocks", &v.retrieval_blocks, "Blocks chosen by the selector",
      C::kBlocksRange);
  add("specpv_n_window_blocks", &v.window_blocks, "Last blocks, always read", C::kWindowRange);
  add("specpv_n_spec_tokens_buf", &v.buffer_tokens,
      "Room for provisional tokens and a tree; at least tree + depth + 1", C::kBufferRange);
  add("specpv_partial_threshold", &v.partial_threshold,
      "Sequences up to this many tokens are verified in full", C::kThresholdRange);
  add("specpv_full_refresh_interval", &v.full_refresh_interval,
      "Partial steps between full passes at most", C::kIntervalRange,
      Alias{"specpv_full_refresh_steps"});
  add("specpv_selector", &s->selector, "How retrieved blocks are chosen",
      Choices{"quest", "quest_bound", "h2o", "streaming", "sliding"});
  add("specpv_reduce", &s->reduce, "Reduction of scores over a pass's queries",
      Choices{"mean", "max", {"root", "the root's only"}});
  add("specpv_adaptive", &v.adaptive, "Fewer retrieved blocks for very long requests");
  add("specpv_shadow_rate", &v.shadow_rate,
      "Share of partial steps that are also run in full, to measure the difference",
      C::kShareRange);
  add("specpv_error_target", &v.error_target,
      "Disagreement with full verification that sets the refresh interval; 0 = off",
      C::kShareRange);
}

void AddTlsSettings(TlsConfig* t, RowAdder add) {
  add("tls_cert_file", &t->cert_file, "Own certificate, PEM", ValueName{"FILE"});
  add("tls_key_file", &t->key_file, "Its key, PEM", ValueName{"FILE"});
  add("tls_ca_file", &t->ca_file,
      "Authority that the other side's certificate must be signed by, PEM", ValueName{"FILE"});
  add("insecure", &t->insecure, "Plaintext also beyond this machine; anyone there can read it");
}

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
  add("target_address", &r->target_address,
      "Target worker, as HOST:PORT; none = the model runs here", ValueName{"ADDRESS"});
  add("max_rounds", &r->max_rounds, "Rounds at most; 0 = no limit", kOrNoLimit);
  add("timeout_s", &r->timeout_s, "Seconds a round may take, retries included",
      Range{0.001, kDaySeconds});
  add("max_output_tokens", &r->max_output_tokens,
      "New tokens at most, beside --max-tokens; 0 = no limit", kOrNoLimit);
  add("max_context_window", &r->max_context_window,
      "Tokens of prompt and output at most; 0 = the target's limit", kOrNoLimit);
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
  add("telemetry", &r->telemetry,
      "Write rounds and calls to this file: .csv, .trace.json (ui.perfetto.dev) or JSON",
      ValueName{"FILE"});
  AddTlsSettings(&r->tls, add);
}

// "Type of the KV cache: f32, f16 or bf16", "Sequences that run at once; 1 to 1024".
std::string HelpOf(const Setting& setting) {
  if (setting.range) return setting.meaning + "; " + setting.range->ToString();
  std::vector<std::string> names;
  for (const SettingChoice& choice : setting.choices) {
    names.push_back(choice.note.empty() ? choice.name
                                        : fmt::format("{} ({})", choice.name, choice.note));
  }
  return names.empty() ? setting.meaning : setting.meaning + ": " + JoinWithOr(names);
}

}  // namespace

std::vector<Setting> SettingsOf(Config* config, unsigned sets) {
  std::vector<Setting> rows;
  if ((sets & kModelSettings) != 0) AddModelSettings(config, &rows);
  if ((sets & kSamplingSettings) != 0) AddSamplingSettings(&config->sampling, &rows);
  if ((sets & kSpeculativeSettings) != 0) {
    AddSpeculativeSettings(&config->speculative, &rows);
    AddSpecPvSettings(&config->speculative.specpv, &rows);
  }
  if ((sets & kServeSettings) != 0) AddServeSettings(&config->serve, &rows);
  if ((sets & kWorkerSettings) != 0) AddWorkerSettings(&config->worker, &rows);
  if ((sets & kDraftWorkerSettings) != 0) AddDraftWorkerSettings(&config->worker, &rows);
  if ((sets & kRemoteSettings) != 0) AddRemoteSettings(&config->remote, &rows);
  for (Setting& row : rows) row.help = HelpOf(row);
  return rows;
}

const char* TypeText(const Setting& setting) {
  return std::visit([](auto* value) { return KindOf(value).text; }, setting.value);
}

}  // namespace talon
